"""Chips as data: boards/chips/*.toml, one file a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from rlx_edge.device.setup import Register, Step, read_registers, read_steps
from rlx_edge.device.tables import Table

# Each of these is a file of firmware/soc/: counter_COUNTER.c, uart_DRIVER.c, image_IMAGE.c.
COUNTERS = ("systick", "dwt", "nrf51")
UART_DRIVERS = ("cmsdk", "nrf51", "pl011", "stm32", "stm32v2")
IMAGES = ("rp2040", "rp2350")
PIN_DRIVERS = ("nrf51",)  # UARTs that take any pins
FLOAT_ABIS = ("soft", "hard")
REGION_KINDS = ("flash", "ram")


@dataclass(frozen=True)
class Region:
    """A range of addresses: `bytes` from `start`. Kind `flash` is loaded by a flashing tool, `ram` is not."""

    name: str
    kind: str
    start: int
    bytes: int


@dataclass(frozen=True)
class Uart:
    """A UART by its driver in firmware/soc/, the address of its registers, and the number of its receive interrupt.

    `divider_scale`: the baud divider register holds the clock / baud times this.
    """

    name: str
    driver: str
    address: int
    irq: int
    divider_scale: int

    @property
    def takes_pins(self) -> bool:
        """Whether any pins can be this UART's, so that the board must name them."""
        return self.driver in PIN_DRIVERS


@dataclass(frozen=True)
class IdRegister:
    """The word at `address`, masked with `mask`, reads `value` on this chip."""

    address: int
    mask: int
    value: int


@dataclass(frozen=True)
class Uid:
    """Where the chip's unique number lies: so many words of 32 bits from `address`."""

    address: int
    words: int


@dataclass(frozen=True)
class Tools:
    """What flashing tools call the chip; None: they do not know it, or the project does not know how they do.

    `openocd` is a file of OpenOCD's scripts, `unlock` its commands that erase and unlock a chip; `pyocd` a built-in
    target of pyocd; `uf2_family` and `uf2_board_id` are what the chip's boot ROM wants to see in UF2 files, and what it
    says of itself. `part` tells the chip from others with the same core.
    """

    openocd: str | None = None
    unlock: str | None = None
    pyocd: str | None = None
    uf2_family: int | None = None
    uf2_board_id: str | None = None
    part: IdRegister | None = None


@dataclass(frozen=True)
class ResetCause:
    """The chip's record of its last reset: the word at `address`, and masks of the bits that say why (0: none does).

    `clear` is what is written back, over what was read, to clear the record; 0 where nothing needs to be.
    """

    address: int
    clear: int
    watchdog: int
    software: int
    power_on: int
    pin: int


@dataclass(frozen=True)
class Chip:
    """What is true of a chip on every board. `cpu`, `fpu`, `float_abi` are the names that gcc uses ("none": no FPU).

    `manual` names the documents that the addresses come from. `caches`: the core has instruction and data caches
    (Cortex-M7), which start-up turns on. `image` names what the boot ROM wants to find in flash besides a vector table,
    None where that is all. `setup` comes before the board's own. `uid`: None where the chip has no unique number in
    its memory.
    """

    name: str
    manual: str
    cpu: str
    fpu: str
    float_abi: str
    caches: bool
    counter: str
    image: str | None
    reset_cause: ResetCause | None
    registers: Mapping[str, Register]
    setup: tuple[Step, ...]
    id: IdRegister
    uid: Uid | None
    tools: Tools
    regions: Mapping[str, Region]
    uarts: Mapping[str, Uart]


def load_chip(path: Path) -> Chip:
    """Reads a chip file. Raises `DeviceError` on anything that is not as it should be."""
    table = Table.load(path)
    registers = read_registers(table) if table.has("registers") else {}
    chip = Chip(
        name=path.stem,
        manual=table.text("manual"),
        cpu=table.text("cpu"),
        fpu=table.text("fpu"),
        float_abi=table.text("float_abi", FLOAT_ABIS),
        caches=table.has("caches") and table.flag("caches"),
        counter=table.text("counter", COUNTERS),
        image=table.text("image", IMAGES) if table.has("image") else None,
        reset_cause=_reset_cause(table.table("reset_cause")) if table.has("reset_cause") else None,
        registers=registers,
        setup=read_steps(table, registers) if table.has("setup") else (),
        id=_id_register(table.table("id")),
        uid=_uid(table.table("uid")) if table.has("uid") else None,
        tools=_tools(table.table("tools")) if table.has("tools") else Tools(),
        regions={name: _region(name, region) for name, region in table.tables("regions").items()},
        uarts={name: _uart(name, uart) for name, uart in table.tables("uarts").items()},
    )
    table.done()
    return chip


def _reset_cause(table: Table) -> ResetCause:
    cause = ResetCause(**{field.name: table.number(field.name) for field in fields(ResetCause)})
    table.done()
    return cause


def _id_register(table: Table) -> IdRegister:
    register = IdRegister(address=table.number("address"), mask=table.number("mask"), value=table.number("value"))
    table.done()
    return register


def _uid(table: Table) -> Uid:
    uid = Uid(address=table.number("address"), words=table.number("words", low=1, high=8))
    table.text("manual")
    table.done()
    return uid


def _tools(table: Table) -> Tools:
    tools = Tools(
        openocd=table.text("openocd") if table.has("openocd") else None,
        unlock=table.text("unlock") if table.has("unlock") else None,
        pyocd=table.text("pyocd") if table.has("pyocd") else None,
        uf2_family=table.number("uf2_family") if table.has("uf2_family") else None,
        uf2_board_id=table.text("uf2_board_id") if table.has("uf2_family") else None,
        part=_part(table.table("part")) if table.has("part") else None,
    )
    table.done()
    return tools


def _part(table: Table) -> IdRegister:
    table.text("manual")  # for readers of the file
    return _id_register(table)


def _region(name: str, table: Table) -> Region:
    region = Region(
        name=name,
        kind=table.text("kind", REGION_KINDS),
        start=table.number("start"),
        bytes=table.number("bytes", low=1),
    )
    table.done()
    return region


def _uart(name: str, table: Table) -> Uart:
    uart = Uart(
        name=name,
        driver=table.text("driver", UART_DRIVERS),
        address=table.number("address"),
        irq=table.number("irq", high=239),
        divider_scale=table.number("divider_scale", low=1) if table.has("divider_scale") else 1,
    )
    table.done()
    return uart
