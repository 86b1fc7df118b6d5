"""Flashing by pyocd, which knows CMSIS-DAP probes, ST-LINKs and J-Links, and can tell which are connected."""

from __future__ import annotations

import json
import re

from rlx_edge.device.external import Run, find_program, run_program
from rlx_edge.device.flash_job import Job
from rlx_edge.device.probes import no_chip, no_probe, two_probes
from rlx_edge.device.usb import same_serial, usb_devices
from rlx_edge.errors import ToolError

LIST_SECONDS = 30.0
# Left alone, pyocd erases a locked chip without a word.
_KEEP = ("-O", "auto_unlock=false")

# Words of pyocd 0.46, looked for in this order.
_NO_PROBE = ("No connected debug probe", "No available debug probes")
_UNKNOWN = ("not recognized",)
_LOCKED = ("APPROTECT enabled", "is locked", "read protected")
_TOO_LARGE = ("no memory region defined for address", "outside of memory region", "is not contained within region")
_WRONG_CHIP = ("Memory transfer fault",)  # nothing lies where this chip has its name
_NO_CHIP = ("No ACK", "Unable to connect", "No cores were discovered", "SWD/JTAG", "SWD fault")


def flash_by_pyocd(job: Job) -> None:
    """Checks the chip, writes the image, and restarts the board. Raises ToolError or DeviceError."""
    pyocd, target = find_program("pyocd"), job.board.chip.tools.pyocd or ""
    unique_id = _the_probe(job, pyocd)
    common = ["--no-wait", "-t", target, "-u", unique_id, *_KEEP]
    job.report("asking the chip, through pyocd", 0, 0)
    asked = run_program([pyocd, "commander", *common, "-c", f"read32 0x{job.part.address:08x}"], timeout=job.timeout)
    found = re.search(rf"{job.part.address:08x}:\s+([0-9a-f]{{8}})\b", asked.output, re.IGNORECASE)
    if asked.code != 0 or found is None or asked.first(*_LOCKED):
        raise _failure(job, asked, unique_id, written=False)
    if not job.is_part(int(found[1], 16)):
        raise job.wrong_chip(int(found[1], 16))
    job.report("writing through pyocd", 0, 0)
    image = ["--format", "bin", "-a", f"0x{job.start:08x}", str(job.firmware.binary)]
    run = run_program([pyocd, "flash", *common, *image], timeout=job.timeout)
    if run.code != 0:
        raise _failure(job, run, unique_id, written=True)


def _the_probe(job: Job, pyocd: str) -> str:
    """The unique id of the one probe that is meant, from pyocd's own list."""
    run = run_program([pyocd, "json", "--probes"], timeout=LIST_SECONDS)
    try:
        probes = json.JSONDecoder().raw_decode(run.output[run.output.index("{") :])[0]["boards"]  # between other lines
        names = {str(probe["unique_id"]): str(probe["info"]) for probe in probes}
    except (ValueError, KeyError, TypeError) as error:
        said = next(reversed(run.lines), f"exit code {run.code}")
        raise ToolError(f"{job.board.name}: pyocd does not list its probes: {said}") from error
    ids = {*job.facts.usb, *job.board.usb}
    on_board = [device.serial for device in usb_devices() if device.id in ids]
    if job.probe is not None:
        found = [name for name in names if same_serial(name, job.probe)]
    else:
        found = [name for name in names if any(same_serial(name, serial) for serial in on_board)] or list(names)
    if not found:
        raise no_probe(job, f"pyocd lists {', '.join(names) or 'none'}")
    if len(found) > 1:
        raise two_probes(job, [f"{names[name]} (serial {name})" for name in found])
    return found[0]


def _failure(job: Job, run: Run, unique_id: str, *, written: bool) -> Exception:
    """`written`: the image was being written, so that what goes wrong is no sign of another chip."""
    target = job.board.chip.tools.pyocd
    if run.first(*_LOCKED):
        return job.locked(f"pyocd erase --mass -t {target} -u {unique_id}")
    for words, make in (
        (_NO_PROBE, no_probe),
        (_UNKNOWN, _too_old),
        (_TOO_LARGE, Job.too_large),
        (() if written else _WRONG_CHIP, Job.wrong_chip),
        (_NO_CHIP, no_chip),
    ):
        said = run.first(*words)
        if said:
            return make(job, _plain(said))
    said = run.first(" C ", " E ") or next(reversed(run.lines), f"exit code {run.code}")
    return ToolError(f"{job.board.name}: pyocd failed: {_plain(said)}")


def _too_old(job: Job, said: str) -> Exception:
    return ToolError(f"{job.board.name}: this pyocd does not know the chip ({said}): pip install --upgrade pyocd")


def _plain(line: str) -> str:
    """A line of pyocd's log without its time, level and module."""
    return re.sub(r"^\d+ [A-Z] |\s*\[\w+\]$", "", line)
