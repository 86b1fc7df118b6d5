"""Compile C for the host into a shared library, cached by content."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from rlx_edge.errors import ToolError

FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra")


def cache_dir() -> Path:
    """Where compiled code is kept: $RLX_EDGE_CACHE, or rlx-edge in the user's cache folder."""
    named = os.environ.get("RLX_EDGE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlx-edge"


@cache
def host_compiler() -> str:
    """The C compiler: $CC, or the first of cc, gcc, clang. Raises ToolError when there is none."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise ToolError("no C compiler on this machine: install gcc or clang (Debian: apt-get install gcc), or set CC")


def compile_shared(sources: Sequence[Path], includes: Sequence[Path], flags: Sequence[str] = FLAGS) -> Path:
    """Compile C files into one shared library and give its path; the same content is compiled once.

    Headers beside the sources and in `includes` count as content. Raises ToolError with the compiler's first error.
    """
    compiler = host_compiler()
    digest = hashlib.sha256("\0".join([compiler, _version(compiler), *flags]).encode())
    folders = {*includes, *(source.parent for source in sources)}
    headers = [header for folder in sorted(folders) for header in sorted(folder.glob("*.h"))]
    for file in (*headers, *sources):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    library = cache_dir() / "host" / f"{digest.hexdigest()[:32]}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        command = [compiler, *flags, *(f"-I{folder}" for folder in includes), *map(str, sources), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            errors = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
            raise ToolError(f"{compiler} failed: {errors[0] if errors else 'no message'}")
        made.replace(library)  # atomic, so that two processes may compile the same at once
    return library


def host_compiler_version() -> str:
    """The first line of the compiler's --version. Raises ToolError when there is none."""
    return _version(host_compiler()).partition("\n")[0].strip()


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
