"""Flashing: what each method does to a tool or a drive, every fault in one line, and emulated boards for real."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from flash_bench import J_LINK, MICROBIT, ST_LINK, Builds, Desk, taken, words_after
from flash_faults import FAULTS, PROBE, PROBES, Fault, row
from message_table import MessageTable

import rlx_edge
from rlx_edge.device import drives
from rlx_edge.device.boards import Board, load_board, load_boards
from rlx_edge.device.build import load_firmware
from rlx_edge.device.emulator import QEMU, Emulator
from rlx_edge.device.external import DEBUGGERS
from rlx_edge.device.flash_job import Job
from rlx_edge.device.flash_openocd import arguments
from rlx_edge.device.uf2 import uf2_file
from rlx_edge.resources import boards_dir

TABLE = MessageTable("flashing.md", "test_flash.py")
SAMPLE = ("mps2-an386", "microbit")
"""Emulated boards that are flashed in every run of the tests."""


@pytest.fixture(scope="module")
def messages() -> dict[Fault, str]:
    return {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}: {fault.planted}")
def test_each_fault_is_told_in_one_line_that_the_docs_quote(
    fault: Fault, desk: Desk, builds: Builds, messages: dict[Fault, str], request: pytest.FixtureRequest
) -> None:
    said = fault.say(desk, builds)
    assert fault.words in said
    assert "\n" not in said
    messages[fault] = said
    if not request.config.getoption("--update-golden"):
        assert row(fault, said) in TABLE.rows, "run pytest tests/test_flash.py --update-golden"


def test_the_docs_show_no_other_faults(messages: dict[Fault, str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        assert len(messages) == len(FAULTS), "run the whole file"
        TABLE.write("".join(row(fault, messages[fault]) for fault in FAULTS))
    assert TABLE.rows.count("\n") == len(FAULTS)


def test_openocd_is_told_probe_chip_place_and_file(desk: Desk, builds: Builds) -> None:
    calls = desk.tool("openocd", ("", "** Verified OK **", 0))
    desk.plug((ST_LINK, "066AFF5051", "/dev/ttyNONE0"), (MICROBIT, "9904", "/dev/ttyNONE1"))
    said = desk.good("flash", builds("nucleo-f446re"), "--no-verify")
    assert (
        said.startswith("wrote ") and "to nucleo-f446re by openocd\nnot verified by the device: as was wished" in said
    )
    assert words_after(calls, "-f") == ["interface/stlink.cfg", "target/stm32f4x.cfg"]
    steps = words_after(calls, "-c")
    assert "adapter serial {066AFF5051}" in steps
    assert steps[-1] == "program firmware.bin 0x08000000 verify reset exit"
    assert "0xe0042000" in steps[-2] and "!= 0x421" in steps[-2]


def test_another_board_on_usb_is_not_in_the_way(desk: Desk, builds: Builds) -> None:
    """An ST-LINK of another kind is not taken for the board's, and --probe picks between two of the same kind."""
    calls = desk.tool("openocd", ("", "", 0))
    desk.plug((ST_LINK, "A1", "/dev/ttyNONE0"), ((0x0483, 0x374E), "B2", "/dev/ttyNONE1"))
    desk.good("flash", builds("nucleo-f446re"), "--no-verify")
    desk.plug((ST_LINK, "A1", "/dev/ttyNONE0"), (ST_LINK, "C3", "/dev/ttyNONE1"))
    desk.good("flash", builds("nucleo-f446re"), "--no-verify", "--probe", "C3")
    assert [step for step in words_after(calls, "-c") if "serial" in step] == [
        "adapter serial {A1}",
        "adapter serial {C3}",
    ]


def test_a_probe_without_a_serial_port_counts(desk: Desk, builds: Builds) -> None:
    """As Linux lists it; without a serial number that can be written, OpenOCD is told none."""
    calls = desk.tool("openocd", ("", "", 0))
    desk.plug_without_port((0x1366, 0x0101), "000681000000", "J-Link")
    desk.good("flash", builds("nrf52840dk"), "--no-verify")
    assert "adapter serial {000681000000}" in words_after(calls, "-c")
    assert "transport select swd" in words_after(calls, "-c")
    desk.plug_without_port((0x1366, 0x1015), "000682000000", "J-Link")
    desk.good("flash", builds("nrf52840dk"), "--no-verify")  # this one is the board's
    assert "adapter serial {000682000000}" in words_after(calls, "-c")


def test_pyocd_is_told_probe_chip_place_and_file(desk: Desk, builds: Builds) -> None:
    listed = PROBES % f"{PROBE % '000682000000'}, {PROBE % '9904'}"
    calls = desk.tool("pyocd", ("json", listed, 0), ("commander", "10000100:  00052840    |@(..|", 0), ("flash", "", 0))
    desk.plug((J_LINK, "000682000000", "/dev/ttyNONE0"))
    folder = builds("nrf52840dk")
    assert "by pyocd" in desk.good("flash", folder, "--by", "pyocd", "--no-verify")
    assert words_after(calls, "-t") == ["nrf52840", "nrf52840"]
    assert words_after(calls, "-u") == ["000682000000"] * 2
    assert words_after(calls, "-O") == ["auto_unlock=false"] * 2  # else it would erase a locked chip
    assert words_after(calls, "-a") == ["0x00000000"]
    assert calls.read_text().splitlines()[-1] == str(folder / "firmware.bin")


