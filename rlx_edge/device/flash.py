"""Writing a build to the board that it was built for, as the board's file says or as the user does, and asking the
device which image it runs then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.device.boards import Board, load_board
from rlx_edge.device.build import Firmware, load_firmware
from rlx_edge.device.flash_drive import flash_by_daplink, flash_by_uf2
from rlx_edge.device.flash_gdb import flash_by_gdb
from rlx_edge.device.flash_job import Job, Report
from rlx_edge.device.flash_openocd import flash_by_openocd
from rlx_edge.device.flash_pyocd import flash_by_pyocd
from rlx_edge.device.link import Link
from rlx_edge.device.ports import open_port
from rlx_edge.device.protocol import Hello
from rlx_edge.device.usb import connected_ports, find_port
from rlx_edge.errors import DeviceError

TIMEOUT_SECONDS = 120.0
# A board starts within a second; its serial port may be away longer while its probe restarts.
PORT_SECONDS = 15.0
ANSWER_SECONDS = 3.0
POLL_SECONDS = 0.2
SPEAKING_APP = "parity"
BY: Mapping[str, Callable[[Job], None]] = {
    "openocd": flash_by_openocd,
    "pyocd": flash_by_pyocd,
    "uf2": flash_by_uf2,
    "daplink": flash_by_daplink,
    "gdb": flash_by_gdb,
}


@dataclass(frozen=True)
class Flashed:
    """What was done. `port` is where the device told that it runs this image; None: it was not asked, `why_not` why."""

    board: str
    method: str
    image_bytes: int
    image_crc32: int
    port: str | None
    why_not: str


@dataclass(frozen=True)
class Wishes:
    """What the user said on the command line; None: as the board's file has it, or whatever is found.

    `by` is a method, `port` a serial port, `probe` the serial number of a debug probe, `drive` the folder of a drive,
    `gdb` the address of a gdb server, which chooses that method. `timeout` in seconds bounds each tool.
    """

    by: str | None = None
    port: str | None = None
    probe: str | None = None
    drive: Path | None = None
    gdb: str | None = None
    verify: bool = True
    timeout: float = TIMEOUT_SECONDS


def flash(folder: Path, wishes: Wishes, report: Report, *, board_name: str | None = None) -> Flashed:
    """Writes the build in `folder` to its board. `board_name`: refuse a build of another board.

    Raises ToolError and DeviceError, in one line each, for all that can be wrong with the folder, the tool, the probe,
    the chip and the port; and when the device then runs another image.
    """
    firmware = load_firmware(folder)
    board = load_board(firmware.board)
    if board_name is not None and board_name != board.name:
        raise DeviceError(f"{folder}: was built for {board.name}, not for {board_name}; build it for that board")
    job = _job(board, firmware, wishes, report)
    method = _method(job, wishes)
    _check_size(job)
    has_port = _check_port(board, wishes)
    BY[method](job)
    port, why_not = _where_to_ask(board, firmware, wishes, has_port)
    if port is not None:
        _check_device(port, board, firmware, report)
    return Flashed(board.name, method, firmware.image_bytes, firmware.image_crc32, port, why_not)


def _job(board: Board, firmware: Firmware, wishes: Wishes, report: Report) -> Job:
    if board.flash is None:
        raise DeviceError(f"{board.name}: its file has no [flash] table; docs/boards.md says what it takes")
    return Job(board, board.flash, firmware, wishes.probe, wishes.drive, wishes.gdb, wishes.timeout, report)


def _method(job: Job, wishes: Wishes) -> str:
    method = wishes.by or ("gdb" if wishes.gdb is not None else job.facts.method)
    if method not in job.facts.methods:
        raise DeviceError(
            f"{job.board.name}: cannot be flashed by {method}; it can by {', '.join(job.facts.methods)}"
            + ("" if method in BY else f" ({method} is no method)")
        )
    return method


def _check_size(job: Job) -> None:
    """Boards of one's own may have shrunk since the build."""
    region = job.board.placement.code
    excess = job.firmware.image_bytes - region.bytes
    if excess > 0:
        raise DeviceError(
            f"{job.board.name}: the image has {job.firmware.image_bytes:,} bytes, and the region {region.name} "
            f"{region.bytes:,} ({excess:,} too many); use a smaller model or a larger board"
        )


def _check_port(board: Board, wishes: Wishes) -> bool:
    """Whether the board has a port that it should have again afterwards. One that the user named must open now."""
    if wishes.port is not None and wishes.verify:
        open_port(wishes.port, board.baud).close()
    return bool(connected_ports(board, wishes.probe))


def _where_to_ask(board: Board, firmware: Firmware, wishes: Wishes, has_port: bool) -> tuple[str | None, str]:
    """A port, or why none is asked."""
    if not wishes.verify:
        return None, "as was wished (--no-verify)"
    if firmware.app != SPEAKING_APP:
        return None, f"the application {firmware.app} may not speak the protocol"
    if wishes.port is not None:
        return wishes.port, ""
    deadline = time.monotonic() + (PORT_SECONDS if has_port else 0)
    while time.monotonic() < deadline and not connected_ports(board, wishes.probe):
        time.sleep(POLL_SECONDS)
    try:
        return find_port(board, wishes.probe), ""
    except DeviceError as error:
        return None, str(error)


def _check_device(port: str, board: Board, firmware: Firmware, report: Report) -> None:
    report("asking the device", 0, 0)
    hello = _hello(port, board, firmware)
    if (hello.image_crc, hello.image_bytes) != (firmware.image_crc32, firmware.image_bytes):
        raise DeviceError(
            f"{port}: the device runs another image than was written (CRC-32 {hello.image_crc:08x} over "
            f"{hello.image_bytes:,} bytes, the build has {firmware.image_crc32:08x} over {firmware.image_bytes:,}): "
            "is this the port of the board that was flashed?"
        )


def _hello(port: str, board: Board, firmware: Firmware) -> Hello:
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        try:
            with Link.open(port, board.baud, timeout=ANSWER_SECONDS, on_text=lambda line: None, board=board) as link:
                return link.hello()
        except DeviceError as error:
            if time.monotonic() > deadline:
                raise DeviceError(f"the image was written, but the device does not confirm it: {error}") from error
        time.sleep(POLL_SECONDS)
