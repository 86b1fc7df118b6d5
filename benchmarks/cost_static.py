"""Code and stack bytes of kernels, as the compiler and the linker say: flags of `rlx-edge build`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.device.chips import Chip
from rlx_edge.device.toolchain import COMMON_FLAGS, chip_flags, find_compiler
from rlx_edge.resources import firmware_dir

_NODE = re.compile(r'node: \{ title: "([^"]+)" label: "([^"]*)"')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
_FRAME = re.compile(r"(\d+) bytes \((\w+)\)")
_PLACED = re.compile(r"^ \.(?:text|rodata)\S*\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S.*)$", re.M)
_MEMBER = re.compile(r"\(([^)]+)\.o\)$|/(?=rlx_memory\.o$)")
"""Of libgcc; firmware/runtime/ is part of the start-up code."""
_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")


@dataclass(frozen=True)
class StaticCost:
    """code_bytes: flash of the kernel alone; library: bytes of each member of libgcc that it needs."""

    code_bytes: int
    library: Mapping[str, int]
    stack_bytes: int


def static_costs(chip: Chip, kernels: Iterable[Kernel], folder: Path) -> dict[str, StaticCost]:
    """The costs of kernels on a chip, by name. Compiles into `folder`, which must exist."""
    flags = [*COMMON_FLAGS, *chip_flags(chip)]
    objects, frames, calls = _compile(flags, folder)
    found = {}
    for kernel in kernels:
        elf = folder / f"{kernel.name}.elf"
        _link(objects, [*chip_flags(chip)], kernel.name, elf)
        own, library = _placed(elf.with_suffix(".map").read_text())
        # Where the compiler does not see (assembly, its library), the instructions say what is pushed.
        told = _deepest(kernel.name, frames, calls)
        pushed = _deepest(kernel.name, *_pushing_frames(elf))
        found[kernel.name] = StaticCost(own, library, max(told, pushed))
    return found


def _compile(flags: Sequence[str], folder: Path) -> tuple[list[Path], dict[str, int], dict[str, set[str]]]:
    """Objects of all kernels; bytes of the frame of each function, and whom it calls."""
    objects, frames, calls = [], {}, {}
    command = [find_compiler().command, *flags, "-fcallgraph-info=su"]
    for source in sorted([*(firmware_dir() / "kernels").glob("*.c"), *(firmware_dir() / "runtime").glob("*.c")]):
        target = folder / f"{source.stem}.o"
        subprocess.run([*command, "-c", str(source), "-o", str(target)], check=True)
        more_frames, more_calls = _call_graph(target.with_suffix(".ci").read_text())
        frames |= more_frames
        calls |= more_calls
        objects.append(target)
    return objects, frames, calls


def _call_graph(text: str) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Frames and calls of a .ci file (gcc's -fcallgraph-info). A title is "file.c:name" for a static function."""
    frames, calls = {}, {}
    for title, label in _NODE.findall(text):
        frame = _FRAME.search(label)
        if frame:
            if frame[2] != "static":
                raise ValueError(f"{title}: its stack frame has no fixed size")
            frames[title] = int(frame[1])
            calls.setdefault(title, set())
    for source, target in _EDGE.findall(text):
        calls.setdefault(source, set()).add(target)
    return frames, calls


def _link(objects: Sequence[Path], flags: Sequence[str], entry: str, elf: Path) -> None:
    options = ["-nostdlib", "-Wl,--gc-sections", f"-Wl,-e,{entry}", "-Xlinker", f"-Map={elf.with_suffix('.map')}"]
    command = [find_compiler().command, *flags, *options, *map(str, objects), "-lgcc", "-o", str(elf)]
    subprocess.run(command, check=True)


def _placed(text: str) -> tuple[int, dict[str, int]]:
    """From a linker map: bytes of code and constants that were kept, those of libgcc apart, by member."""
    kept = text.partition("Linker script and memory map")[2]
    kept = re.sub(r"^( \.\S+)\n\s+(0x)", r"\1 \2", kept, flags=re.M)  # long names wrap
    own, library = 0, {}
    for size, where in _PLACED.findall(kept):
        member = _MEMBER.search(where)
        if member is None:
            own += _even(int(size, 16))
        elif int(size, 16) and member[1]:
            library[member[1]] = library.get(member[1], 0) + _even(int(size, 16))
    return own, library


def _even(size: int) -> int:
    """With what alignment adds: functions begin at multiples of 4."""
    return -(-size // 4) * 4


def _pushing_frames(elf: Path) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Frames and calls of all functions of an image, from its instructions: pushes, and subtractions from sp."""
    text = subprocess.run(["arm-none-eabi-objdump", "-d", str(elf)], capture_output=True, text=True, check=True).stdout
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        head = _FUNCTION.match(line)
        if head:
            name = head[1]
            frames[name], calls[name] = 0, set()
        elif name:
            frames[name] += _pushed(line)
            target = re.search(r"\tbl?(?:\.w|\.n)?\t[0-9a-f]+ <([^>+]+)>", line)
            if target and target[1] != name:
                calls[name].add(target[1])
    return frames, calls


def _pushed(line: str) -> int:
    """Bytes by which an instruction lowers sp."""
    registers = re.search(r"\t(?:push|stmdb\tsp!,|stmfd\tsp!,)\S*\s+\{([^}]*)\}", line)
    if registers:
        return sum(4 * _count(part) for part in registers[1].split(","))
    lowered = re.search(r"\tsub(?:\.w)?\tsp, (?:sp, )?#(\d+)", line) or re.search(r"\[sp, #-(\d+)\]!", line)
    return int(lowered[1]) if lowered else 0


def _count(part: str) -> int:
    """Registers in "r4" or "r4-r7"."""
    first, _, last = part.strip().partition("-")
    return int(last[1:]) - int(first[1:]) + 1 if last else 1


def _deepest(name: str, frames: Mapping[str, int], calls: Mapping[str, set[str]], above: tuple[str, ...] = ()) -> int:
    """The deepest stack of a function and all that it calls. Raises ValueError for recursion."""
    if name in above:
        raise ValueError(f"{' -> '.join(above)} -> {name}: recursion")
    below = [_deepest(target, frames, calls, (*above, name)) for target in calls.get(name, ())]
    return frames.get(name, 0) + max(below, default=0)
