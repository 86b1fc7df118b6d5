"""What a chip needs after reset, as data: an ordered list of register accesses, read from board and chip files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.device.tables import Table
from rlx_edge.errors import DeviceError

ALL_BITS = 0xFFFF_FFFF
# By the word that names the register: the numbers that the step takes.
_NUMBERS = {
    "write": ("value",),
    "set": ("bits",),
    "clear": ("bits",),
    "change": ("mask", "value"),
    "wait": ("mask", "value"),
}


@dataclass(frozen=True)
class Register:
    """A 32-bit register: its address, and the manual and section that say so."""

    name: str
    address: int
    manual: str


@dataclass(frozen=True)
class Step:
    """One step of a board's set-up, done in order.

    Kind `write` stores `value`; `change` gives the bits of `mask` the value `value` and leaves the others;
    `wait` polls until the bits of `mask` read `value`, a bounded number of times. `why` is for people.
    """

    kind: str
    register: Register
    mask: int
    value: int
    why: str


def read_registers(table: Table) -> dict[str, Register]:
    """The table [registers] of a chip file: NAME = { address, manual }. Raises `DeviceError` on a bad entry."""
    registers = {}
    for name, entry in table.tables("registers").items():
        registers[name] = Register(name=name, address=entry.number("address"), manual=entry.text("manual"))
        entry.done()
        if registers[name].address % 4 != 0:
            raise DeviceError(f"{entry.where}: address must be a multiple of 4, found {registers[name].address:#x}")
    return registers


def read_steps(table: Table, registers: Mapping[str, Register]) -> tuple[Step, ...]:
    """The table [setup] of a board or chip file: steps = [{ KIND = "REGISTER", numbers, why }, ...].

    Kinds: write (value), set (bits), clear (bits), change (mask, value), wait (mask, value). Raises `DeviceError`
    naming the step on a bad one.
    """
    setup = table.table("setup")
    steps = tuple(_step(row, registers) for row in setup.rows("steps"))
    setup.done()
    return steps


def _step(row: Table, registers: Mapping[str, Register]) -> Step:
    kinds = [kind for kind in _NUMBERS if row.has(kind)]
    if len(kinds) != 1:
        raise DeviceError(f"{row.where}: a step is one of {', '.join(_NUMBERS)}, found {' and '.join(kinds) or 'none'}")
    kind = kinds[0]
    register = registers.get(row.text(kind))
    if register is None:
        raise DeviceError(f"{row.where}: {row.text(kind)} is not in the chip's [registers]")
    numbers = [row.number(name) for name in _NUMBERS[kind]]
    why = row.text("why")
    row.done()
    if kind == "write":
        return Step(kind, register, ALL_BITS, numbers[0], why)
    if kind in ("set", "clear"):
        return Step("change", register, numbers[0], numbers[0] if kind == "set" else 0, why)
    mask, value = numbers
    if value & ~mask or mask == 0:
        raise DeviceError(f"{row.where}: mask {mask:#x} leaves no room for value {value:#x}")
    return Step(kind, register, mask, value, why)


def failed_step(steps: Sequence[Step], number: int) -> str:
    """What it means that this step, counted from 1, has waited in vain."""
    known = number <= len(steps)
    what = f"{steps[number - 1].register.name}, {steps[number - 1].why}" if known else "unknown to the board's file"
    return f"step {number} of its set-up waited in vain ({what}): its clock, baud rate and counts may be wrong"
