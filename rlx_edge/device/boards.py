"""Boards as data: boards/*.toml, one file a board, each naming its chip in boards/chips/.

The user's own folder, laid out the same way, is searched before the one that comes with rlx-edge.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.device.chips import Chip, Region, Uart, load_chip
from rlx_edge.device.flash_facts import Flashing, read_flashing
from rlx_edge.device.setup import Step, read_steps
from rlx_edge.device.tables import Table
from rlx_edge.errors import DeviceError
from rlx_edge.resources import boards_dir

BOARDS_VARIABLE = "RLX_EDGE_BOARDS"
DEFAULT_BOARD = "mps2-an386"


@dataclass(frozen=True)
class Placement:
    """Memory regions by use. `code` and `weights` are flash, `data` (with stack and bss) and `arena` are RAM."""

    code: Region
    weights: Region
    data: Region
    arena: Region


@dataclass(frozen=True)
class Pins:
    """UART pins, on chips where any pin can be one."""

    tx: int
    rx: int


@dataclass(frozen=True)
class Emulation:
    """How QEMU starts this board: `qemu-system-arm -M machine args...`."""

    machine: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Board:
    """All facts about a board. Clocks in Hz; `usb` holds "vendor:product" ids of its serial port.

    `wiring` says where the UART is found on a board whose USB port does not carry it. `setup` is all that start-up does
    with the chip's registers, the chip's own steps first.

    `dtr`, `rts`: the state that these lines of its serial port want, None where it does not matter.

    `hardware` is true where the board exists as a thing to buy; `hardware_tested` where this project ran on one.
    """

    name: str
    title: str
    chip: Chip
    hardware: bool
    hardware_tested: bool
    stack_bytes: int
    usb: tuple[str, ...]
    placement: Placement
    core_hz: int
    uart_hz: int
    uart: Uart
    baud: int
    pins: Pins | None
    dtr: bool | None
    rts: bool | None
    wiring: str | None
    setup: tuple[Step, ...]
    emulation: Emulation | None
    flash: Flashing | None

    @property
    def purely_emulated(self) -> bool:
        """Whether the emulator is the only way to run this board, so that nobody needs to ask for it."""
        return not self.hardware


def own_boards_dir() -> Path:
    """The user's folder of boards, which may be missing: RLX_EDGE_BOARDS, or rlx-edge/boards in the config folder."""
    chosen = os.environ.get(BOARDS_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rlx-edge" / "boards"


def board_dirs() -> tuple[Path, ...]:
    """Folders of board files, in the order in which they are searched."""
    return own_boards_dir(), boards_dir()


def chip_dirs() -> tuple[Path, ...]:
    """Folders of chip files, in the order in which they are searched."""
    return tuple(folder / "chips" for folder in board_dirs())


def board_names() -> list[str]:
    """Names of all boards, sorted."""
    return sorted({path.stem for folder in board_dirs() for path in folder.glob("*.toml")})


def load_boards() -> list[Board]:
    """All boards, sorted by name. Raises `DeviceError` on the first file that is not as it should be."""
    return [load_board(name) for name in board_names()]


def board_file(name: str) -> Path:
    """The file of the board of this name. Raises `DeviceError` for an unknown one, listing the known ones."""
    known = board_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DeviceError(f"unknown board {name}{hint}; known boards: {', '.join(known)}")
    files = (folder / f"{name}.toml" for folder in board_dirs())
    return next(file for file in files if file.is_file())


def load_board(name: str = DEFAULT_BOARD) -> Board:
    """The board of this name. Raises `DeviceError` for an unknown name (it lists the known ones) or a bad file."""
    return read_board(board_file(name), *chip_dirs())


def read_board(path: Path, *chips: Path) -> Board:
    """Reads a board file, and its chip's file from the first folder of `chips` that has it.

    Raises `DeviceError` on a bad file.
    """
    table = Table.load(path)
    chip = find_chip(path.name, table.text("chip"), chips)
    clock, link = table.table("clock"), table.table("link")
    board = Board(
        name=path.stem,
        title=table.text("title"),
        chip=chip,
        hardware=table.flag("hardware"),
        hardware_tested=table.flag("hardware_tested"),
        stack_bytes=table.number("stack_bytes", low=512),
        usb=table.texts("usb"),
        placement=_placement(path.name, table.table("placement"), chip),
        core_hz=clock.number("core_hz", low=1),
        uart_hz=clock.number("uart_hz", low=1),
        uart=_uart(path.name, link.text("uart"), chip),
        baud=link.number("baud", low=1),
        pins=_pins(path.name, link, chip),
        dtr=link.flag("dtr") if link.has("dtr") else None,
        rts=link.flag("rts") if link.has("rts") else None,
        wiring=link.text("wiring") if link.has("wiring") else None,
        setup=(*chip.setup, *(read_steps(table, chip.registers) if table.has("setup") else ())),
        emulation=_emulation(table.table("emulator")) if table.has("emulator") else None,
        flash=read_flashing(table.table("flash"), chip.tools) if table.has("flash") else None,
    )
    for part in (clock, link, table):
        part.done()
    _check(path.name, board)
    return board


def find_chip(where: str, name: str, folders: Sequence[Path]) -> Chip:
    """The chip of this name, from the first folder that has it. `where` names who asks, in errors."""
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return load_chip(folder / f"{name}.toml")
    known = ", ".join(sorted({file.stem for folder in folders for file in folder.glob("*.toml")}))
    raise DeviceError(f"{where}: unknown chip {name}; known chips: {known}")


def _placement(where: str, table: Table, chip: Chip) -> Placement:
    def region(use: str, kind: str) -> Region:
        found = chip.regions.get(table.text(use))
        if found is None or found.kind != kind:
            fitting = ", ".join(r.name for r in chip.regions.values() if r.kind == kind)
            raise DeviceError(f"{where}: [placement]: {use} must name a {kind} region of {chip.name}: {fitting}")
        return found

    placement = Placement(
        code=region("code", "flash"),
        weights=region("weights", "flash"),
        data=region("data", "ram"),
        arena=region("arena", "ram"),
    )
    table.done()
    return placement


def _uart(where: str, name: str, chip: Chip) -> Uart:
    if name not in chip.uarts:
        raise DeviceError(f"{where}: [link]: {chip.name} has no UART {name}; it has {', '.join(chip.uarts)}")
    return chip.uarts[name]


def _pins(where: str, link: Table, chip: Chip) -> Pins | None:
    if link.has("tx_pin") or link.has("rx_pin"):
        return Pins(tx=link.number("tx_pin", high=255), rx=link.number("rx_pin", high=255))
    if chip.uarts[link.text("uart")].takes_pins:
        raise DeviceError(f"{where}: [link]: the keys tx_pin and rx_pin are missing: {chip.name} has no default pins")
    return None


def _emulation(table: Table) -> Emulation:
    emulation = Emulation(machine=table.text("machine"), args=table.texts("args"))
    table.done()
    return emulation


def _check(where: str, board: Board) -> None:
    """Rules between keys."""
    placement = board.placement
    if placement.weights != placement.code:
        raise DeviceError(f"{where}: [placement]: weights must lie where code lies: one checksum covers both")
    if not board.hardware and board.emulation is None:
        raise DeviceError(f"{where}: a board needs hardware = true or an [emulator] table")
    if board.stack_bytes % 8 != 0 or board.stack_bytes > placement.data.bytes:
        raise DeviceError(
            f"{where}: stack_bytes must be a multiple of 8 that fits {placement.data.name}, found {board.stack_bytes}"
        )
