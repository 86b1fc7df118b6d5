"""Boards that show themselves as USB drives: finding the one that is meant, writing a file, and waiting."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rlx_edge.device.flash_job import Job
from rlx_edge.errors import DeviceError

DRIVES_VARIABLE = "RLX_EDGE_DRIVES"
# Where systems mount removable drives, under their labels.
PLACES = ("/media/*", "/media/*/*", "/run/media/*/*", "/Volumes/*", "/mnt/*")
BY_LABEL = Path("/dev/disk/by-label")
MOUNTS = Path("/proc/mounts")
CHUNK_BYTES = 16 * 1024
POLL_SECONDS = 0.1


def mounted(labels: Sequence[str]) -> list[Path]:
    """Mounted drives with one of these labels; systems number further ones of the same label (RPI-RP21)."""
    chosen = os.environ.get(DRIVES_VARIABLE)
    patterns = [f"{folder}/*" for folder in chosen.split(os.pathsep)] if chosen else PLACES
    found = {path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")) if _is_folder(path)}
    named = re.compile("|".join(rf"{re.escape(label)}[ _]?\d?" for label in labels), re.IGNORECASE)
    return sorted(path for path in found if named.fullmatch(path.name))


def _is_folder(path: Path) -> bool:
    """False for what cannot be looked at, as a drive that was pulled out."""
    try:
        return path.is_dir()
    except OSError:
        return False


def find_drive(job: Job, labels: Sequence[str], accept: Callable[[Path], bool], how: str) -> Path:
    """The drive that the user named, or the only one that has one of the labels and is accepted.

    `how` says how to make the board show its drive. Raises DeviceError when there is none, or more than one.
    """
    if job.drive is not None:
        if not job.drive.is_dir():
            raise DeviceError(f"{job.drive}: there is no such drive")
        return job.drive
    found = [path for path in mounted(labels) if accept(path)]
    if len(found) > 1:
        raise DeviceError(
            f"{job.board.name}: {len(found)} drives match: {', '.join(map(str, found))}; name one of them (--drive)"
        )
    if not found:
        which = f" with serial number {job.probe}" if job.probe is not None else ""
        raise DeviceError(f"{job.board.name}: no drive {' or '.join(labels)}{which} is mounted: {_hint(labels) or how}")
    return found[0]


def _hint(labels: Sequence[str]) -> str:
    for label in labels:
        if (BY_LABEL / label).exists():
            return f"it is connected; mount it (udisksctl mount -b {BY_LABEL / label}), or name its folder (--drive)"
    return ""


def write_file(job: Job, drive: Path, name: str, data: bytes) -> Path:
    """Copies data to the drive, and waits until they are on it. Raises DeviceError when they cannot be written."""
    target = drive / name
    try:
        with target.open("wb", buffering=0) as file:
            for done in range(0, len(data), CHUNK_BYTES):
                job.report(f"copying to {drive.name}", done, len(data))
                file.write(data[done : done + CHUNK_BYTES])
            with contextlib.suppress(OSError):  # a board may be gone with the last byte; what follows tells
                os.fsync(file.fileno())
    except OSError as error:
        raise DeviceError(f"{drive}: the image cannot be written: {error.strerror}; plug the board in again") from error
    job.report(f"copying to {drive.name}", len(data), len(data))
    return target


def device_of(drive: Path) -> Path | None:
    """The device that is mounted there, where the system says: one that was pulled out may leave its files in sight."""
    for line in read_text(MOUNTS).splitlines():
        device, place = line.split(" ")[:2]
        if place.replace("\\040", " ") == str(drive) and device.startswith("/dev/"):
            return Path(device)
    return None


def wait_for(job: Job, stage: str, happened: Callable[[], bool]) -> bool:
    """Whether it happened within the job's timeout."""
    deadline = time.monotonic() + job.timeout
    job.report(stage, 0, 0)
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def read_text(file: Path) -> str:
    """What a small file on a drive says; empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
