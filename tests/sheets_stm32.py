"""STM32: RM0041 (F100), RM0090 (F405, F407), RM0390 (F446)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sheets import MHZ, Clocks, bit, copies, field, follows, in_order, untouched
from silicon import Answer, Silicon


def ahb_divider(code: int) -> int:
    assert code in (0, 8, 9, 10, 11), "HPRE: 1 to 16, by the code of the tables"
    return 1 if code == 0 else 2 << (code - 8)


def apb_divider(code: int) -> int:
    assert code == 0 or code >= 4, "PPRE: 1 to 16, by the code of the tables"
    return 1 if code == 0 else 2 << (code - 4)


def check_pins(chip: Silicon, port: int, tx: int, rx: int, function: int) -> None:
    """GPIO of all families but F1, its registers from `port` on: both pins in this alternate function, RX pulled up,
    all other pins as after reset."""
    others = 0xFFFF_FFFF & ~(3 << 2 * tx) & ~(3 << 2 * rx)
    for pin in (tx, rx):
        assert field(chip.register(port), 2 * pin + 1, 2 * pin) == 2, f"MODER of pin {pin}"
        at = pin % 8 * 4
        assert field(chip.register(port + 0x20 + pin // 8 * 4), at + 3, at) == function, f"AFR of pin {pin}"
        untouched(chip, port + 0x20 + pin // 8 * 4, 0xFFFF_FFFF & ~(15 << tx % 8 * 4) & ~(15 << rx % 8 * 4))
    untouched(chip, port, others)
    assert field(chip.register(port + 0x0C), 2 * rx + 1, 2 * rx) == 1, "PUPDR: RX is not pulled up"
    untouched(chip, port + 0x0C, 0xFFFF_FFFF & ~(3 << 2 * rx))


@dataclass(frozen=True)
class F1:
    """STM32F100: HSE crystal of 8 MHz, 24 MHz at most, no wait states; USART1 on PA9, PA10 (RM0041 6.3, 7.2)."""

    RCC = 0x4002_1000
    GPIOA = 0x4001_0800

    @property
    def resets(self) -> dict[int, int]:
        return {self.RCC: 0x83, self.GPIOA: 0x4444_4444, self.GPIOA + 4: 0x4444_4444}

    @property
    def answers(self) -> dict[int, Answer]:
        return {self.RCC: follows((16, 17), (24, 25)), self.RCC + 4: copies(0, 2, 2)}

    def check(self, chip: Silicon) -> Clocks:
        cr, cfgr, apb2enr = (chip.register(self.RCC + offset) for offset in (0, 4, 0x18))
        assert (cr | 0x0303_0000) == (0x83 | 0x0303_0000) and bit(cr, 16) and bit(cr, 24), "HSEON, PLLON, nothing else"
        assert bit(cfgr, 16) and not bit(cfgr, 17), "the PLL takes HSE, undivided"
        assert field(cfgr, 1, 0) == 2, "the PLL drives the system clock"
        assert cfgr & ~0x003F_FFFF == 0 and cfgr & 0xC000 == 0, "no MCO, ADC as after reset"
        core = 8 * MHZ * (field(cfgr, 21, 18) + 2) // ahb_divider(field(cfgr, 7, 4))
        assert core == 24 * MHZ
        uart = core // apb_divider(field(cfgr, 13, 11))
        assert apb_divider(field(cfgr, 10, 8)) == 1
        assert apb2enr == 1 << 14 | 1 << 2, "USART1 and GPIOA have clocks"
        crh = chip.register(self.GPIOA + 4)
        assert field(crh, 7, 4) == 0xB, "PA9: alternate function, push-pull"
        assert field(crh, 11, 8) == 0x8 and chip.register(self.GPIOA + 0xC) == 1 << 10, "PA10: input, pulled up"
        untouched(chip, self.GPIOA + 4, 0xFFFF_F00F)
        untouched(chip, self.GPIOA)
        in_order(chip, (self.RCC, lambda v: bit(v, 16)), (self.RCC + 4, lambda v: bit(v, 16)),
                 (self.RCC, lambda v: bit(v, 24)), (self.RCC + 4, lambda v: v & 3 == 2),
                 (self.RCC + 0x18, lambda v: bit(v, 2)), (self.GPIOA + 4, lambda v: True))  # fmt: skip
        return Clocks(core, uart)


@dataclass(frozen=True)
class F4:
    """STM32F405, F407 and F446: the PLL from HSE, and one USART's pins, alternate function 7.

    `bypass`: HSE is a clock from outside, no crystal. `overdrive`: F446 above 168 MHz. `enable`: offset in RCC and bit
    that give the USART its clock; `apb`: the bus it is on. `port`: 0 is GPIOA.
    """

    hse: int
    bypass: bool
    overdrive: bool
    port: int
    tx: int
    rx: int
    enable: tuple[int, int]
    apb: int

    usb: int = 48  # MHz

    RCC = 0x4002_3800
    PWR = 0x4000_7000
    FLASH_ACR = 0x4002_3C00

    @property
    def gpio(self) -> int:
        return 0x4002_0000 + 0x400 * self.port

    @cached_property
    def resets(self) -> dict[int, int]:
        gpio = {0x4002_0000: 0xA800_0000, 0x4002_000C: 0x6400_0000, 0x4002_0400: 0x280, 0x4002_040C: 0x100}
        power = 0xC000 if self.overdrive else 0x4000
        return gpio | {self.RCC: 0x83, self.RCC + 4: 0x2400_3010, self.RCC + 0x30: 0x10_0000, self.PWR: power}

    @cached_property
    def answers(self) -> dict[int, Answer]:
        def power(_: int, chip: Silicon) -> int:  # ODRDY and ODSWRDY follow ODEN and ODSWEN of PWR_CR
            return (field(chip.register(self.PWR), 17, 16) << 16) | 1 << 14

        return {self.RCC: follows((16, 17), (24, 25)), self.RCC + 8: copies(0, 2, 2), self.PWR + 4: power}

    def check(self, chip: Silicon) -> Clocks:
        hclk, apb = self._clocks(chip)
        self._power_and_flash(chip, hclk)
        self._uart(chip)
        select, pll_on = (self.RCC + 8, lambda v: v & 3 == 2), (self.RCC, lambda v: bit(v, 24))
        in_order(chip, (self.RCC + 0x40, lambda v: bit(v, 28)), (self.PWR, lambda v: True),
                 (self.RCC, lambda v: bit(v, 16)), (self.RCC + 4, lambda v: bit(v, 22)), pll_on, select)  # fmt: skip
        in_order(chip, (self.FLASH_ACR, lambda v: True), select)
        in_order(chip, (self.RCC + 0x30, lambda v: bit(v, self.port)), (self.gpio, lambda v: True))
        return Clocks(hclk, apb)

    def _clocks(self, chip: Silicon) -> tuple[int, int]:
        """RM0090 7.3.1 to 7.3.3, RM0390 6.3.1 to 6.3.3. AHB and the USART's bus, in Hz."""
        cr, pll, cfgr = (chip.register(self.RCC + offset) for offset in (0, 4, 8))
        assert cr & 0xFCF8_FFFF == 0x83 and bit(cr, 16) and bit(cr, 24), "HSEON, PLLON, nothing else"
        assert bit(cr, 18) == self.bypass, "HSEBYP"
        m, n, p, q = field(pll, 5, 0), field(pll, 14, 6), 2 * (field(pll, 17, 16) + 1), field(pll, 27, 24)
        assert bit(pll, 22), "the PLL takes HSE"
        untouched(chip, self.RCC + 4, 0xF0BC_8000)
        assert m >= 2 and 50 <= n <= 432 and q >= 2
        vco_in = self.hse / m
        vco = vco_in * n
        assert 1 * MHZ <= vco_in <= 2 * MHZ and 100 * MHZ <= vco <= 432 * MHZ
        assert vco / q == self.usb * MHZ, "the domain that may have 48 MHz at most"
        assert field(cfgr, 1, 0) == 2, "the PLL drives the system clock"
        assert cfgr & ~0xFCFF == 0, "no MCO, no RTC prescaler"
        hclk = vco / p / ahb_divider(field(cfgr, 7, 4))
        apb1, apb2 = hclk / apb_divider(field(cfgr, 12, 10)), hclk / apb_divider(field(cfgr, 15, 13))
        most = 180 if self.overdrive else 168
        assert hclk == most * MHZ, f"full speed is {most} MHz"
        assert apb1 == most * MHZ / 4 and apb2 == most * MHZ / 2, "the fastest that the buses may be"
        return int(hclk), int(apb2 if self.apb == 2 else apb1)

    def _power_and_flash(self, chip: Silicon, hclk: int) -> None:
        """A wait state for each 30 MHz begun after the first, at 2.7 V and more (RM0090 table 10, RM0390 table 5)."""
        acr = chip.register(self.FLASH_ACR)
        assert field(acr, 3, 0) == -(-hclk // (30 * MHZ)) - 1, "wait states"
        assert acr & ~0xF == 0x700, "prefetch, instruction cache, data cache, no reset of them"
        assert bit(chip.register(self.RCC + 0x40), 28), "PWREN"
        assert chip.register(self.PWR) == (0x3_C000 if self.overdrive else 0x4000), "scale 1 (and overdrive)"

    def _uart(self, chip: Silicon) -> None:
        offset, at = self.enable
        apb1, apb2 = (1 << at if offset == register else 0 for register in (0x40, 0x44))
        assert chip.register(self.RCC + 0x40) == apb1 | 1 << 28 and chip.register(self.RCC + 0x44) == apb2
        assert chip.register(self.RCC + 0x30) == 0x10_0000 | 1 << self.port, "the port's clock, and no other's"
        check_pins(chip, self.gpio, self.tx, self.rx, function=7)
