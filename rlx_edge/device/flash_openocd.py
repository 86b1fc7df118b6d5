"""Flashing by OpenOCD, which knows most probes and chips."""

from __future__ import annotations

from rlx_edge.device.external import Run, find_program, run_program
from rlx_edge.device.flash_job import Job
from rlx_edge.device.probes import no_probe, the_probe
from rlx_edge.errors import DeviceError, ToolError

# Probes whose first transport is not SWD need to be told.
_TRANSPORT = {"jlink": ["transport select swd"]}
_QUIET = ["gdb_port disabled", "tcl_port disabled", "telnet_port disabled"]  # another OpenOCD may be running
_WRONG = "rlx-edge: another chip: "

# Words of OpenOCD 0.12, looked for in this order.
_NO_PROBE = (
    "unable to find a matching CMSIS-DAP device",
    "No J-Link device found",
    "open failed",
    "LIBUSB_ERROR_ACCESS",
)
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
        raise _failure(job, run)


def arguments(job: Job, serial: str | None) -> list[str]:
    """What OpenOCD is told, to be run in the build's folder, whose own path may hold anything."""
    steps = [*_TRANSPORT.get(job.facts.probe or "", []), "adapter speed 4000"]  # most target files set their own
    steps += [f"adapter serial {serial}"] if serial is not None else []
    program = f"program {job.firmware.binary.name} 0x{job.start:08x} verify reset exit"
    return [
        *("-f", f"interface/{job.facts.probe}.cfg"),
        *_commands(steps),
        *("-f", job.board.chip.tools.openocd or ""),
        *_commands([*_QUIET, "init", "reset halt", _check(job), program]),
    ]


def _commands(steps: list[str]) -> list[str]:
    return [part for step in steps for part in ("-c", step)]


def _check(job: Job) -> str:
    """Tcl that stops on another chip. mdw is older than all commands that return a value."""
    part = job.part
    read = f"regexp {{: ([0-9a-f]{{8}})}} [capture {{mdw {part.address:#x}}}] all word; set id 0x$word"
    return f'{read}; if {{($id & {part.mask:#x}) != {part.value:#x}}} {{error "{_WRONG}$id"}}'


def _failure(job: Job, run: Run) -> Exception:
    wrong = run.first(_WRONG)
    if wrong:
        return job.wrong_chip(int(wrong.partition(_WRONG)[2].split()[0], 16))
    for words, make in (
        (_NO_CONFIG, _too_old),
        (_NO_PROBE, no_probe),
        (_LOCKED, lambda job, said: job.locked(_unlock(job))),
        (_TOO_LARGE, Job.too_large),
        (_DIFFERS, _differs),
        (_NO_CHIP, _no_chip),
        (_WRONG_CHIP, Job.wrong_chip),
    ):
        said = run.first(*words)
        if said:
            return make(job, said.removeprefix("Error: ").removeprefix("Warn : "))
    said = run.first("Error: ", "** ") or next(reversed(run.lines), f"exit code {run.code}")
    return ToolError(f"{job.board.name}: OpenOCD failed: {said}")


def _too_old(job: Job, said: str) -> Exception:
    return ToolError(f"{job.board.name}: this OpenOCD does not know the chip or the probe ({said}): a newer one may")


def _differs(job: Job, said: str) -> Exception:
    return ToolError(f"{job.board.name}: what OpenOCD reads back differs from the image ({said}); flash it again")


def _no_chip(job: Job, said: str) -> Exception:
    return DeviceError(
        f"{job.board.name}: the probe is there, but no chip answers it ({said}): is the board powered, and are its SWD "
        "wires connected?"
    )


def _unlock(job: Job) -> str:
    tools = job.board.chip.tools
    if tools.unlock is None:
        return "the chip's manual says how"
    before = "".join(f"-c '{step}' " for step in _TRANSPORT.get(job.facts.probe or "", []))
    return f"openocd -f interface/{job.facts.probe}.cfg {before}-f {tools.openocd} -c '{tools.unlock}; shutdown'"
