"""STM32 with the newer USART: RM0432 (L4R5), RM0433 (H743), RM0456 (U575)."""

from __future__ import annotations

from dataclasses import dataclass

from sheets import MHZ, Clocks, bit, copies, field, follows, in_order, untouched
from sheets_stm32 import ahb_divider, apb_divider, check_pins
from silicon import Answer, Silicon

NEVER_MIND = 1 << 30  # outside of all limits


@dataclass(frozen=True)
class L4R5:
    """Nucleo-L4R5ZI: HSI16, PLL, range 1 boost, 120 MHz; LPUART1 on PG7, PG8, alternate function 8."""

    RCC, PWR, FLASH_ACR, GPIOG = 0x4002_1000, 0x4000_7000, 0x4002_2000, 0x4800_1800

    @property
    def resets(self) -> dict[int, int]:
        power = {self.PWR: 0x200, self.PWR + 0x80: 0x100}
        return power | {self.RCC: 0x63, self.RCC + 0xC: 0x1000, self.FLASH_ACR: 0x600, self.GPIOG: 0xFFFF_FFFF}

    @property
    def answers(self) -> dict[int, Answer]:
        return {self.RCC: follows((8, 10), (24, 25)), self.RCC + 8: copies(0, 2, 2)}

    def check(self, chip: Silicon) -> Clocks:
        cr, cfgr, pll = (chip.register(self.RCC + offset) for offset in (0, 8, 0xC))
        assert cr & ~0x0200_0400 == 0x63 | 1 << 8 | 1 << 24, "MSI as it was, HSION, PLLON, nothing else"
        assert field(pll, 1, 0) == 2, "the PLL takes HSI16"
        assert pll & 0xFE93_8088 == 0 and pll & ~0x0700_7FFF & ~0x80 == 0, "the outputs P and Q are off"
        m, n, r = field(pll, 7, 4) + 1, field(pll, 14, 8), 2 * (field(pll, 26, 25) + 1)
        assert bit(pll, 24) and 8 <= n <= 127
        vco_in = 16 * MHZ / m
        assert 2.66 * MHZ <= vco_in <= 16 * MHZ and 64 * MHZ <= vco_in * n <= 344 * MHZ
        assert cfgr & ~0x3FFF == 0 and field(cfgr, 1, 0) == 3, "the PLL drives the system clock"
        core = vco_in * n / r / ahb_divider(field(cfgr, 7, 4))
        apb1 = core / apb_divider(field(cfgr, 10, 8))
        assert core == 120 * MHZ and apb_divider(field(cfgr, 13, 11)) == 1
        self._power_and_flash(chip, int(core))
        assert chip.register(self.RCC + 0x88) == 0, "CCIPR: LPUART1 takes APB1"
        assert chip.register(self.RCC + 0x4C) == 1 << 6 and chip.register(self.RCC + 0x5C) == 1
        check_pins(chip, self.GPIOG, tx=7, rx=8, function=8)
        select = (self.RCC + 8, lambda v: v & 3 == 3)
        in_order(chip, (self.RCC + 0x58, lambda v: bit(v, 28)), (self.PWR + 0x80, lambda v: v == 0),
                 (self.RCC, lambda v: bit(v, 8)), (self.RCC + 0xC, lambda v: bit(v, 24)),
                 (self.RCC, lambda v: bit(v, 24)), select, (self.RCC + 0x4C, lambda v: True),
                 (self.GPIOG, lambda v: True))  # fmt: skip
        in_order(chip, (self.RCC + 0x58, lambda v: True), (self.PWR + 4, lambda v: True), (self.GPIOG, lambda v: True))
        in_order(chip, (self.FLASH_ACR, lambda v: True), select)
        at = [value for address, value in chip.writes if address == self.RCC + 8 and value & 3 == 3]
        assert field(at[0], 7, 4) == 8 and field(at[-1], 7, 4) == 0, "above 80 MHz by way of half the speed (5.1.8)"
        return Clocks(int(core), int(apb1), divider=256)

    def _power_and_flash(self, chip: Silicon, core: int) -> None:
        """Range 1 boost: a wait state for each 20 MHz begun after the first (RM0432 table 12)."""
        assert chip.register(self.FLASH_ACR) == 0x700 | (-(-core // (20 * MHZ)) - 1), "wait states, prefetch, caches"
        assert chip.register(self.RCC + 0x58) == 1 << 28, "PWREN"
        untouched(chip, self.PWR)
        assert chip.register(self.PWR + 4) == 1 << 9, "IOSV: PG2 to PG15 have their supply"
        assert chip.register(self.PWR + 0x80) == 0, "R1MODE: boost"


@dataclass(frozen=True)
class H743:
    """Nucleo-H743ZI: 8 MHz from the ST-LINK, VOS1, 400 MHz; USART3 on PD8, PD9, alternate function 7."""

    RCC, PWR, FLASH_ACR, GPIOD = 0x5802_4400, 0x5802_4800, 0x5200_2000, 0x5802_0C00

    @property
    def resets(self) -> dict[int, int]:
        rcc = {self.RCC: 1, self.RCC + 0x28: 0x0202_0200, self.RCC + 0x2C: 0x01FF_0000, self.RCC + 0x30: 0x0101_0280}
        caches = {0xE000_ED80: 0xF00F_E019}  # CCSIDR: 16 KiB of data cache, 128 sets of 4 ways of 32 bytes
        return (
            rcc | caches | {self.PWR + 0xC: 6, self.PWR + 0x18: 0x4000, self.FLASH_ACR: 0x37, self.GPIOD: 0xFFFF_FFFF}
        )

    @property
    def answers(self) -> dict[int, Answer]:
        def supply(_: int, chip: Silicon) -> int:
            return 1 << 13 if field(chip.register(self.PWR + 0xC), 2, 0) == 2 else 0

        return {
            self.RCC: follows((16, 17), (24, 25)),
            self.RCC + 0x10: copies(0, 3, 3),
            self.PWR + 4: supply,
            self.PWR + 0x18: lambda value, _: value | 1 << 13,
        }

    def check(self, chip: Silicon) -> Clocks:
        cr, cfgr, d1, d2, d3 = (chip.register(self.RCC + offset) for offset in (0, 0x10, 0x18, 0x1C, 0x20))
        assert cr & ~0x0202_0000 == 1 | 1 << 16 | 1 << 18 | 1 << 24, "HSION as it was, HSEON, HSEBYP, PLL1ON"
        assert cfgr & ~0x38 == 3, "PLL1 drives the system clock, nothing else"
        core = self._pll(chip)
        assert field(d1, 11, 8) == 0 and d1 & ~0xF7F == 0 and d2 & ~0x770 == 0 and d3 & ~0x70 == 0
        axi = core / ahb_divider(field(d1, 3, 0))
        apb = [
            axi / apb_divider(code) for code in (field(d1, 6, 4), field(d2, 6, 4), field(d2, 10, 8), field(d3, 6, 4))
        ]
        assert core == 400 * MHZ and axi == 200 * MHZ and apb == [100 * MHZ] * 4, "the most that VOS1 allows"
        assert chip.register(self.FLASH_ACR) == 0x22, "185 to 210 MHz at VOS1: two wait states, WRHIGHFREQ 2 (table 17)"
        assert chip.register(self.PWR + 0xC) == 2, "LDO on, no bypass, no further change"
        assert field(chip.register(self.PWR + 0x18), 15, 14) == 3, "VOS1"
        assert chip.register(self.RCC + 0x54) == 0, "D2CCIP2R: USART3 takes APB1"
        assert chip.register(self.RCC + 0xE0) == 1 << 3 and chip.register(self.RCC + 0xE8) == 1 << 18
        check_pins(chip, self.GPIOD, tx=8, rx=9, function=7)
        select, pll_on = (self.RCC + 0x10, lambda v: v & 7 == 3), (self.RCC, lambda v: bit(v, 24))
        in_order(chip, (self.PWR + 0xC, lambda v: True), (self.PWR + 0x18, lambda v: v >> 14 == 3),
                 (self.RCC, lambda v: bit(v, 18)), (self.RCC, lambda v: bit(v, 16)),
                 (self.RCC + 0x28, lambda v: v & 3 == 2), (self.RCC + 0x2C, lambda v: True),
                 (self.RCC + 0x30, lambda v: True), pll_on, select)  # fmt: skip
        for before in (self.FLASH_ACR, self.RCC + 0x18, self.RCC + 0x1C, self.RCC + 0x20):
            in_order(chip, (before, lambda v: True), select)
        in_order(chip, (self.RCC + 0xE0, lambda v: True), (self.GPIOD, lambda v: True))
        return Clocks(int(core), int(apb[1]))

    def _pll(self, chip: Silicon) -> float:
        """RM0433 8.7.11 to 8.7.13. Hz of output P."""
        source, cfg, div = (chip.register(self.RCC + offset) for offset in (0x28, 0x2C, 0x30))
        assert field(source, 1, 0) == 2, "the PLLs take HSE"
        untouched(chip, self.RCC + 0x28, ~0x3F3 & 0xFFFF_FFFF)
        untouched(chip, self.RCC + 0x2C, ~0xF & 0xFFFF_FFFF)
        assert field(source, 9, 4) > 0, "DIVM1 of 0 stops PLL1"
        vco_in = 8 * MHZ / field(source, 9, 4)
        assert 8 * MHZ <= vco_in <= 16 * MHZ and cfg & 0xF == 0b1100, "input range 8 to 16 MHz, wide VCO, no fraction"
        vco = vco_in * (field(div, 8, 0) + 1)
        assert 192 * MHZ <= vco <= 836 * MHZ, "revision Y's limits, the narrower ones"
        p, q, r = (field(div, high, low) + 1 for high, low in ((15, 9), (22, 16), (30, 24)))
        assert p == 2 or p % 2 == 0, "odd dividers are not allowed"
        assert vco / q == 200 * MHZ and vco / r == 400 * MHZ and not bit(div, 31) and not bit(div, 23)
        return vco / p


@dataclass(frozen=True)
class U575:
    """Nucleo-U575ZI-Q: HSI16, PLL1, range 1 with booster, 160 MHz; USART1 on PA9, PA10, alternate function 7."""

    RCC, PWR, FLASH_ACR, ICACHE, GPIOA = 0x4602_0C00, 0x4602_0800, 0x4002_2000, 0x4003_0400, 0x4202_0000

    @property
    def resets(self) -> dict[int, int]:
        rcc = {self.RCC: 0x35, self.RCC + 0x34: 0x0101_0280, self.RCC + 0x94: 0x8000_0000}
        return rcc | {self.ICACHE: 4, self.GPIOA: 0xABFF_FFFF, self.GPIOA + 0xC: 0x6400_0000}

    @property
    def answers(self) -> dict[int, Answer]:
        def power(value: int, chip: Silicon) -> int:
            boosts = bit(value, 18) and field(chip.register(self.RCC + 0x28), 1, 0) == 2
            return value | 1 << 15 | (1 << 14 if boosts else 0)

        return {
            self.RCC: follows((8, 10), (24, 25)),
            self.RCC + 0x1C: copies(0, 2, 2),
            self.PWR + 0xC: power,
        }

    def check(self, chip: Silicon) -> Clocks:
        cr, cfgr1, cfgr2, cfg, div = (chip.register(self.RCC + offset) for offset in (0, 0x1C, 0x20, 0x28, 0x34))
        assert cr & ~0x0200_0400 == 0x35 | 1 << 8 | 1 << 24, "MSIS as it was, HSION, PLL1ON, nothing else"
        assert cfgr1 & ~0xC == 3, "PLL1 drives the system clock, nothing else"
        assert cfgr2 == 0, "AHB, APB1, APB2: undivided"
        assert field(cfg, 1, 0) == 2 and field(cfg, 3, 2) == 3, "PLL1 takes HSI16; an input of 8 to 16 MHz"
        assert cfg & ~0x4_FF0F == 0 and bit(cfg, 18), "output R alone, no fraction"
        vco_in = 16 * MHZ / (field(cfg, 11, 8) + 1)
        boost = 16 * MHZ / {0: 1, 1: 2, 2: 4}.get(field(cfg, 15, 12), NEVER_MIND)
        assert 8 * MHZ <= vco_in <= 16 * MHZ and boost == 8 * MHZ, "4 to 16 MHz for the booster, not at the edge"
        vco = vco_in * (field(div, 8, 0) + 1)
        assert 128 * MHZ <= vco <= 544 * MHZ
        assert [field(div, high, low) for high, low in ((15, 9), (22, 16))] == [1, 1] and div & 0x8080_0000 == 0
        core = vco / (field(div, 30, 24) + 1)
        assert core == 160 * MHZ
        self._power_and_flash(chip, int(core))
        assert chip.register(self.RCC + 0xE0) == 0, "CCIPR1: USART1 takes APB2"
        assert chip.register(self.RCC + 0x8C) == 1 and chip.register(self.RCC + 0xA4) == 1 << 14
        check_pins(chip, self.GPIOA, tx=9, rx=10, function=7)
        select, pll_on = (self.RCC + 0x1C, lambda v: v & 3 == 3), (self.RCC, lambda v: bit(v, 24))
        in_order(chip, (self.RCC + 0x94, lambda v: bit(v, 2)), (self.PWR + 0xC, lambda v: v >> 16 & 3 == 3),
                 (self.RCC, lambda v: bit(v, 8)), (self.RCC + 0x28, lambda v: v & 3 == 2),
                 (self.PWR + 0xC, lambda v: bit(v, 18)), (self.RCC + 0x34, lambda v: True), pll_on, select)  # fmt: skip
        in_order(chip, (self.RCC + 0x28, lambda v: bit(v, 18)), pll_on)
        in_order(chip, (self.FLASH_ACR, lambda v: True), select)
        in_order(chip, (self.RCC + 0x8C, lambda v: True), (self.GPIOA, lambda v: True))
        return Clocks(int(core), int(core))

    def _power_and_flash(self, chip: Silicon, core: int) -> None:
        """Range 1: a wait state for each 32 MHz begun after the first (RM0456 7.3.3)."""
        assert chip.register(self.FLASH_ACR) == 0x100 | (-(-core // (32 * MHZ)) - 1), "wait states, prefetch"
        assert chip.register(self.RCC + 0x94) == 0x8000_0000 | 1 << 2, "PWREN"
        assert chip.register(self.PWR + 0xC) & ~0xC000 == 3 << 16 | 1 << 18, "range 1, booster"
        assert chip.register(self.ICACHE) == 4 | 1, "the instruction cache, in two ways as after reset"
