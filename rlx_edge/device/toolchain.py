"""The Arm compiler: where it is, its flags for a chip, compiling with a cache, linking."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rlx_edge.device.chips import Chip
from rlx_edge.errors import ToolError

GCC = "arm-none-eabi-gcc"
GCC_VARIABLE = "RLX_EDGE_ARM_GCC"
CACHE_VARIABLE = "RLX_EDGE_CACHE"

COMMON_FLAGS = (
    "-std=c11",
    "-O3",
    "-g",
    "-ffreestanding",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-tree-loop-distribute-patterns",  # would turn the loop in memcpy into a call to memcpy
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-Wall",
    "-Wextra",
    "-Wconversion",
)


@dataclass(frozen=True)
class Compiler:
    """An arm-none-eabi-gcc: the command and the first line of its --version."""

    command: str
    version: str


@dataclass(frozen=True)
class Place:
    """An absolute path, and what debug information and messages show for it: the same on all machines."""

    path: Path
    shown_as: str


def find_compiler() -> Compiler:
    """The compiler named by RLX_EDGE_ARM_GCC, or arm-none-eabi-gcc on PATH.

    Raises `ToolError`, saying what to install, when there is none or it does not run.
    """
    wanted = os.environ.get(GCC_VARIABLE) or GCC
    command = shutil.which(wanted)
    if command is None:
        source = f"{GCC_VARIABLE} names {wanted}, which" if os.environ.get(GCC_VARIABLE) else wanted
        raise ToolError(
            f"{source} is not there: install it (Debian: apt-get install --no-install-recommends gcc-arm-none-eabi), "
            f"or set {GCC_VARIABLE} to an arm-none-eabi-gcc"
        )
    return _ask_version(command)


@functools.cache
def _ask_version(command: str) -> Compiler:
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"{command} --version failed: {error}") from error
    return Compiler(command=command, version=done.stdout.partition("\n")[0].strip())


def chip_flags(chip: Chip) -> tuple[str, ...]:
    """Flags that pick the chip's instruction set and calling convention; the same to compile and to link."""
    fpu = () if chip.fpu == "none" else (f"-mfpu={chip.fpu}",)
    return (f"-mcpu={chip.cpu}", "-mthumb", *fpu, f"-mfloat-abi={chip.float_abi}")


def cache_dir() -> Path:
    """RLX_EDGE_CACHE, or rlx-edge in the user's cache folder. Deleting it is safe at any time."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlx-edge"


def compile_units(
    compiler: Compiler,
    sources: Sequence[Place],
    flags: Sequence[str],
    includes: Sequence[Place],
    objects: Path | None = None,
) -> list[Path]:
    """Compiles each C file, or finds it in the cache: objects by the content of source, headers, flags and compiler.
    The cache is the user's, or the folder `objects`.

    Headers are those in the folders of `includes` and those beside the sources.
    Returns the objects in the order of the sources. Raises `ToolError` with the compiler's first error line.
    """
    folder = _objects_folder(objects or cache_dir() / "objects")
    common = hashlib.sha256("\0".join([compiler.version, *flags]).encode())
    beside = [Place(source.path.parent, str(PurePosixPath(source.shown_as).parent)) for source in sources]
    folders = {place.path: place for place in (*beside, *includes)}
    for place in folders.values():
        common.update(place.shown_as.encode() + b"\0")
        for header in sorted(place.path.glob("*.h")):
            common.update(header.name.encode() + b"\0" + header.read_bytes() + b"\0")

    def one(source: Place) -> Path:
        key = common.copy()
        key.update(source.shown_as.encode() + b"\0" + source.path.read_bytes())
        target = folder / f"{key.hexdigest()[:40]}.o"
        if not target.is_file():
            _compile(compiler, source, flags, includes, target)
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(one, sources))


def _objects_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"the cache {folder} cannot be made ({error.strerror}): set {CACHE_VARIABLE}") from error
    return folder


def _compile(compiler: Compiler, source: Place, flags: Sequence[str], includes: Sequence[Place], target: Path) -> None:
    """Writes under another name first, so that builds side by side never see half an object."""
    try:
        handle, name = tempfile.mkstemp(suffix=".o", dir=target.parent)
    except OSError as error:
        raise ToolError(f"the cache {target.parent} cannot be written: {error.strerror}") from error
    os.close(handle)
    scratch = Path(name)
    # Of the maps that match, gcc takes the last one.
    places = [Place(Path.cwd(), "."), *includes, source]
    maps = [f"-ffile-prefix-map={place.path}={place.shown_as}" for place in places]
    paths = [argument for include in includes for argument in ("-I", str(include.path))]
    command = [compiler.command, *flags, *maps, *paths, "-c", str(source.path), "-o", name]
    try:
        _run(command, f"compiling {source.shown_as}")
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def link(compiler: Compiler, objects: Sequence[Path], flags: Sequence[str], script: Path, elf: Path) -> None:
    """Links objects and libgcc into `elf`, and writes the linker's map beside it.

    Raises `CommandError` when the linker refuses; `region_overflows` tells whether a memory region is too small.
    """
    command = [
        compiler.command,
        *flags,
        "-nostdlib",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,--fatal-warnings",
        "-Xlinker",  # -Wl would cut a path at its commas
        f"-Map={elf.with_suffix('.map')}",
        "-T",
        str(script),
        *(str(obj) for obj in objects),
        "-lgcc",
        "-o",
        str(elf),
    ]
    _run(command, f"linking {elf.name}")


def region_overflows(error: CommandError) -> dict[str, int]:
    """Bytes that do not fit, by the name of the memory region; empty when the linker refused for another reason."""
    found = re.findall(r"region `([^']+)' overflowed by (\d+) bytes", error.output)
    return {name: int(count) for name, count in found}


class CommandError(ToolError):
    """The compiler or the linker refused. `output` is all that it printed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def _run(command: Sequence[str], what: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}  # messages are parsed
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{what} failed: {error}") from error
    if done.returncode != 0:
        reason = _reason(done.stderr) or f"exit code {done.returncode}"
        raise CommandError(f"{what} failed: {reason}", done.stderr)


def _reason(printed: str) -> str:
    """The line that says why the compiler or the linker refused; empty when it printed nothing."""
    lines = [line.strip() for line in printed.splitlines()]
    lines = [line for line in lines if line and "ld returned" not in line]  # gcc's own words about the linker
    errors = [line for line in lines if "error:" in line.lower()]
    others = [line for line in lines if "warning:" not in line and not line.endswith(":")]
    return re.sub(r"^.*/ld: ", "", next(iter([*errors, *others, *lines]), ""))
