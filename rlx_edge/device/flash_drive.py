"""Flashing by copying a file to the drive that a boot ROM (UF2) or a debug probe (DAPLink and its like) offers."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rlx_edge.device.drives import device_of, find_drive, read_text, wait_for, write_file
from rlx_edge.device.external import find_program, run_program
from rlx_edge.device.flash_facts import Flashing
from rlx_edge.device.flash_job import Job
from rlx_edge.device.uf2 import uf2_file
from rlx_edge.device.usb import same_serial
from rlx_edge.errors import DeviceError, ToolError

UF2_INFO, DAPLINK_INFO, FAILURE = "INFO_UF2.TXT", "DETAILS.TXT", "FAIL.TXT"
PROBE_FILES = (DAPLINK_INFO, "MBED.HTM", "MBED.HTML", "Segger.html")


def flash_by_uf2(job: Job) -> None:
    """Copies a UF2 file to the boot ROM's drive, which vanishes when the ROM has taken it and started it."""
    tools = job.board.chip.tools
    how = "hold its BOOTSEL button while you plug the board in, or name the drive (--drive)"
    drive = find_drive(job, job.facts.uf2, lambda path: (path / UF2_INFO).is_file(), how)
    board_id = _value(read_text(drive / UF2_INFO), "Board-ID")
    if board_id != tools.uf2_board_id:
        raise job.wrong_chip(f"{drive / UF2_INFO} says Board-ID: {board_id or 'nothing'}")
    assert tools.uf2_family is not None  # the board file would have been refused
    data = uf2_file(job.firmware.binary.read_bytes(), job.start, tools.uf2_family)
    device = device_of(drive)
    write_file(job, drive, "firmware.uf2", data)

    def gone() -> bool:
        return not (drive / UF2_INFO).exists() or (device is not None and not device.exists())

    if not wait_for(job, "waiting for the board to restart", gone):
        raise DeviceError(
            f"{drive}: the board has not restarted within {job.timeout:g} s, so it has not taken the image: plug it in "
            "again, with BOOTSEL held, and repeat"
        )


def flash_by_daplink(job: Job) -> None:
    """Copies the image to the probe's drive, which goes and comes back: with FAIL.TXT if the chip was not written."""
    how = "plug the board in, or name the drive (--drive)"
    drive = find_drive(job, job.facts.daplink, lambda path: _is_meant(job, path), how)
    if not may_be(job.facts, drive):
        raise job.wrong_chip(f"{drive / DAPLINK_INFO} says Unique ID: {_unique_id(drive)}")
    if not any((drive / name).exists() for name in PROBE_FILES):
        raise DeviceError(f"{drive}: is no drive of a debug probe: it holds none of {', '.join(PROBE_FILES)}")
    copy = write_file(job, drive, *_image(job))
    if not wait_for(job, "waiting for the drive to come back", lambda: _is_back(drive, copy)):
        raise DeviceError(
            f"{drive}: the drive has not come back within {job.timeout:g} s: mount it again, and see whether it holds "
            f"{FAILURE}"
        )
    said = read_text(drive / FAILURE)
    if (drive / FAILURE).exists():
        raise DeviceError(f"{drive}: the probe did not write the image: {_failure(said)}")


def _image(job: Job) -> tuple[str, bytes]:
    """Name and content of the file to copy. A .bin goes to the start of flash; a .hex says where it goes."""
    if job.start == min(region.start for region in job.board.chip.regions.values() if region.kind == "flash"):
        return "firmware.bin", job.firmware.binary.read_bytes()
    objcopy = find_program("arm-none-eabi-objcopy")
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        file = Path(scratch) / "firmware.hex"
        run = run_program([objcopy, "-O", "ihex", str(job.firmware.elf), str(file)], timeout=job.timeout)
        if run.code != 0:
            raise ToolError(
                f"{job.firmware.elf}: cannot be made a .hex: {next(iter(run.lines), run.code)}; build it again"
            )
        return file.name, file.read_bytes()


def _is_meant(job: Job, drive: Path) -> bool:
    """Of boards with the same label, those of another kind are not meant, nor those with another serial number."""
    return same_serial(_unique_id(drive), job.probe) if job.probe is not None else may_be(job.facts, drive)


def may_be(facts: Flashing, drive: Path) -> bool:
    """Whether a drive may belong to such a board: all but those whose unique id says that they do not."""
    unique_id = _unique_id(drive)
    return not unique_id or not facts.drive_ids or unique_id.startswith(facts.drive_ids)


def _unique_id(drive: Path) -> str:
    return _value(read_text(drive / DAPLINK_INFO), "Unique ID")


def _is_back(drive: Path, copy: Path) -> bool:
    """The copy is never seen on the drive that comes back. One that cannot be read is on its way."""
    try:
        names = {path.name for path in drive.iterdir()}
    except OSError:
        return False
    return bool(names) and copy.name not in names


def _value(text: str, key: str) -> str:
    found = re.search(rf"^{key}:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _failure(text: str) -> str:
    """The file's first line: `error: ...` as DAPLink writes it, or plain words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^error:\s*", "", lines[0]) if lines else f"{FAILURE} says nothing more"
