"""What the manuals say of a chip: limits, values after reset, what a register's bits mean; in Hz and pins, where board
files have words. One hand wrote both, from the same reading of the manuals.

Each sheet has `resets` (register -> value after reset), `answers` (what a register reads, given what it holds and the
chip) and `check(chip)`, which reads clocks and pins back from the registers, asserts that they are within the limits,
and returns the clocks of core and UART in Hz. An `AssertionError` says what the silicon would not do, or do wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from silicon import Answer, Silicon

MHZ = 1_000_000


@dataclass(frozen=True)
class Clocks:
    """Hz. `divider`: by what more the UART divides than its divider register says."""

    core: int
    uart: int
    divider: int = 1


class Sheet(Protocol):
    """What one board's chip does and allows."""

    resets: Mapping[int, int]
    answers: Mapping[int, Answer]

    def check(self, chip: Silicon) -> Clocks: ...


def field(value: int, high: int, low: int) -> int:
    """Bits high to low of a word."""
    return (value >> low) & ((1 << (high - low + 1)) - 1)


def bit(value: int, at: int) -> bool:
    return bool(value >> at & 1)


def follows(*pairs: tuple[int, int]) -> Answer:
    """A register where bit `ready` reads as bit `enable` is set: pairs of (enable, ready)."""
    return lambda value, _: value | sum(1 << ready for enable, ready in pairs if bit(value, enable))


def copies(low: int, at: int, width: int) -> Answer:
    """A register where the field at bit `at` reads as the one at bit `low` was written."""
    mask = (1 << width) - 1
    return lambda value, _: (value & ~(mask << at)) | ((value >> low & mask) << at)


def untouched(chip: Silicon, address: int, mask: int = 0xFFFF_FFFF) -> None:
    """These bits, with which the set-up has nothing to do, hold what they held after reset."""
    assert (chip.register(address) ^ chip.resets.get(address, 0)) & mask == 0, f"{address:#x} & {mask:#x}"


def in_order(chip: Silicon, *events: tuple[int, Callable[[int], bool]]) -> None:
    """The first write to each address whose value fits comes after the one before it in this list."""
    places = []
    for address, fits in events:
        found = [i for i, (at, value) in enumerate(chip.writes) if at == address and fits(value)]
        assert found, f"no such write to {address:#x}"
        places.append(found[0])
    assert places == sorted(places), f"written in another order: {[hex(address) for address, _ in events]}"
