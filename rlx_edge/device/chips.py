"""Chips as data: boards/chips/*.toml, one file a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.device.tables import Table
from rlx_edge.errors import DeviceError

# Each of these is a file of firmware/soc/: reset_cause_FAMILY.c, counter_COUNTER.c, uart_DRIVER.c.
FAMILIES = ("mps2", "nrf51", "stm32")
COUNTERS = ("systick", "nrf51")
UART_DRIVERS = ("cmsdk", "nrf51", "stm32")
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
    """A UART by its driver in firmware/soc/, the address of its registers, and the number of its receive interrupt."""

    name: str
    driver: str
    address: int
    irq: int


@dataclass(frozen=True)
class IdRegister:
    """The word at `address`, masked with `mask`, reads `value` on this chip."""

    address: int
    mask: int
    value: int


@dataclass(frozen=True)
class Chip:
    """What is true of a chip on every board. `cpu`, `fpu`, `float_abi` are the names that gcc uses ("none": no FPU)."""

    name: str
    cpu: str
    fpu: str
    float_abi: str
    family: str
    counter: str
    reset_cause: int | None
    id: IdRegister
    regions: Mapping[str, Region]
    uarts: Mapping[str, Uart]


def load_chip(path: Path) -> Chip:
    """Reads a chip file. Raises `DeviceError` on anything that is not as it should be."""
    table = Table.load(path)
    chip = Chip(
        name=path.stem,
        cpu=table.text("cpu"),
        fpu=table.text("fpu"),
        float_abi=table.text("float_abi", FLOAT_ABIS),
        family=table.text("family", FAMILIES),
        counter=table.text("counter", COUNTERS),
        reset_cause=table.number("reset_cause") if table.has("reset_cause") else None,
        id=_id_register(table.table("id")),
        regions={name: _region(name, region) for name, region in table.tables("regions").items()},
        uarts={name: _uart(name, uart) for name, uart in table.tables("uarts").items()},
    )
    table.done()
    if chip.family == "stm32" and chip.reset_cause is None:
        raise DeviceError(f"{path.name}: the key reset_cause is missing: family stm32 needs the address of RCC_CSR")
    return chip


def _id_register(table: Table) -> IdRegister:
    register = IdRegister(address=table.number("address"), mask=table.number("mask"), value=table.number("value"))
    table.done()
    return register


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
    )
    table.done()
    return uart
