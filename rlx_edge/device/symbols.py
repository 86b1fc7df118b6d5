"""From an address on the device to a line of source, by the debug information of the ELF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


@dataclass(frozen=True)
class SourceLine:
    """A place in the C sources. `function` is empty where the symbol table has none."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place} in {self.function}" if self.function else place


def find_source_line(elf: Path, address: int) -> SourceLine | None:
    """The source line that the code at `address` (bit 0 is ignored) was made from, or None if there is none."""
    address &= ~1
    with elf.open("rb") as stream:
        image = ELFFile(stream)
        found = _find_line(image, address)
        if found is None:
            return None
        return SourceLine(file=found[0], line=found[1], function=_find_function(image, address))


def find_symbol(elf: Path, name: str) -> int | None:
    """The address of a symbol, or None where the symbol table has none of that name."""
    with elf.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        found = table.get_symbol_by_name(name) if isinstance(table, SymbolTableSection) else None
        return int(found[0]["st_value"]) if found else None


def _find_line(image: Any, address: int) -> tuple[str, int] | None:
    if not image.has_dwarf_info():
        return None
    dwarf = image.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        before, start = None, 0
        for state in (entry.state for entry in program.get_entries() if entry.state is not None):
            if before is None:
                start = state.address
            # The linker leaves lines of functions it dropped at address 0, where only the vector table can be.
            elif start != 0 and before.address <= address < state.address:
                return _file_name(program, before.file), before.line
            before = None if state.end_sequence else state
    return None


def _file_name(program: Any, index: int) -> str:
    header = program.header
    first = 0 if header.version >= 5 else 1  # DWARF 5 counts files and directories from 0
    entry = header.file_entry[index - first]
    name = entry.name.decode(errors="replace")
    if entry.dir_index < first:
        return str(name)
    directory = header.include_directory[entry.dir_index - first].decode(errors="replace")
    return str(PurePosixPath(directory) / name)


def _find_function(image: Any, address: int) -> str:
    symbols = image.get_section_by_name(".symtab")
    if symbols is None:
        return ""
    for symbol in symbols.iter_symbols():
        start = symbol["st_value"] & ~1
        if symbol["st_info"]["type"] == "STT_FUNC" and start <= address < start + symbol["st_size"]:
            return str(symbol.name)
    return ""
