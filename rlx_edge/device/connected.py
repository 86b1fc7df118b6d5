"""Which boards may be plugged into this computer now, and which programs they need that are not here."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.device.boards import Board
from rlx_edge.device.drives import mounted
from rlx_edge.device.emulator import QEMU
from rlx_edge.device.external import DEBUGGERS
from rlx_edge.device.flash_drive import may_be
from rlx_edge.device.toolchain import GCC, GCC_VARIABLE
from rlx_edge.device.usb import usb_devices


@dataclass(frozen=True)
class Need:
    """A program, what for (build, emulate or flash), and whether it is on PATH."""

    purpose: str
    program: str
    found: bool


@dataclass(frozen=True)
class Connection:
    """Something plugged in: a serial port, the folder of a drive, or the name of a probe without a port. `sure` unless
    boards of another kind have the same USB id."""

    where: str
    kind: str
    usb: str
    serial: str
    sure: bool


def needs(board: Board) -> tuple[Need, ...]:
    """What it takes to build for the board, to emulate it, and to flash it by its usual method."""
    found = [_need("build", os.environ.get(GCC_VARIABLE) or GCC)]
    found += [_need("emulate", QEMU)] if board.emulation is not None else []
    programs = {"openocd": ("openocd",), "pyocd": ("pyocd",), "gdb": DEBUGGERS}
    method = board.flash.method if board.flash is not None else ""
    return (*found, *([_need("flash", *programs[method])] if method in programs else []))


def _need(purpose: str, *programs: str) -> Need:
    there = [program for program in programs if shutil.which(program)]
    return Need(purpose, (there or list(programs))[0], bool(there))


def connections(boards: Sequence[Board]) -> dict[str, tuple[Connection, ...]]:
    """What is plugged in, by the names of the boards that it may be."""
    owners = Counter(usb for board in boards for usb in _ids(board))
    devices = usb_devices()

    def of(board: Board) -> tuple[Connection, ...]:
        found = [
            Connection(
                where=device.port or device.product or device.id,
                kind="port" if device.port else "probe",
                usb=device.id,
                serial=device.serial,
                sure=owners[device.id] == 1,
            )
            for device in devices
            if device.id in _ids(board)
        ]
        return (*found, *_drives(board))

    return {board.name: of(board) for board in boards}


def _drives(board: Board) -> list[Connection]:
    """Drives with the board's own label; not J-Links', which all have the same one."""
    if board.flash is None or board.flash.probe == "jlink":
        return []
    labels = (*board.flash.uf2, *board.flash.daplink)
    return [
        Connection(where=str(drive), kind="drive", usb="", serial="", sure=True)
        for drive in (mounted(labels) if labels else [])
        if may_be(board.flash, drive)
    ]


def _ids(board: Board) -> frozenset[str]:
    return frozenset((*board.usb, *(board.flash.usb if board.flash is not None else ())))
