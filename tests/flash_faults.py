"""What can be wrong when a board is flashed, each planted with a program, a drive or a USB device that is really there
for rlx-edge, and what it says.

test_flash.py checks the messages, and that docs/flashing.md quotes them. What tools print are words of OpenOCD 0.12 and
pyocd 0.46.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flash_bench import ST_LINK, Builds, Desk, taken

from rlx_edge.device.boards import load_board
from rlx_edge.device.build import load_firmware
from rlx_edge.device.emulator import QEMU, Emulator
from rlx_edge.device.external import DEBUGGERS
from rlx_edge.resources import boards_dir

Say = Callable[[Desk, Builds], str]
"""Plants a fault on a desk and returns what was said."""

PROBES = """{"boards": [%s], "status": 0}"""
PROBE = """{"unique_id": "%s", "info": "Arm DAPLink CMSIS-DAP"}"""
LOCKED = "0000456 W NRF52840 APPROTECT enabled: not automatically unlocking [target_nRF52]"


@dataclass(frozen=True)
class Fault:
    """A row of the table: what is wrong, how it was planted, and words that its message must hold."""

    name: str
    planted: str
    say: Say
    words: str


def openocd(text: str, board: str = "nucleo-f446re") -> Say:
    """OpenOCD fails with these words."""

    def say(desk: Desk, build: Builds) -> str:
        desk.tool("openocd", ("", text, 1))
        return desk.refused("flash", build(board))

    return say


def pyocd(asked: tuple[str, int], written: tuple[str, int] = ("", 0), *probes: str) -> Say:
    """pyocd lists probes, answers what the chip is, and writes."""

    def say(desk: Desk, build: Builds) -> str:
        listed = PROBES % ", ".join(PROBE % probe for probe in probes)
        desk.tool("pyocd", ("json", listed, 0), ("commander", *asked), ("flash", *written))
        return desk.refused("flash", build("nrf52840dk"), "--by", "pyocd")

    return say


def flash(board: str, *words: str) -> Say:
    return lambda desk, build: desk.refused("flash", build(board), *words)


def two_st_links(desk: Desk, build: Builds) -> str:
    desk.tool("openocd")
    desk.plug((ST_LINK, "066AFF5051", "/dev/ttyACM0"), (ST_LINK, "0671FF3838", "/dev/ttyACM1"))
    return desk.refused("flash", build("nucleo-f446re"))


def two_drives(desk: Desk, build: Builds) -> str:
    for label, unique_id in (("MICROBIT", "9904000001"), ("MICROBIT1", "9905000002")):
        desk.drive(label, DETAILS_TXT=f"# DAPLink Firmware\nUnique ID: {unique_id}\n")
    return desk.refused("flash", build("microbit-v2"))


def uf2_of_another_chip(desk: Desk, build: Builds) -> str:
    drive = desk.drive("RP2350", INFO_UF2_TXT="")
    (drive / "INFO_UF2.TXT").write_text("UF2 Bootloader v1.0\nModel: Raspberry Pi RP2350\nBoard-ID: RP2350\n")
    return desk.refused("flash", build("pico"), "--drive", drive)


def drive_of_another_board(desk: Desk, build: Builds) -> str:
    drive = desk.drive("MICROBIT", DETAILS_TXT="# DAPLink Firmware\nUnique ID: 9900000031\n")
    return desk.refused("flash", build("microbit-v2"), "--drive", drive)


def full_drive(desk: Desk, build: Builds) -> str:
    drive = desk.drive("MICROBIT", DETAILS_TXT="Unique ID: 9904000001\n")
    (drive / "firmware.bin").symlink_to("/dev/full")
    return desk.refused("flash", build("microbit-v2"))


def fail_txt(desk: Desk, build: Builds) -> str:
    drive, folder = desk.drive("MICROBIT", DETAILS_TXT="Unique ID: 9904000001\n"), build("microbit-v2")
    said = "error: The interface firmware FAILED to reset/halt the target MCU\r\ntype: target\r\n"
    with taken(drive, "firmware.bin", load_firmware(folder).image_bytes, comes_back=True, FAIL_TXT=said):
        return desk.refused("flash", folder)


def drive_that_stays(desk: Desk, build: Builds) -> str:
    desk.drive("MICROBIT", DETAILS_TXT="Unique ID: 9904000001\n")
    return desk.refused("flash", build("microbit-v2"), "--timeout", "0.5")


def drive_of_something_else(desk: Desk, build: Builds) -> str:
    return desk.refused("flash", build("microbit-v2"), "--drive", desk.drive("HOLIDAYS", beach_jpg=""))


def uf2_that_stays(desk: Desk, build: Builds) -> str:
    drive = desk.drive("RPI-RP2")
    (drive / "INFO_UF2.TXT").write_text("UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n")
    return desk.refused("flash", build("pico"), "--timeout", "0.5")


def drive_not_mounted(desk: Desk, build: Builds) -> str:
    (desk.folder / "by-label").mkdir()
    (desk.folder / "by-label" / "RPI-RP2").symlink_to("/dev/null")
    return desk.refused("flash", build("pico")).replace("FOLDER/by-label", "/dev/disk/by-label")


def hanging(desk: Desk, build: Builds) -> str:
    number = desk.hanging_tool("openocd")
    said = desk.refused("flash", build("nucleo-f446re"), "--timeout", "3")
    assert not living(int(number.read_text())), "what it started is left"
    return said


def living(group: int) -> list[str]:
    """Processes of a group that run; ones that ended may wait for their parent to notice."""
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return [state for state, _, process_group, *_ in stats if process_group == str(group) and state not in "ZX"]


def smaller_region(desk: Desk, build: Builds) -> str:
    """A chip file of one's own, with less flash than at the time of the build."""
    folder, chips = build("nucleo-f446re"), Path(os.environ["RLX_EDGE_BOARDS"]) / "chips"
    chips.mkdir(parents=True)
    text = (boards_dir() / "chips" / "stm32f446.toml").read_text()
    assert "bytes = 0x8_0000" in text
    (chips / "stm32f446.toml").write_text(text.replace("bytes = 0x8_0000", "bytes = 0x800"))
    return desk.refused("flash", folder)


