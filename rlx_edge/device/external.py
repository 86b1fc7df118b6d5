"""Programs of others that write to boards: where they are, how to get them, and how long they may take."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.errors import ToolError

DEBUGGERS = ("gdb-multiarch", "arm-none-eabi-gdb")
HOW_TO_GET = {
    "openocd": "Debian: apt-get install --no-install-recommends openocd",
    "pyocd": "pip install pyocd",
    "gdb-multiarch": "Debian: apt-get install --no-install-recommends gdb-multiarch",
    "arm-none-eabi-gcc": "Debian: apt-get install --no-install-recommends gcc-arm-none-eabi",
    "arm-none-eabi-objcopy": "Debian: apt-get install --no-install-recommends binutils-arm-none-eabi",
    "qemu-system-arm": "Debian: apt-get install --no-install-recommends qemu-system-arm",
}


@dataclass(frozen=True)
class Run:
    """How a program ended, and all that it printed, on both of its streams."""

    code: int
    output: str

    def first(self, *words: str) -> str:
        """The first line that holds one of the words; empty when none does."""
        return next((line for line in self.lines if any(word in line for word in words)), "")

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.output.splitlines() if line.strip()]


def how_to_get(name: str) -> str:
    """In brackets; empty for a program of the user's own choice."""
    return f" ({HOW_TO_GET[name]})" if name in HOW_TO_GET else ""


def find_program(name: str) -> str:
    """The path of a program. Raises `ToolError`, saying how to get it, when it is not there."""
    command = shutil.which(name)
    if command is None:
        raise ToolError(f"{name} is not there: install it{how_to_get(name)}")
    return command


def find_gdb() -> str:
    """A gdb that knows Arm. Raises `ToolError`, saying what to install, when there is none."""
    found = filter(None, map(shutil.which, DEBUGGERS))
    return next(found, None) or find_program(DEBUGGERS[0])


def run_program(command: Sequence[str], *, timeout: float, folder: Path | None = None) -> Run:
    """Runs a program, in `folder`, without input; it and what it started are ended when `timeout` seconds are over.

    Raises `ToolError` for a program that cannot be started, and for one that was ended.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # messages are looked through
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: does not run: {error.strerror}") from error
    try:
        printed, _ = process.communicate(timeout=timeout)
    except BaseException as error:  # also Ctrl-C: what holds the probe must not outlive this
        _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise ToolError(
            f"{name} was ended after {timeout:g} s without a result: is the board powered, and is its chip awake? "
            "(--timeout allows more)"
        ) from error
    return Run(process.returncode, printed.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, where the system knows groups of processes."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
