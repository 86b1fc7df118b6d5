"""Writing an image to a board through a gdb server: an emulator's, or one that belongs to a debug probe."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rlx_edge.device.chips import IdRegister
from rlx_edge.device.external import Run, find_gdb, run_program
from rlx_edge.device.flash_job import Job
from rlx_edge.errors import DeviceError, ToolError

CONNECT_SECONDS = 5  # gdb goes on trying while a server refuses
# Servers have no common command for a restart: QEMU knows the first, others the second, and only complain of the other.
RESTART = ("monitor system_reset", "monitor reset")
_WRONG_CHIP = "wrong chip"


def flash_by_gdb(job: Job) -> None:
    """Flashes over the gdb server that the user named."""
    if job.gdb is None:
        raise DeviceError(f"{job.board.name}: name the gdb server that reaches it (--gdb HOST:PORT){_emulator(job)}")
    job.report("writing through gdb", 0, 0)
    flash_gdb(job.firmware.elf, job.gdb, timeout=job.timeout, chip=job.board.chip.id)


def _emulator(job: Job) -> str:
    """How to start a board that waits to be flashed."""
    emulation = job.board.emulation
    if emulation is None:
        return ""
    command = ["qemu-system-arm -M", emulation.machine, *emulation.args]
    return f"; {' '.join(command)} -S -display none -monitor none -serial pty -gdb tcp::1234 starts an emulator"


def flash_gdb(elf: Path, target: str, *, timeout: float = 60.0, chip: IdRegister | None = None) -> None:
    """Loads `elf` over the gdb server at `target` (host:port, or the path of a socket), verifies it, and restarts.

    The serial port may stay open meanwhile. Raises `ToolError` when the server does not answer within `timeout`
    seconds, when memory then differs from the file, and, before anything is written, for another core than `chip` has.
    """
    failed, gdb = f"flashing {elf.name} over {target} failed", find_gdb()
    if not elf.is_file():
        raise ToolError(f"{failed}: {elf}: No such file")
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        script = Path(scratch) / "flash.gdb"
        script.write_text(_script(target, chip), encoding="utf-8")
        restart = [part for command in (*RESTART, "detach") for part in ("-ex", command)]
        run = run_program([gdb, "-nx", "-batch", "-x", str(script), *restart, str(elf)], timeout=timeout)
    wrong = run.first(_WRONG_CHIP)
    if wrong:
        raise ToolError(f"{failed}: {wrong}; nothing was written")
    if "Start address" not in run.output:
        raise ToolError(f"{failed}: {_reason(run)}")
    differing = run.first("MIS-MATCHED")
    if differing:
        raise ToolError(f"{failed}: {differing}")


def _script(target: str, chip: IdRegister | None) -> str:
    """gdb ends a script at the first command that fails."""
    lines = ["set confirm off", f"set tcp connect-timeout {CONNECT_SECONDS}", f"target remote {target}"]
    if chip is not None:
        lines += [
            f"set $id = *(unsigned int *) {chip.address:#x}",
            f"if ($id & {chip.mask:#x}) != {chip.value:#x}",
            f'  printf "{_WRONG_CHIP}: the word at {chip.address:#010x} is 0x%08x, not {chip.value:#010x}\\n", $id',
            "  quit",
            "end",
        ]
    return "\n".join([*lines, "load", "compare-sections", ""])


def _reason(run: Run) -> str:
    lines = [line for line in run.lines if "warning" not in line.lower()]
    said = next(iter(lines), "gdb said nothing")
    return re.sub(r"^\S*flash\.gdb:\d+: (Error in sourced command file:)?\s*", "", said) or next(iter(lines[1:]), said)