def no_build(desk: Desk, build: Builds) -> str:
    (desk.folder / "photos").mkdir()
    return desk.refused("flash", desk.folder / "photos")


def half_a_build(desk: Desk, build: Builds) -> str:
    half = Path(shutil.copytree(build("pico"), desk.folder / "build"))
    (half / "firmware.bin").write_bytes(b"cut")
    return desk.refused("flash", half)


def another_board(desk: Desk, build: Builds) -> str:
    folder = Path(shutil.copytree(build("pico"), desk.folder / "build"))
    return desk.refused("flash", folder, "--board", "pico2")


def missing_port(desk: Desk, build: Builds) -> str:
    return desk.refused("flash", build("nucleo-f446re"), "--port", "/dev/ttyACM7")


def held_port(desk: Desk, build: Builds) -> str:
    with serial_port() as (port, _):
        script = f"port = open({port!r}, 'r+b', buffering=0); print('open', flush=True); port.read(1)"
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as holder:
            try:
                assert holder.stdout is not None
                holder.stdout.readline()
                said = desk.refused("flash", build("nucleo-f446re"), "--port", port)
            finally:
                holder.kill()
    said = said.replace(port, "/dev/ttyACM0").replace(str(holder.pid), "4242")
    return re.sub(r"python\S* \(", "minicom (", said)


def forbidden_port(desk: Desk, build: Builds) -> str:
    """By a user who is not root, for root may open all ports."""
    script = """
import os, sys
from rlx_edge.device.link import Link
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Link.open(sys.argv[1])
except Exception as error:
    print(error)
"""
    with serial_port() as (port, _):
        Path(port).chmod(0)
        done = subprocess.run([sys.executable, "-c", script, port], capture_output=True, text=True, check=True)
    return re.sub(r"-aG \S+ ", "-aG dialout ", done.stdout.strip().replace(port, "/dev/ttyACM0"))


