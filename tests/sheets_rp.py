"""Raspberry Pi: RP2040 Datasheet (2.14 to 2.19, 4.10), RP2350 Datasheet (7.5, 8.1 to 8.6, 9.11)."""

from __future__ import annotations

from dataclasses import dataclass

from sheets import MHZ, Clocks, bit, field, in_order
from silicon import Answer, Silicon

CRYSTAL = 12 * MHZ
CLK_REF, CLK_SYS, CLK_PERI = 0x30, 0x3C, 0x48


@dataclass(frozen=True)
class Rp:
    """UART0 on GP0, GP1, function 2. `most`: Hz. Bases of the blocks; bits of RESETS; the pads as they are after reset,
    and what they must be."""

    most: int
    xosc: int
    clocks: int
    resets_base: int
    pll: int
    io: int
    pads: int
    all_resets: int
    reset_pll: int
    reset_uart: tuple[int, int, int]  # IO_BANK0, PADS_BANK0, UART0
    pad: int
    tx_pad: int
    rx_pad: int

    @property
    def resets(self) -> dict[int, int]:
        pads = {self.pads + 4: self.pad, self.pads + 8: self.pad}
        return pads | {self.resets_base: self.all_resets, self.pll + 4: 0x2D, self.pll + 0xC: 0x7_7000, self.pll: 1}

    @property
    def answers(self) -> dict[int, Answer]:
        def stable(_: int, chip: Silicon) -> int:
            return 1 << 31 if field(chip.register(self.xosc), 23, 12) == 0xFAB else 0

        def lock(value: int, chip: Silicon) -> int:
            held = bit(chip.register(self.resets_base), self.reset_pll)
            return value | (0 if held or chip.register(self.pll + 4) & 0x21 else 1 << 31)

        return {
            self.xosc + 4: stable,
            self.pll: lock,
            self.clocks + CLK_REF + 8: lambda _, chip: 1 << field(chip.register(self.clocks + CLK_REF), 1, 0),
            self.clocks + CLK_SYS + 8: lambda _, chip: 1 << field(chip.register(self.clocks + CLK_SYS), 0, 0),
            self.resets_base + 8: lambda _, chip: ~chip.register(self.resets_base) & self.all_resets,
        }

    def check(self, chip: Silicon) -> Clocks:
        assert chip.register(self.xosc) == 0xFAB << 12 | 0xAA0, "the crystal: on, 1 to 15 MHz"
        delay = chip.register(self.xosc + 0xC)
        assert 1e-3 <= delay * 256 / CRYSTAL * 1.01 <= 2e-3, "a millisecond for the crystal to start"
        ref, core, peri = (chip.register(self.clocks + offset) for offset in (CLK_REF, CLK_SYS, CLK_PERI))
        assert ref == 2, "clk_ref: the crystal"
        assert core == 1, "clk_sys: its auxiliary source, PLL_SYS"
        assert peri == 1 << 11, "clk_peri: on, from clk_sys"
        hz = self._pll(chip)
        assert hz == self.most
        free = sum(1 << at for at in (self.reset_pll, *self.reset_uart))
        assert chip.register(self.resets_base) == self.all_resets & ~free, "what is used is out of reset, no more"
        assert chip.register(self.io + 4) == 2 and chip.register(self.io + 0xC) == 2, "GP0, GP1: UART"
        assert chip.register(self.pads + 4) == self.tx_pad and chip.register(self.pads + 8) == self.rx_pad
        self._order(chip)
        return Clocks(hz, hz)

    def _pll(self, chip: Silicon) -> int:
        cs, power, feedback, dividers = (chip.register(self.pll + offset) for offset in (0, 4, 8, 0xC))
        assert power == 4, "all of the PLL is on but DSM, which has no use"
        assert cs == 1, "the reference undivided: 5 MHz at least; no bypass"
        vco = CRYSTAL * feedback
        assert 16 <= feedback <= 320 and 750 * MHZ <= vco <= 1600 * MHZ
        first, second = field(dividers, 18, 16), field(dividers, 14, 12)
        assert dividers & ~0x7_7000 == 0 and first >= second >= 1, "the larger divider first saves power"
        assert vco % (first * second) == 0
        return vco // (first * second)

    def _order(self, chip: Silicon) -> None:
        """clk_sys leaves the PLL before that is touched, and comes back when it is locked."""
        reset, sys, pll = self.resets_base, self.clocks + CLK_SYS, self.pll
        in_order(chip, (self.xosc + 0xC, lambda v: True), (self.xosc, lambda v: True), (sys, lambda v: not bit(v, 0)),
                 (self.clocks + CLK_REF, lambda v: v & 3 == 2), (reset, lambda v: bit(v, self.reset_pll)),
                 (reset, lambda v: not bit(v, self.reset_pll)), (pll, lambda v: True), (pll + 8, lambda v: True),
                 (pll + 4, lambda v: v & 0x21 == 0), (pll + 0xC, lambda v: True), (pll + 4, lambda v: v & 8 == 0),
                 (sys, lambda v: bit(v, 0)), (self.clocks + CLK_PERI, lambda v: True),
                 (reset, lambda v: not bit(v, self.reset_uart[2])), (self.io + 4, lambda v: True))  # fmt: skip
        in_order(chip, (reset, lambda v: not bit(v, self.reset_uart[1])), (self.pads + 8, lambda v: True))
        aux = [value for address, value in chip.writes if address == sys and not bit(value, 0)]
        assert len(aux) == 2 and aux[1] == 0, "AUXSRC is set while SRC is clk_ref"


RP2040 = Rp(
    133 * MHZ, 0x4002_4000, 0x4000_8000, 0x4000_C000, 0x4002_8000, 0x4001_4000, 0x4001_C000,
    all_resets=0x01FF_FFFF, reset_pll=12, reset_uart=(5, 8, 22), pad=0x56, tx_pad=0x56, rx_pad=0x5A,
)  # fmt: skip
"""Pads, 2.19.6.3: input on, 4 mA, pulled down, Schmitt trigger; RX is pulled up instead."""

RP2350 = Rp(
    150 * MHZ, 0x4004_8000, 0x4001_0000, 0x4002_0000, 0x4005_0000, 0x4002_8000, 0x4003_8000,
    all_resets=0x1FFF_FFFF, reset_pll=14, reset_uart=(6, 9, 26), pad=0x116, tx_pad=0x16, rx_pad=0x5A,
)  # fmt: skip
"""Pads, 9.11.3: after reset isolated (bit 8) and the input off (bit 6)."""
