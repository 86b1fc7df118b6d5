"""Debug probes on USB: which of them are meant, so that no other board is written to than the one that was."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rlx_edge.device.flash_job import Job
from rlx_edge.device.usb import UsbDevice, same_serial, usb_devices
from rlx_edge.errors import DeviceError

ST_LINKS = frozenset(
    f"0483:{product}" for product in ["3744", "3748", "374b", "374d", "374e", "374f", "3752", "3753", "3754"]
)
# Which devices OpenOCD's interface files would take, the first of them as a rule.
KINDS: Mapping[str, Callable[[UsbDevice], bool]] = {
    "stlink": lambda device: device.id in ST_LINKS,
    "jlink": lambda device: device.id.startswith("1366:"),
    "cmsis-dap": lambda device: "CMSIS-DAP" in device.product or device.id == "0d28:0204",
}
NAMES = {"stlink": "an ST-LINK", "jlink": "a J-Link", "cmsis-dap": "a CMSIS-DAP probe"}
PLAIN = re.compile(r"[0-9A-Za-z]+")
"""Serial numbers of old ST-LINKs are no text, and no command could name them."""


def the_probe(job: Job) -> str | None:
    """The serial number of the probe to use: the user's, or of the only one that the board can be on; None where it
    cannot be told, and the tool may choose. Raises DeviceError when there are two, listing them.
    """
    if job.probe is not None:
        return job.probe
    candidates = [device for device in usb_devices() if KINDS[job.facts.probe or "cmsis-dap"](device)]
    ids = {*job.facts.usb, *job.board.usb}
    found = _one_a_probe([device for device in candidates if device.id in ids] or candidates)
    if len(found) > 1:
        raise two_probes(job, [str(device) for device in found])
    serial = found[0].serial if found else ""
    return serial if PLAIN.fullmatch(serial) else None


def two_probes(job: Job, found: Sequence[str]) -> DeviceError:
    return DeviceError(
        f"{job.board.name}: {len(found)} probes match: {', '.join(found)}; pick one by its serial number (--probe)"
    )


def no_probe(job: Job, said: str) -> DeviceError:
    kind = NAMES[job.facts.probe or "cmsis-dap"]
    which = f" with serial number {job.probe}" if job.probe is not None else ""
    return DeviceError(
        f"{job.board.name}: {kind}{which} is not found ({said}): is the board plugged in, and may you open its USB "
        "device (udev rules)?"
    )


def no_chip(job: Job, said: str) -> DeviceError:
    return DeviceError(
        f"{job.board.name}: the probe is there, but no chip answers it ({said}): is the board powered, and are its SWD "
        "wires connected?"
    )


def _one_a_probe(devices: Sequence[UsbDevice]) -> list[UsbDevice]:
    """Some probes have several serial ports."""
    found: list[UsbDevice] = []
    for device in devices:
        same = [other for other in found if device.serial and same_serial(other.serial, device.serial)]
        found += [] if same else [device]
    return found