@contextmanager
def serial_port() -> Iterator[tuple[str, int]]:
    """A port, and the descriptor of what is at its other end."""
    master, slave = pty.openpty()
    try:
        tty.setraw(slave)
        yield os.ttyname(slave), master
    finally:
        os.close(slave)
        os.close(master)


def deploy(board: str, *ports: tuple[tuple[int, int], str, str]) -> Say:
    """A command that looks for the board itself."""

    def say(desk: Desk, build: Builds) -> str:
        desk.plug(*ports)
        return desk.refused("deploy", "model.rlx", "--data", "data.npz", "--board", board)

    return say


def another_image(desk: Desk, build: Builds) -> str:
    """One emulator is flashed, and the port is another one's, which runs another build."""
    desk.real_tools(QEMU, *DEBUGGERS)
    folder, other = build("mps2-an386"), load_board("microbit")
    with (
        Emulator(load_board("mps2-an386"), None, gdb=True, halted=True) as flashed,
        Emulator(other, load_firmware(build("microbit")).elf) as asked,
    ):
        said = desk.refused("flash", folder, "--gdb", flashed.gdb_target, "--port", asked.port)
    return re.sub(r"(CRC-32|has) [0-9a-f]{8} over [\d,]+", r"\1 HASH over N", said.replace(asked.port, "/dev/ttyACM0"))


