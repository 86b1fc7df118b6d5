"""How a board can be flashed, as the table [flash] of its file says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx_edge.device.chips import Tools
from rlx_edge.device.tables import Table
from rlx_edge.errors import DeviceError

METHODS = ("openocd", "pyocd", "uf2", "daplink", "gdb")
PROBES = ("cmsis-dap", "jlink", "stlink")
USB_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


@dataclass(frozen=True)
class Flashing:
    """How to flash a board.

    `method` is used where nobody chooses another one of `methods`; gdb is always among these. `probe` names a file of
    OpenOCD's interface/. `uf2` and `daplink` are the labels of drives that take an image. `drive_ids`: how the unique
    id on the drive may begin, where it tells the board. `usb`: ids of the probe, or of the boot ROM, that are not those
    of the serial port.
    """

    method: str
    methods: tuple[str, ...]
    probe: str | None
    uf2: tuple[str, ...]
    daplink: tuple[str, ...]
    drive_ids: tuple[str, ...]
    usb: tuple[str, ...]

    def labels(self, method: str) -> tuple[str, ...]:
        """Labels of the drives that the method writes to."""
        return self.uf2 if method == "uf2" else self.daplink


def read_flashing(table: Table, tools: Tools) -> Flashing:
    """Reads the table [flash] of a board whose chip is known to `tools` so. Raises `DeviceError` for a bad one."""

    def texts(key: str) -> tuple[str, ...]:
        return table.texts(key) if table.has(key) else ()

    method = table.text("method", METHODS)
    probe = table.text("probe", PROBES) if table.has("probe") else None
    uf2, daplink = texts("uf2"), texts("daplink")
    needs: dict[str, dict[str, object]] = {
        "openocd": {"probe": probe, "openocd in the chip's [tools]": tools.openocd},
        "pyocd": {"pyocd in the chip's [tools]": tools.pyocd},
        "uf2": {"uf2 (labels of its drive)": uf2, "uf2_family in the chip's [tools]": tools.uf2_family},
        "daplink": {"daplink (labels of its drive)": daplink},
        "gdb": {},
    }
    missing = [what for what, found in needs[method].items() if not found]
    if missing:
        raise DeviceError(f"{table.where}: method {method} needs {' and '.join(missing)}")
    flashing = Flashing(
        method=method,
        methods=tuple(name for name, facts in needs.items() if all(facts.values())),
        probe=probe,
        uf2=uf2,
        daplink=daplink,
        drive_ids=texts("drive_ids"),
        usb=texts("usb"),
    )
    for usb in flashing.usb:
        if USB_ID.fullmatch(usb) is None:
            raise DeviceError(f"{table.where}: usb must hold ids such as 0d28:0204, found {usb!r}")
    table.done()
    return flashing
