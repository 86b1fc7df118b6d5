"""Flashing by OpenOCD, which knows most probes and chips."""

from __future__ import annotations

import re
import shlex

from rlx_edge.device.external import Run, find_program, run_program
from rlx_edge.device.flash_job import Job
from rlx_edge.device.probes import no_chip, no_probe, the_probe
from rlx_edge.errors import ToolError

# Probes whose first transport is not SWD need to be told.
_TRANSPORT = {"jlink": ["transport select swd"]}
_QUIET = ["gdb_port disabled", "tcl_port disabled", "telnet_port disabled"]  # another OpenOCD may be running
_WRONG = "rlx-edge: another chip: "

# Words of OpenOCD 0.12, looked for in this order.
_NO_PROBE = ("unable to find a matching CMSIS-DAP device", "No J-Link device found", "open failed")
_NO_CONFIG = ("Can't find interface/", "Can't find target/")
_WRONG_CHIP = ("UNEXPECTED idcode", "Cannot identify target as", "Failed to read memory at")
_LOCKED = ("device protected", "Device Security Bit Set", "AP lock engaged", "flash memory write protected")
_TOO_LARGE = ("no flash bank found for address", "does not fit into bank", "Flash write discontinued")
_DIFFERS = ("Verify Failed",)
_NO_CHIP = (
    *("unable to connect to the target", "Error connecting DP", "init mode failed", "Could not find MEM-AP"),
    *("timed out while waiting for target halted", "Target not examined"),
)


def flash_by_openocd(job: Job) -> None:
    """Checks the chip, writes the image, reads it back, and restarts the board. Raises ToolError or DeviceError."""
    openocd, serial = find_program("openocd"), the_probe(job)
    job.report("writing through OpenOCD", 0, 0)
    run = run_program([openocd, *arguments(job, serial)], timeout=job.timeout, folder=job.firmware.binary.parent)
    if run.code != 0:
        raise _failure(job, run, serial)


def arguments(job: Job, serial: str | None) -> list[str]:
    """What OpenOCD is told, to be run in the build's folder, whose own path may hold anything."""
    program = f"program {job.firmware.binary.name} 0x{job.start:08x} verify reset exit"
    return [
        *_connection(job, serial),
        *_commands([*_QUIET, "init", "reset halt", _check(job), program]),
    ]


def _connection(job: Job, serial: str | None) -> list[str]:
    """The probe and the chip."""
    steps = [*_TRANSPORT.get(job.facts.probe or "", []), "adapter speed 4000"]  # most target files set their own
    steps += [f"adapter serial {{{serial}}}"] if serial is not None else []
    interface = f"interface/{job.facts.probe}.cfg"
    return ["-f", interface, *_commands(steps), "-f", job.board.chip.tools.openocd or ""]


def _commands(steps: list[str]) -> list[str]:
    return [part for step in steps for part in ("-c", step)]


def _check(job: Job) -> str:
    """Tcl that stops on another chip. mdw is older than all commands that return a value."""
    part = job.part
    read = f"regexp {{: ([0-9a-f]{{8}})}} [capture {{mdw {part.address:#x}}}] all word; set id 0x$word"
    return f'{read}; if {{($id & {part.mask:#x}) != {part.value:#x}}} {{error "{_WRONG}$id"}}'


def _failure(job: Job, run: Run, serial: str | None) -> Exception:
    wrong = re.search(rf"{_WRONG}(0x[0-9a-f]+)", run.output)
    if wrong:
        return job.wrong_chip(int(wrong[1], 16))
    for words, make in (
        (_NO_CONFIG, _too_old),
        (_NO_PROBE, no_probe),
        (_LOCKED, lambda job, said: job.locked(_unlock(job, serial))),
        (_TOO_LARGE, Job.too_large),
        (_DIFFERS, _differs),
        (_NO_CHIP, no_chip),
        (_WRONG_CHIP, Job.wrong_chip),
    ):
        said = run.first(*words)
        if said:
            return make(job, _plain(said))
    said = run.first("Error: ", "** ") or next(reversed(run.lines), f"exit code {run.code}")
    return ToolError(f"{job.board.name}: OpenOCD failed: {_plain(said)}")


def _plain(line: str) -> str:
    """A line without what it is, and where in a script."""
    return re.sub(r"^.*?(Error|Warn) ?: ", "", line)


def _too_old(job: Job, said: str) -> Exception:
    return ToolError(f"{job.board.name}: this OpenOCD does not know the chip or the probe ({said}): a newer one may")


def _differs(job: Job, said: str) -> Exception:
    return ToolError(f"{job.board.name}: what OpenOCD reads back differs from the image ({said}); flash it again")


def _unlock(job: Job, serial: str | None) -> str:
    """A command line. It names the probe, for on another board it would erase that one."""
    tools = job.board.chip.tools
    if tools.unlock is None:
        return "the chip's manual says how"
    return shlex.join(["openocd", *_connection(job, serial), "-c", f"{tools.unlock}; shutdown"])