TWO_BOARDS = (ST_LINK, "066AFF5051", "/dev/ttyACM0"), (ST_LINK, "0671FF3838", "/dev/ttyACM1")
DAPLINK = "0240000034544e45"
NRF52833, NRF52840 = "10000100:  00052833    |3(..|", "10000100:  00052840    |@(..|"
NO_REGION = "0002345 C no memory region defined for address 0x00000000 [__main__]"
NO_CONFIG = "embedded:startup.tcl:28: Error: Can't find target/stm32f4x.cfg"
NO_TARGET = "0000500 C Target type nrf52840 not recognized. Use 'pyocd list --targets' to see [__main__]"
UNKNOWN = "0000500 C something new [__main__]"
LOCKED_AP = "nRF52 device has AP lock engaged (see UICR APPROTECT register)."
NO_BANK = "Warn : no flash bank found for address 0x08000000\n** Programming Failed **"
NO_CHIP = "Error: init mode failed (unable to connect to the target)"
WRONG = "0xe0042000: 10006413\nrlx-edge: another chip: 0x10006413"
FAULTS = (
    Fault("OpenOCD is missing", "a PATH without it", flash("nucleo-f446re"), "openocd is not there: install it"),
    Fault("pyocd is missing", "a PATH without it", flash("nano33ble"), "pip install pyocd"),
    Fault("gdb is missing", "a PATH without it", flash("mps2-an386", "--gdb", "localhost:1234"), "install it"),
    Fault("no probe", "OpenOCD finds none", openocd("Error: open failed"), "an ST-LINK is not found"),
    Fault("no probe", "pyocd lists none", pyocd(("", 0)), "pyocd lists none"),
    Fault("two probes", "two ST-LINKs on USB", two_st_links, "2 probes match: /dev/ttyACM0 (serial 066AFF5051), "),
    Fault("two probes", "pyocd lists two", pyocd(("", 0), ("", 0), DAPLINK, "0501"), "(--probe)"),
    Fault("two boards", "two drives with the board's label", two_drives, "name one of them (--drive)"),
    Fault("no board on the probe", "OpenOCD cannot connect", openocd(NO_CHIP), "is the board powered"),
    Fault("no board on the probe", "pyocd gets no answer", pyocd(("0000321 C No ACK", 1), ("", 0), DAPLINK), "powered"),
    Fault("wrong chip", "OpenOCD reads an STM32F407's id", openocd(WRONG), "another chip than stm32f446"),
    Fault("wrong chip", "pyocd reads an nRF52833's id", pyocd((NRF52833, 0), ("", 0), DAPLINK), "another chip"),
    Fault("wrong chip", "the drive of a Pico 2", uf2_of_another_chip, "Board-ID: RP2350"),
    Fault("wrong chip", "the drive of a micro:bit v1", drive_of_another_board, "Unique ID: 9900000031"),
    Fault("locked chip", "an STM32 seen by OpenOCD", openocd("Error: stm32x device protected"), "stm32f4x unlock 0"),
    Fault("locked chip", "an nRF52 seen by OpenOCD", openocd(LOCKED_AP, "nrf52840dk"), "nrf52_recover"),
    Fault("locked chip", "an nRF52 seen by pyocd", pyocd((LOCKED, 1), ("", 0), DAPLINK), "pyocd erase --mass"),
    Fault("image too large", "a chip file with less flash", smaller_region, "too many"),
    Fault("image too large", "OpenOCD finds less flash", openocd(NO_BANK), "does not fit the flash that the chip has"),
    Fault("image too large", "pyocd finds less flash", pyocd((NRF52840, 0), (NO_REGION, 1), DAPLINK), "does not fit"),
    Fault("a tool that is too old", "OpenOCD lacks the chip's file", openocd(NO_CONFIG), "this OpenOCD does not know"),
    Fault(
        "a tool that is too old", "pyocd lacks the target", pyocd((NO_TARGET, 1), ("", 0), DAPLINK), "--upgrade pyocd"
    ),
    Fault("something else", "words that are not known", openocd("Error: something new"), "failed: something new"),
    Fault("something else", "words of pyocd", pyocd((UNKNOWN, 1), ("", 0), DAPLINK), "pyocd failed: something new"),
    Fault("not written", "OpenOCD reads back something else", openocd("** Verify Failed **"), "differs"),
    Fault("no drive", "nothing plugged in", flash("pico"), "BOOTSEL"),
    Fault("no drive", "a drive that nobody mounted", drive_not_mounted, "udisksctl mount"),
    Fault("no drive of a board", "--drive names another folder", drive_of_something_else, "no drive of a debug probe"),
    Fault("drive that cannot be written", "a full drive", full_drive, "No space left on device"),
    Fault("FAIL.TXT", "the drive comes back with it", fail_txt, "FAILED to reset/halt the target MCU"),
    Fault("drive that does nothing", "DAPLink never comes back", drive_that_stays, "has not come back within 0.5 s"),
    Fault("drive that does nothing", "the boot ROM does not restart", uf2_that_stays, "has not taken the image"),
    Fault("a tool that hangs", "OpenOCD sleeps", hanging, "openocd was ended after 3 s"),
    Fault("no method", "--by magic", flash("pico", "--by", "magic"), "it can by openocd, pyocd, uf2, gdb"),
    Fault("no gdb server named", "an emulated board", flash("mps2-an386"), "-gdb tcp::1234"),
    Fault("no build", "another folder", no_build, "is not a finished build"),
    Fault("a damaged build", "a cut firmware.bin", half_a_build, "build it again"),
    Fault("a build of another board", "--board pico2", another_board, "was built for pico, not for pico2"),
    Fault("the device runs another build", "the port of another emulator", another_image, "runs another image"),
    Fault("no such port", "--port /dev/ttyACM7", missing_port, "there is no such port"),
    Fault("port in use", "another program has it open", held_port, "the port is in use by"),
    Fault("no permission", "a port of root's", forbidden_port, "sudo usermod -aG"),
    Fault("board not found", "deploy without --port", deploy("nucleo-f446re"), "the board is not found"),
    Fault("two boards", "deploy with two of them connected", deploy("nucleo-f446re", *TWO_BOARDS), "2 boards match"),
)


def row(fault: Fault, message: str) -> str:
    """A row of the table of docs/flashing.md."""
    return f"| {fault.name} | {fault.planted} | `{without_sizes(message)}` |\n"


def without_sizes(message: str) -> str:
    """What another compiler may change."""
    return re.sub(r"\d[\d,]*(?= bytes| too many)", "N", message)