def test_a_daplink_drive_gets_the_image(desk: Desk, builds: Builds) -> None:
    """The one of the right board, of two with the same label."""
    folder = builds("microbit-v2")
    desk.drive("MICROBIT", DETAILS_TXT="Unique ID: 9900000031\n")
    drive = desk.drive("MICROBIT1", DETAILS_TXT="Unique ID: 9904000001\n")
    image = (folder / "firmware.bin").read_bytes()
    with taken(drive, "firmware.bin", len(image), comes_back=True) as got:
        said = desk.good("flash", folder)
    assert got == [image]
    assert "by daplink" in said
    with taken(drive, "firmware.bin", len(image), comes_back=True):
        stages: list[tuple[str, int, int]] = []
        done = rlx_edge.flash(folder, progress=lambda *stage: stages.append(stage))
    assert (done.method, done.image_bytes, done.port) == ("daplink", len(image), None)
    assert ("copying to MICROBIT1", 0, len(image)) in stages
    assert stages[-2:] == [
        ("copying to MICROBIT1", len(image), len(image)),
        ("waiting for the drive to come back", 0, 0),
    ]
    assert "not verified by the device: microbit-v2: the board is not found: no serial port has the USB id" in said


def test_behind_a_boot_loader_a_drive_gets_a_hex_file(desk: Desk, builds: Builds, tmp_path: Path) -> None:
    """The image of the Nano 33 BLE does not go to the start of flash, which a .bin would."""
    own = tmp_path / "boards"
    own.mkdir()
    text = (boards_dir() / "nano33ble.toml").read_text()
    (own / "nano33ble.toml").write_text(text.replace('method = "pyocd"', 'method = "daplink"\ndaplink = ["DAPLINK"]'))
    drive, folder = desk.drive("DAPLINK", DETAILS_TXT="Unique ID: 0240\n"), builds("nano33ble")
    assert "arm-none-eabi-objcopy is not there: install it" in desk.refused("flash", folder)
    desk.real_tools("arm-none-eabi-objcopy")
    image = (folder / "firmware.bin").read_bytes()
    with taken(drive, "firmware.hex", 2 * len(image), comes_back=True) as got:
        desk.good("flash", folder)
    memory = parse_hex(got[0].decode())
    assert bytes(memory.pop(0x10000 + i) for i in range(len(image))) == image
    assert not memory


def parse_hex(text: str) -> dict[int, int]:
    """What an Intel HEX file writes, byte by address."""
    memory: dict[int, int] = {}
    base = 0
    for line in text.split():
        record = bytes.fromhex(line.removeprefix(":"))
        assert sum(record) % 256 == 0
        count, offset, kind, data = record[0], int.from_bytes(record[1:3]), record[3], record[4:-1]
        assert len(data) == count
        if kind == 0:
            memory |= {base + offset + i: byte for i, byte in enumerate(data)}
        elif kind in (2, 4):
            base = int.from_bytes(data) << (4 if kind == 2 else 16)
    return memory


def test_a_drive_that_was_pulled_out_may_still_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "proc /proc proc rw 0 0\n/dev/sdb1 /media/you/RPI-RP2 vfat rw 0 0\n/dev/sdc /media/A\\040B vfat rw 0 0\n"
    )
    monkeypatch.setattr(drives, "MOUNTS", mounts)
    assert drives.device_of(Path("/media/you/RPI-RP2")) == Path("/dev/sdb1")
    assert drives.device_of(Path("/media/A B")) == Path("/dev/sdc")
    assert drives.device_of(Path("/proc")) is None
    assert drives.device_of(tmp_path) is None


def test_firmware_of_ones_own_is_not_asked(desk: Desk, builds: Builds, tmp_path: Path) -> None:
    """It need not speak the protocol."""
    folder = Path(shutil.copytree(builds("nucleo-f446re"), tmp_path / "own"))
    facts = json.loads((folder / "build.json").read_text())
    (folder / "build.json").write_text(json.dumps(facts | {"app": "blinky"}))
    desk.tool("openocd", ("", "", 0))
    assert "not verified by the device: the application blinky may not speak the protocol" in desk.good("flash", folder)


def test_a_uf2_drive_gets_the_image(desk: Desk, builds: Builds) -> None:
    folder, drive = builds("pico"), desk.drive("RPI-RP2")
    (drive / "INFO_UF2.TXT").write_text("UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n")
    image = (folder / "firmware.bin").read_bytes()
    with taken(drive, "firmware.uf2", 2 * len(image), comes_back=False) as got:
        desk.good("flash", folder)
    memory, families = parse_uf2(got[0])
    assert families == {0xE48BFF56}
    assert bytes(memory[0x10000000 + i] for i in range(len(image))) == image


