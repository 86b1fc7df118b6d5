"""Opening a serial port, and saying in one line why it cannot be opened."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import serial
from serial.tools import list_ports

from rlx_edge.errors import DeviceError

# Reads return as soon as a byte is there; this bounds how long one waits without any.
_READ_TIMEOUT = 0.02
_WRITE_TIMEOUT = 5.0


def open_port(port: str, baud: int, *, dtr: bool | None = None, rts: bool | None = None) -> serial.SerialBase:
    """Opens a device path, or any URL that pyserial knows (`socket://host:port`), for this process alone.

    `dtr`, `rts`: the state of these lines; None: as pyserial and the system leave them, which is on. Some boards reset
    when DTR comes on, some say nothing without it. What has no such lines (a pty, a socket) is opened all the same.
    Raises DeviceError when the port is missing, may not be opened, or is in use.
    """
    is_path = "://" not in port
    if is_path:
        _refuse_missing(port)
        _refuse_busy(port, including_self=False)
    try:
        opened = serial.serial_for_url(
            port,
            do_not_open=True,
            baudrate=baud,
            timeout=_READ_TIMEOUT,
            write_timeout=None if port.startswith("rfc2217:") else _WRITE_TIMEOUT,  # which pyserial lacks there
            exclusive=True if is_path else None,
        )
        for line, state in (("dtr", dtr), ("rts", rts)):
            if state is not None:
                setattr(opened, line, state)  # before it is open: pyserial sets it as it opens, where that is possible
        opened.open()
    except (OSError, ValueError) as error:  # SerialException is an OSError
        raise _explain(port, baud, error) from error
    return opened


def available_ports() -> tuple[str, ...]:
    """The serial ports of this computer."""
    return tuple(sorted(info.device for info in list_ports.comports()))


def holders(port: str) -> tuple[str, ...]:
    """Who has a port open, as "name (pid 123)"; what /proc does not show us is left out."""
    try:
        wanted = Path(port).stat().st_rdev
    except OSError:
        return ()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if _has_open(process, wanted):
            found.append(f"{_process_name(process)} (pid {process.name})")
    return tuple(sorted(found))


def _has_open(process: Path, device: int) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:  # another user's process, or one that has just ended
        return False
    return any(_is_device(descriptor, device) for descriptor in descriptors)


def _is_device(descriptor: Path, device: int) -> bool:
    try:
        status = descriptor.stat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == device


def _process_name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"


def _refuse_missing(port: str) -> None:
    if Path(port).exists() or os.name == "nt":
        return
    there = available_ports()
    what = (
        f"these exist: {', '.join(there)}"
        if there
        else "this computer has no serial port now: is the board plugged in?"
    )
    raise DeviceError(f"{port}: there is no such port; {what}")


def _refuse_busy(port: str, *, including_self: bool) -> None:
    own = f"(pid {os.getpid()})"
    others = [holder for holder in holders(port) if including_self or not holder.endswith(own)]
    if others and _is_terminal(port):
        raise _in_use(port, others)


def _in_use(port: str, who: Sequence[str]) -> DeviceError:
    kill = f": kill {' '.join(re.findall(r'pid ([0-9]+)', ' '.join(who)))}" if who else ""
    return DeviceError(f"{port}: the port is in use by {', '.join(who) or 'another program'}; close that first{kill}")


def _is_terminal(port: str) -> bool:
    """False for files, /dev/null and the like. Opens the port, so it may reset a board that nobody has open."""
    if os.name == "nt":
        return True
    try:
        descriptor = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:  # opening it for good will tell
        return True
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def _explain(port: str, baud: int, error: OSError | ValueError) -> DeviceError:
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return DeviceError(f"{port}: no permission to open the port; {_permission_advice(port)}")
    if number in (errno.EAGAIN, errno.EBUSY):
        return _in_use(port, holders(port))
    if isinstance(error, ValueError) and "aud" in str(error):
        return DeviceError(f"{port}: the port cannot run at {baud} baud")
    reason = os.strerror(number) if number else str(error)
    if "://" not in port and not _is_terminal(port):
        reason = "it is a file or device of another kind"
    return DeviceError(f"{port}: cannot be opened as a serial port ({reason})")


def _permission_advice(port: str) -> str:
    try:
        group = Path(port).group()
    except (OSError, KeyError, NotImplementedError):  # a group without a name, a system without groups
        group = "dialout"
    if group == "root":
        return "it belongs to root"
    return f"join the group that may: sudo usermod -aG {group} $USER, then log in again"
