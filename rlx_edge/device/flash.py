"""Writing an image to a board through a gdb server: an emulator's, or one that belongs to a debug probe."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from rlx_edge.errors import ToolError

DEBUGGERS = ("gdb-multiarch", "arm-none-eabi-gdb")


def find_gdb() -> str:
    """A gdb that knows Arm. Raises `ToolError`, saying what to install, when there is none."""
    for name in DEBUGGERS:
        command = shutil.which(name)
        if command is not None:
            return command
    raise ToolError(
        f"{DEBUGGERS[0]} is not there: install it (Debian: apt-get install --no-install-recommends gdb-multiarch)"
    )


def flash_gdb(elf: Path, target: str, *, timeout: float = 60.0) -> None:
    """Loads `elf` over the gdb server at `target` (host:port, or the path of a socket), verifies it, and restarts.

    The serial port may stay open meanwhile. Raises `ToolError` when the server does not answer within `timeout`
    seconds, or when memory then differs from the file.
    """
    steps = [
        "set confirm off",
        f"target remote {target}",
        "load",
        "compare-sections",
        "monitor system_reset",
        "detach",
    ]
    command = [find_gdb(), "-nx", "-batch", *(part for step in steps for part in ("-ex", step)), str(elf)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"flashing {elf.name} over {target} failed: {error}") from error
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    if "Start address" not in done.stdout:
        said = next((line for line in lines if "warning" not in line), "gdb said nothing")
        raise ToolError(f"flashing {elf.name} over {target} failed: {said}")
    differing = [line for line in lines if "MIS-MATCHED" in line]
    if differing:
        raise ToolError(f"flashing {elf.name} over {target} failed: {differing[0]}")
