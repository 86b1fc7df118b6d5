"""The tables of docs/boards.md: which boards there are, and what firmware takes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rlx_edge.device.boards import Board
from rlx_edge.device.build import FirmwareSizes
from rlx_edge.device.chips import Region

PAGE = Path(__file__).resolve().parents[1] / "docs" / "boards.md"
FPUS = {"none": "none", "fpv4-sp-d16": "single", "fpv5-sp-d16": "single", "fpv5-d16": "double", "auto": "double, MVE"}


def between(name: str) -> tuple[str, str]:
    """The lines that a table of the page lies between."""
    return f"<!-- {name}: make boards -->\n", f"<!-- end of {name} -->\n"


def facts_table(boards: Iterable[Board]) -> str:
    """Markdown, a row a board."""
    head = ("board", "core", "code", "RAM", "UART", "clock", "FPU", "where it runs", "flashed by")
    return markdown(head, [_facts(board) for board in boards])


def sizes_table(sizes: Mapping[str, FirmwareSizes]) -> str:
    """Markdown, a row a board; bytes."""
    head = ("board", "flash", "RAM", "stack", "link: flash", "link: RAM")
    rows = [
        (
            f"`{name}`",
            *(f"{n:,}" for n in (s.flash_bytes, s.ram_bytes, s.stack_bytes, s.link_flash_bytes, s.link_ram_bytes)),
        )
        for name, s in sizes.items()
    ]
    return markdown(head, rows)


def replaced(page: str, name: str, table: str) -> str:
    """The page with another table between the lines of that name."""
    start, end = between(name)
    before, _, rest = page.partition(start)
    return before + start + table + rest[rest.index(end) :]


def table_of(page: str, name: str) -> str:
    start, end = between(name)
    return page.partition(start)[2].partition(end)[0]


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _facts(board: Board) -> tuple[str, ...]:
    place, chip = board.placement, board.chip
    ram = _region(place.data) + ("" if place.arena == place.data else f"; arena {_region(place.arena)}")
    where = ["QEMU"] if board.emulation else []
    where += [f"hardware, {'tested' if board.hardware_tested else 'untested'}"] if board.hardware else []
    core = chip.cpu.replace("cortex-m", "Cortex-M").replace("plus", "+")
    core += f" ({chip.name})" if board.hardware else ""
    clock = f"{board.core_hz // 1_000_000} MHz"
    facts = (core, _region(place.code), ram, board.uart.name, clock, FPUS[chip.fpu], "; ".join(where))
    return (f"`{board.name}`", *facts, _methods(board))


def _methods(board: Board) -> str:
    """The usual method first, then what else is possible."""
    if board.flash is None:
        return ""
    others = [method for method in board.flash.methods if method != board.flash.method]
    return ", ".join([f"**{board.flash.method}**", *others])


def _region(region: Region) -> str:
    size = f"{region.bytes >> 20} MiB" if region.bytes % 2**20 == 0 else f"{region.bytes >> 10} KiB"
    return f"0x{region.start:08x}, {size}"
