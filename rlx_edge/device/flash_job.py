"""What is to be flashed where: what all methods of flashing are given, and what they may ask and report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.device.boards import Board
from rlx_edge.device.build import Firmware
from rlx_edge.device.chips import IdRegister
from rlx_edge.device.flash_facts import Flashing
from rlx_edge.errors import DeviceError

Report = Callable[[str, int, int], None]
"""Called with a stage, what of it is done, and how much there is (0: nobody knows)."""


@dataclass(frozen=True)
class Job:
    """One build to write to one board. `probe`, `drive` and `gdb` are None unless the user named them: the serial
    number of a probe, the folder where a drive is mounted, the address of a gdb server. `timeout` in seconds."""

    board: Board
    facts: Flashing
    firmware: Firmware
    probe: str | None
    drive: Path | None
    gdb: str | None
    timeout: float
    report: Report

    @property
    def start(self) -> int:
        """Where the image lies in flash."""
        return self.board.placement.code.start

    @property
    def part(self) -> IdRegister:
        """The register that tells the chip, or only its core where nothing better is known."""
        return self.board.chip.tools.part or self.board.chip.id

    def is_part(self, value: int) -> bool:
        return value & self.part.mask == self.part.value

    def wrong_chip(self, found: int | str) -> DeviceError:
        """`found`: what the register reads, or what somebody says of the chip."""
        said = found if isinstance(found, str) else f"the word at 0x{self.part.address:08x} is 0x{found:08x}"
        return DeviceError(
            f"{self.board.name}: the connected board has another chip than {self.board.chip.name} ({said}); "
            "nothing was written"
        )

    def locked(self, how: str) -> DeviceError:
        """`how`: the command that unlocks the chip."""
        return DeviceError(
            f"{self.board.name}: the chip is locked against reading and writing; unlocking erases all that is on it: "
            f"{how}; then unplug the board once"
        )

    def too_large(self, said: str) -> DeviceError:
        return DeviceError(
            f"{self.board.name}: the image of {self.firmware.image_bytes:,} bytes at 0x{self.start:08x} does not fit "
            f"the flash that the chip has ({said}); is it a smaller one than {self.board.chip.name}?"
        )
