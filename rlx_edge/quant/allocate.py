"""Which of several forms each layer takes, so that no sum of costs can be bettered without a loss elsewhere.

Layers are added one after another; of all partial choices only those are kept that no other one beats in flash,
instructions and noise at once. That is exact (a multiple-choice knapsack by its Pareto fronts, Nemhauser and Ullmann,
Discrete Dynamic Programming and Capital Allocation, 1969) up to MOST partial choices; beyond, an even choice of them
by flash goes on, which bounds time and memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST = 2000
"""Partial choices that go on to the next layer."""


@dataclass(frozen=True)
class Option:
    """A form of one layer: bytes of flash, instructions, and what it adds to the noise at the output."""

    bits: int
    flash: int
    instructions: int
    noise: float


@dataclass(frozen=True)
class Choice:
    """A form for each layer in turn, with the sums of what they cost."""

    bits: tuple[int, ...]
    flash: int
    instructions: int
    noise: float

    def plus(self, option: Option) -> Choice:
        return Choice(
            (*self.bits, option.bits),
            self.flash + option.flash,
            self.instructions + option.instructions,
            self.noise + option.noise,
        )


def pareto(layers: Iterable[Sequence[Option]], most: int = MOST) -> tuple[Choice, ...]:
    """The choices that no other one beats in all sums, by rising flash."""
    front: list[Choice] = [Choice((), 0, 0, 0.0)]
    for options in layers:
        front = undominated([choice.plus(option) for choice in front for option in options])
        if len(front) > most:
            front = [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]
    return tuple(front)


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Those that no other one beats or equals in flash, instructions and noise, by rising flash."""
    kept: list[Choice] = []
    steps: list[tuple[int, float]] = []  # of what was kept: instructions rise, noise falls
    for choice in sorted(choices, key=lambda c: (c.flash, c.instructions, c.noise, c.bits)):
        place = bisect_right(steps, (choice.instructions, float("inf")))
        if place > 0 and steps[place - 1][1] <= choice.noise:
            continue
        kept.append(choice)
        end = place
        while end < len(steps) and steps[end][1] >= choice.noise:
            end += 1
        steps[place:end] = [(choice.instructions, choice.noise)]
    return kept


def curve(choices: Sequence[Choice]) -> list[Choice]:
    """Of choices by rising flash those with less noise than all smaller ones."""
    kept: list[Choice] = []
    for choice in choices:
        if kept and kept[-1].flash == choice.flash and choice.noise < kept[-1].noise:
            kept.pop()
        if not kept or choice.noise < kept[-1].noise:
            kept.append(choice)
    return kept
