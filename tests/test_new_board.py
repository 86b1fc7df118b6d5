"""Boards of the user's own: a folder that is searched first, and `rlx-edge new-board`, which writes into it."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest
from bench_device import make_bundle
from command import good, refused

from rlx_edge.device.boards import board_file, board_names, chip_dirs, load_board, load_boards, read_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.new_board import Facts, board_text, new_board
from rlx_edge.errors import DeviceError
from rlx_edge.resources import boards_dir


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of boards, which does not exist yet."""
    folder = tmp_path / "my boards"
    monkeypatch.setenv("RLX_EDGE_BOARDS", str(folder))
    return folder


@pytest.mark.parametrize("name", board_names())
def test_a_board_file_survives_being_written(tmp_path: Path, name: str) -> None:
    values = tomllib.loads(board_file(name).read_text())
    copy = tmp_path / f"{name}.toml"
    copy.write_text(board_text(values))
    assert read_board(copy, *chip_dirs()) == load_board(name)


def test_any_text_survives_being_written(tmp_path: Path) -> None:
    title = 'a "quoted" \\ back\nslash, \t tab, \x7f and ü'
    assert tomllib.loads(board_text({"title": title}))["title"] == title


def test_like_a_known_board(own: Path) -> None:
    path = new_board("my-nucleo", own, Facts(title="Mine", usb=("1a2b:3c4d",), stack_bytes=8192), like="nucleo-f446re")
    assert path == own / "my-nucleo.toml"
    base, mine = load_board("nucleo-f446re"), load_board("my-nucleo")
    changed = {"name": "my-nucleo", "title": "Mine", "usb": ("1a2b:3c4d",), "stack_bytes": 8192}
    assert mine == dataclasses.replace(base, **changed)
    assert mine in load_boards()


def test_like_an_emulated_board_it_is_hardware_and_untested(own: Path) -> None:
    new_board("my-bit", own, Facts(tx_pin=9, rx_pin=11), like="microbit")
    mine = load_board("my-bit")
    assert (mine.hardware, mine.hardware_tested, mine.emulation) == (True, False, None)
    assert mine.pins is not None and (mine.pins.tx, mine.pins.rx) == (9, 11)


def test_from_a_chip_alone(own: Path, tmp_path: Path) -> None:
    """The chip's own steps of set-up, its first regions, its first UART; firmware can be built for it."""
    new_board("bare", own, Facts(core_hz=64_000_000, uart_hz=16_000_000, tx_pin=3, rx_pin=4), chip="nrf52840")
    mine, chip = load_board("bare"), load_board("nrf52840dk").chip
    assert mine.setup == chip.setup != ()
    assert (mine.placement.code.name, mine.placement.arena.name, mine.uart.name) == ("flash", "ram", "uart0")
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], mine, tmp_path / "out")
    assert firmware.board == "bare"


def test_how_it_is_flashed(own: Path) -> None:
    """As the board that it is like, or by OpenOCD and a common probe, or as is said."""
    new_board("my-bit", own, Facts(), like="microbit-v2")
    assert load_board("my-bit").flash == load_board("microbit-v2").flash
    new_board("bare", own, Facts(core_hz=16_000_000), chip="stm32f407")
    bare = load_board("bare").flash
    assert bare is not None and (bare.method, bare.probe, bare.methods) == ("openocd", "cmsis-dap", ("openocd", "gdb"))
    new_board("feather", own, Facts(method="uf2", drive="FEATHER"), like="pico")
    feather = load_board("feather").flash
    assert feather is not None and (feather.method, feather.uf2) == ("uf2", ("FEATHER",))
    new_board("dap", own, Facts(method="daplink", drive="DAPLINK", probe="jlink"), like="microbit")
    dap = load_board("dap").flash
    assert dap is not None and (dap.daplink, dap.drive_ids, dap.probe) == (("DAPLINK",), (), "jlink")


def test_the_own_folder_is_searched_first(own: Path) -> None:
    """For boards, and for chips: of the same name, one's own is taken."""
    (own / "chips").mkdir(parents=True)
    text = (boards_dir() / "pico.toml").read_text()
    (own / "pico.toml").write_text(text.replace("Raspberry Pi Pico", "My Pico"))
    chip = (boards_dir() / "chips" / "rp2040.toml").read_text()
    (own / "chips" / "rp2040.toml").write_text(chip.replace("bytes = 0x0020_0000", "bytes = 0x0100_0000"))
    assert load_board("pico").title == "My Pico (RP2040, Cortex-M0+)"
    assert load_board("pico").placement.code.bytes == 16 << 20
    assert board_names().count("pico") == 1


@pytest.mark.parametrize(
    ("name", "facts", "where", "message"),
    [
        ("My Board", Facts(), {"like": "pico"}, "'My Board' cannot name a board: use small letters"),
        ("../x", Facts(), {"like": "pico"}, "cannot name a board"),
        ("pico2", Facts(), {"like": "pico"}, "there is a board pico2 already"),
        ("mine", Facts(), {}, "which board it is like (--like), or which chip it has (--chip): one of the two"),
        ("mine", Facts(), {"like": "pico", "chip": "rp2040"}, "one of the two"),
        ("mine", Facts(), {"like": "picco"}, "unknown board picco (did you mean pico?)"),
        ("mine", Facts(), {"chip": "z80"}, "--chip: unknown chip z80; known chips: mps2-an385"),
        ("mine", Facts(), {"chip": "rp2040"}, "--core-hz is missing"),
        ("mine", Facts(core_hz=1), {"chip": "nrf52840"}, "the keys tx_pin and rx_pin are missing"),
        ("mine", Facts(uart="uart7"), {"like": "pico"}, "mine.toml: [link]: rp2040 has no UART uart7; it has uart0"),
        ("mine", Facts(data="rom"), {"like": "pico"}, "mine.toml: [placement]: data must name a ram region of rp2040"),
        ("mine", Facts(stack_bytes=1001), {"like": "pico"}, "mine.toml: stack_bytes must be a multiple of 8"),
        ("mine", Facts(baud=0), {"like": "pico"}, "mine.toml: [link]: baud must be a whole number from 1"),
        ("mine", Facts(method="daplink"), {"like": "pico"}, "mine.toml: [flash]: method daplink needs daplink (labels"),
        ("mine", Facts(method="uf2", drive="X"), {"like": "microbit"}, "method uf2 needs uf2_family in the chip's"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    own: Path, name: str, facts: Facts, where: dict[str, str], message: str
) -> None:
    with pytest.raises(DeviceError) as caught:
        new_board(name, own, facts, **where)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not own.exists()


def test_the_command(own: Path) -> None:
    said = good(
        "new-board", "my-pico", "--like", "pico", "--title", "My Pico", "--usb", "2e8a:000c", "--baud", "921600"
    )
    assert said.strip() == f"wrote {own / 'my-pico.toml'}"
    assert load_board("my-pico").baud == 921600
    assert "my-pico" in good("boards")
    assert refused("new-board", "my-pico", "--like", "pico") == "there is a board my-pico already; choose another name"
    assert refused("new-board", "x", "--like", "pcio").startswith("unknown board pcio (did you mean pico?)")
