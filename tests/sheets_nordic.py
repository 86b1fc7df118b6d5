"""Nordic: nRF51 Series Reference Manual v3.0.1; nRF52840 and nRF52833 Product Specifications."""

from __future__ import annotations

from dataclasses import dataclass

from sheets import MHZ, Clocks, field
from silicon import Answer, Silicon

CLOCK, UART = 0x4000_0000, 0x4000_2000
GPIO = (0x5000_0000, 0x5000_0300)  # P0, P1


@dataclass(frozen=True)
class Nrf:
    """UART on any pins, numbered 32 * port + pin; its clock is 16 MHz from the crystal. `core` in Hz."""

    core: int
    tx: int
    rx: int
    cache: bool  # nRF52: NVMC.ICACHECNF

    @property
    def resets(self) -> dict[int, int]:
        return {}

    @property
    def answers(self) -> dict[int, Answer]:
        return {CLOCK + 0x100: lambda _, chip: chip.register(CLOCK)}  # started once it was asked to

    def check(self, chip: Silicon) -> Clocks:
        assert chip.register(CLOCK) == 1, "HFCLKSTART"
        assert chip.register(UART + 0x50C) == self.tx and chip.register(UART + 0x514) == self.rx, "PSELTXD, PSELRXD"
        tx, rx = (GPIO[pin // 32] + 0x700 + 4 * (pin % 32) for pin in (self.tx, self.rx))
        assert chip.register(tx) == 1, "TX: output, its input buffer connected"
        assert field(chip.register(rx), 3, 0) == 0b1100 and chip.register(rx) >> 4 == 0, "RX: input, pulled up"
        high = GPIO[self.tx // 32] + 0x508
        assert chip.register(high) == 1 << self.tx % 32, "TX rests high, and no other pin is driven"
        pins = {at for at, _ in chip.writes if 0x5000_0000 <= at < 0x5000_1000}
        assert pins == {tx, rx, high}, "no other pin is touched"
        writes = [at for at, _ in chip.writes]
        assert writes.index(high) < writes.index(tx), "high before it is an output"
        assert (chip.register(0x4001_E540) == 1) == self.cache, "instruction cache"
        return Clocks(self.core, 16 * MHZ)
