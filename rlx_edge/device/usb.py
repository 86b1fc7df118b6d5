"""What is plugged into this computer: serial ports with their USB ids, and debug probes that have no serial port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serial.tools import list_ports

from rlx_edge.device.boards import Board
from rlx_edge.device.ports import available_ports
from rlx_edge.errors import DeviceError

SYSFS = Path("/sys/bus/usb/devices")


@dataclass(frozen=True)
class UsbDevice:
    """`id` is vendor:product as board files write it; `serial` tells two of a kind apart ("" where there is none);
    `port` is its serial port, "" for a device without one."""

    id: str
    serial: str
    product: str
    port: str

    def __str__(self) -> str:
        name = self.port or self.product or self.id
        return f"{name} (serial {self.serial})" if self.serial else name


def usb_devices() -> tuple[UsbDevice, ...]:
    """All USB devices with a serial port, on every system; on Linux the other ones too."""
    ports = [
        UsbDevice(f"{info.vid:04x}:{info.pid:04x}", info.serial_number or "", info.product or "", info.device)
        for info in list_ports.comports()
        if info.vid is not None
    ]
    known = {(device.id, device.serial) for device in ports}
    others = [device for device in _sysfs_devices(SYSFS) if (device.id, device.serial) not in known]
    return tuple(sorted([*ports, *others], key=lambda device: (device.id, device.port, device.serial)))


def connected_ports(board: Board, serial: str | None = None) -> tuple[UsbDevice, ...]:
    """Serial ports that have one of the board's USB ids, and this serial number where one is given."""
    return tuple(
        device
        for device in usb_devices()
        if device.port and device.id in board.usb and (serial is None or same_serial(device.serial, serial))
    )


def find_port(board: Board, serial: str | None = None, *, otherwise: str = "") -> str:
    """The serial port of the one connected board of this kind, with this serial number where one is given.

    Raises DeviceError when none is there, when two are, and for a board that is not told by its USB port. `otherwise`
    says what else the user may do.
    """
    if not board.usb or board.wiring is not None:
        where = f": {board.wiring}" if board.wiring is not None else ""
        raise DeviceError(f"{board.name}: name the serial port it is on (--port){otherwise}{where}")
    found = connected_ports(board, serial)
    if not found:
        here = ", ".join(available_ports()) or "none"
        which = f" and serial {serial}" if serial is not None else ""
        raise DeviceError(
            f"{board.name}: the board is not found: no serial port has the USB id {' or '.join(board.usb)}{which} "
            f"(ports here: {here}); plug it in, or name its port (--port){otherwise}"
        )
    if len(found) > 1:
        raise DeviceError(
            f"{board.name}: {len(found)} boards match: {', '.join(map(str, found))}; name the port of one (--port)"
        )
    return found[0].port


def same_serial(found: str, wanted: str) -> bool:
    """Serial numbers are hexadecimal as a rule, and written in either case."""
    return found.lower() == wanted.lower()


def _sysfs_devices(folder: Path) -> Sequence[UsbDevice]:
    """Linux lists USB devices in a folder each; interfaces and hubs' ports, which have no idVendor, are none."""

    def read(file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    return [
        UsbDevice(f"{read(entry / 'idVendor')}:{read(entry / 'idProduct')}", read(entry / "serial"), product, "")
        for entry in sorted(folder.glob("*"))
        if read(entry / "idVendor") and (product := read(entry / "product")) is not None
    ]
