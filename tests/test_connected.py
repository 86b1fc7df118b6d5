"""What is plugged in, and what lacks: USB ids, drives and programs, as `rlx-edge boards` shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flash_bench import MICROBIT, ST_LINK, Desk

from rlx_edge.device.boards import load_board
from rlx_edge.device.usb import UsbDevice, find_port, usb_devices
from rlx_edge.errors import DeviceError


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, monkeypatch, capsys)


def facts(desk: Desk) -> dict[str, dict[str, Any]]:
    return {board["name"]: board for board in json.loads(desk.good("boards", "--json"))["boards"]}


def test_nothing_is_connected_and_nothing_is_there(desk: Desk) -> None:
    found = facts(desk)
    assert all(board["connected"] == [] for board in found.values())
    assert found["microbit"]["needs"] == [
        {"purpose": "build", "program": "arm-none-eabi-gcc", "found": False},
        {"purpose": "emulate", "program": "qemu-system-arm", "found": False},
    ]
    assert found["nano33ble"]["needs"][1] == {"purpose": "flash", "program": "pyocd", "found": False}
    assert (found["pico"]["flash_method"], found["pico"]["flash_methods"]) == (
        "uf2",
        ["openocd", "pyocd", "uf2", "gdb"],
    )
    shown = desk.good("boards")
    assert "(missing)" in shown
    for line in (
        "openocd is not there: some boards need it to flash (Debian: apt-get install",
        "arm-none-eabi-gcc is not there: some boards need it to build (Debian: apt-get install",
        "pyocd is not there: some boards need it to flash (pip install pyocd)",
    ):
        assert line in shown


def test_programs_that_are_there(desk: Desk) -> None:
    for tool in ("openocd", "arm-none-eabi-gdb"):
        desk.tool(tool)
    found = facts(desk)
    assert {"purpose": "flash", "program": "openocd", "found": True} in found["nucleo-f446re"]["needs"]
    assert {"purpose": "flash", "program": "arm-none-eabi-gdb", "found": True} in found["mps2-an386"]["needs"]
    assert "openocd is not there" not in desk.good("boards")


def test_a_board_of_its_own_usb_id(desk: Desk) -> None:
    desk.plug(((0x1366, 0x1015), "000682000000", "/dev/ttyACM3"))
    (one,) = facts(desk)["nrf52840dk"]["connected"]
    assert one == {"where": "/dev/ttyACM3", "kind": "port", "usb": "1366:1015", "serial": "000682000000", "sure": True}
    shown = desk.good("boards")
    assert "/dev/ttyACM3 " in shown and "?:" not in shown


def test_an_id_of_several_boards_is_not_sure_and_a_drive_is(desk: Desk) -> None:
    desk.plug((ST_LINK, "066AFF", "/dev/ttyACM0"))
    desk.drive("NODE_F446RE", DETAILS_TXT="Version: 0221\n")
    found = facts(desk)
    kinds = {name: [(one["kind"], one["sure"]) for one in board["connected"]] for name, board in found.items()}
    assert kinds["nucleo-f446re"] == [("port", False), ("drive", True)]
    assert kinds["nucleo-l4r5zi"] == [("port", False)]
    assert "?: its USB id is that of several boards" in desk.good("boards")


def test_drives_tell_the_two_microbits_apart(desk: Desk) -> None:
    desk.drive("MICROBIT", DETAILS_TXT="Unique ID: 9904000001\n")
    found = facts(desk)
    assert found["microbit"]["connected"] == []
    assert [one["kind"] for one in found["microbit-v2"]["connected"]] == ["drive"]


def test_a_probe_without_a_port(desk: Desk) -> None:
    desk.plug_without_port((0x0483, 0x3748), "ABC", "STM32 STLink")
    (one,) = facts(desk)["stm32f4discovery"]["connected"]
    assert (one["where"], one["kind"], one["sure"]) == ("STM32 STLink", "probe", True)


def test_a_device_with_a_port_is_listed_once(desk: Desk) -> None:
    """Linux shows it among USB devices too."""
    desk.plug((MICROBIT, "9904", "/dev/ttyACM0"))
    desk.plug_without_port(MICROBIT, "9904", "BBC micro:bit CMSIS-DAP")
    assert usb_devices() == (UsbDevice("0d28:0204", "9904", "", "/dev/ttyACM0"),)


def test_the_port_of_a_board(desk: Desk) -> None:
    board = load_board("microbit-v2")
    desk.plug((MICROBIT, "9904", "/dev/ttyACM1"), (ST_LINK, "066AFF", "/dev/ttyACM0"))
    assert find_port(board) == "/dev/ttyACM1"
    desk.plug((MICROBIT, "9904aa", "/dev/ttyACM1"), (MICROBIT, "9904bb", "/dev/ttyACM2"))
    assert find_port(board, "9904BB") == "/dev/ttyACM2"
    with pytest.raises(DeviceError, match=r"2 boards match: /dev/ttyACM1 \(serial 9904aa\), /dev/ttyACM2 \(serial"):
        find_port(board)
    with pytest.raises(DeviceError, match="no serial port has the USB id 0d28:0204 and serial 77"):
        find_port(board, "77")
    with pytest.raises(DeviceError, match=r"pico: name the serial port it is on \(--port\): its USB port is not"):
        find_port(load_board("pico"))