def parse_uf2(data: bytes) -> tuple[dict[int, int], set[int]]:
    """What a UF2 file writes, byte by address, and its families: read as the specification words it."""
    assert len(data) % 512 == 0
    memory: dict[int, int] = {}
    families, count = set(), len(data) // 512
    for number in range(count):
        block = data[512 * number : 512 * (number + 1)]
        assert block[0:4] == b"UF2\n"
        assert block[4:8] == bytes.fromhex("57515d9e")
        assert block[508:512] == bytes.fromhex("306fb10a")
        flags, address, size, index, total, family = struct.unpack_from("<6I", block, 8)
        assert flags == 0x2000  # the family is given; in main flash, no file, no checksum, no tags
        assert (size, index, total) == (256, number, count)
        assert address % 256 == 0
        assert block[32 + size : 508].count(0) == 476 - size
        families.add(family)
        for offset, byte in enumerate(block[32 : 32 + size]):
            assert address + offset not in memory
            memory[address + offset] = byte
    return memory, families


@pytest.mark.parametrize("size", [1, 255, 256, 257, 4096, 70_001])
def test_uf2_files_hold_the_image_and_nothing_else(size: int) -> None:
    image = bytes(i * 7 % 251 for i in range(size))
    memory, families = parse_uf2(uf2_file(image, 0x1000_0000, 0xE48BFF59))
    assert families == {0xE48BFF59}
    assert bytes(memory.pop(0x1000_0000 + i) for i in range(size)) == image
    assert set(memory.values()) <= {0xFF}  # the rest of the last page, as erased
    assert len(memory) < 256


EMULATED = [board.name for board in load_boards() if board.emulation is not None]


@pytest.fixture(
    params=[name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long) for name in EMULATED],
)
def board(request: pytest.FixtureRequest, builds: Builds) -> str:
    """An emulated board whose build is there."""
    builds(request.param)
    return str(request.param)


def test_an_emulator_is_flashed_and_its_device_confirms_it(builds: Builds, board: str, desk: Desk) -> None:
    """An empty one through its gdb server, then the running one again, the hash asked over the pty each time."""
    desk.real_tools(QEMU, *DEBUGGERS)
    firmware = load_firmware(builds(board))
    with Emulator(load_board(board), None, gdb=True, halted=True) as emulator:
        words = ("flash", builds(board), "--gdb", emulator.gdb_target, "--port", emulator.port)
        said = desk.good(*words)
        assert (
            f"verified by the device on {emulator.port}: it runs this image, CRC-32 {firmware.image_crc32:08x}" in said
        )
        facts = json.loads(desk.good(*words, "--json"))
    assert facts.items() >= {"board": board, "method": "gdb", "verified": True}.items()
    assert facts["image_crc32"] == firmware.image_crc32


def test_another_core_behind_a_gdb_server_is_not_written_to(desk: Desk, builds: Builds) -> None:
    desk.real_tools(QEMU, *DEBUGGERS)
    with Emulator(load_board("mps2-an386"), None, gdb=True, halted=True) as emulator:
        said = desk.refused("flash", builds("microbit"), "--gdb", emulator.gdb_target)
    assert said.endswith("wrong chip: the word at 0xe000ed00 is 0x410fc240, not 0x4100c200; nothing was written")


OPENOCD = shutil.which("openocd")
SCRIPTS = Path("/usr/share/openocd/scripts/target")


@pytest.mark.skipif(OPENOCD is None, reason="OpenOCD is not installed")
@pytest.mark.parametrize(
    "board", [b for b in load_boards() if b.flash and "openocd" in b.flash.methods], ids=lambda b: b.name
)
def test_openocd_itself_understands_what_it_is_told(board: Board, builds: Builds) -> None:
    """The real one reads interface and target files, takes all commands and runs the check of the chip; what would
    need a probe is replaced. With the right id it comes to the programming, with another one it stops before."""
    assert board.flash is not None
    target = board.chip.tools.openocd or ""
    if not (SCRIPTS.parent / target).is_file():
        pytest.skip(f"this OpenOCD has no {target}")
    job = Job(board, board.flash, load_firmware(builds("pico")), None, None, None, 1.0, lambda *stage: None)
    words = arguments(job, "123")
    at, lowest_bit = words.index("init") - 1, job.part.mask & -job.part.mask
    stubs = (
        'proc init {} {}; proc reset {args} {}; proc program {args} {echo "program $args"; shutdown}; '
        'proc mdw {address} {echo [format "0x%08x: %08x " $address ID]}'
    )
    for value, good in ((job.part.value, True), (job.part.value ^ lowest_bit, False)):
        stub = stubs.replace("ID", f"{value:#x}")
        done = subprocess.run(
            [str(OPENOCD), *words[:at], "-c", stub, *words[at:]], capture_output=True, text=True, timeout=20
        )
        said = done.stdout + done.stderr
        assert (f"program firmware.bin 0x{board.placement.code.start:08x} verify reset exit" in said) == good, said
        assert (done.returncode == 0) == good
        assert (f"rlx-edge: another chip: 0x{value:08x}" in said) == (not good), said
