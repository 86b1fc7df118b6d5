"""What calibration keeps of the values that it sees: extremes, and counts for the methods that clip.

Everything here is a count, an extreme, or a value of the data itself, so that states merged in any order, from any
split of the samples, are equal bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array


@dataclass(frozen=True)
class Range:
    """The real values that a tensor's codes cover, how they were chosen, and what this does to the values seen.

    `clipped` is the share of them that lies outside; `sqnr_db` the signal-to-noise ratio that int8 keeps of them, from
    their counts, or None where none were made.
    """

    low: float
    high: float
    method: str = "minmax"
    clipped: float = 0.0
    sqnr_db: float | None = None

    @property
    def is_constant(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen of a tensor: extremes of each channel (last axis) float32 [C], and how many values in all."""

    channel_low: Array
    channel_high: Array
    count: int

    @property
    def low(self) -> float:
        return float(self.channel_low.min())

    @property
    def high(self) -> float:
        return float(self.channel_high.max())


def extremes(values: Array) -> tuple[Array, Array]:
    """The smallest and the largest value of each index of the last axis, [C] each; of a scalar, [1]."""
    channels = values.shape[-1] if values.ndim else 1
    rows = values.reshape(-1, values.shape[-2] * channels if values.ndim > 2 else channels)
    low, high = rows.min(axis=0), rows.max(axis=0)  # A row of pixels at a time: long inner loops.
    return low.reshape(-1, channels).min(axis=0), high.reshape(-1, channels).max(axis=0)


class MinMax:
    """Keeps the smallest and the largest value of each channel."""

    def __init__(self) -> None:
        self._low: Array | None = None
        self._high: Array | None = None
        self._count = 0

    def update(self, values: Array) -> bool:
        """Take in one batch; False, and nothing kept, where it holds NaN or infinity."""
        low, high = extremes(values)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return False
        self._take(low, high, values.size)
        return True

    def merge(self, other: MinMax) -> None:
        """Take in what another has seen."""
        if other._low is not None and other._high is not None:
            self._take(other._low, other._high, other._count)

    def _take(self, low: Array, high: Array, count: int) -> None:
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)
        self._count += count

    @property
    def seen(self) -> Seen:
        """Raises ValueError before any update."""
        if self._low is None or self._high is None:
            raise ValueError("nothing was seen yet")
        return Seen(self._low, self._high, self._count)

    @property
    def range(self) -> Range:
        return Range(self.seen.low, self.seen.high)


GROUP = 32
"""Samples, by their numbers, whose extremes a moving average takes as one."""

GROUPS = 64
"""Groups that a moving average looks back on: what is older would weigh less than 0.2 %."""

MOMENTUM = 0.9


class MovingAverage:
    """Keeps the extremes of groups of GROUP samples, by the samples' numbers, so that no order of arrival matters."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[float, float, int]] = {}

    def update(self, values: Array, first: int, samples: int) -> None:
        """Take in the values of that many samples, one after another, from sample number `first` on."""
        flat = values.reshape(samples, -1)
        for start in range(first - first % GROUP, first + len(flat), GROUP):
            part = flat[max(start - first, 0) : start + GROUP - first]
            self._take(start // GROUP, float(part.min()), float(part.max()), len(part))
        self._forget()

    def merge(self, other: MovingAverage) -> None:
        """Take in what another has seen of other samples."""
        for group, (low, high, count) in other._groups.items():
            self._take(group, low, high, count)
        self._forget()

    def _take(self, group: int, low: float, high: float, count: int) -> None:
        was = self._groups.get(group, (low, high, 0))
        self._groups[group] = min(was[0], low), max(was[1], high), was[2] + count

    def _forget(self) -> None:
        newest = max(self._groups)
        self._groups = {group: kept for group, kept in self._groups.items() if group > newest - GROUPS}

    @property
    def bounds(self) -> tuple[float, float]:
        """The average of the groups' extremes, weighted by MOMENTUM to a group's age, and by its samples."""
        newest = max(self._groups)
        low = high = weights = 0.0
        for group in sorted(self._groups):
            group_low, group_high, count = self._groups[group]
            weight = MOMENTUM ** (newest - group) * count
            low, high, weights = low + weight * group_low, high + weight * group_high, weights + weight
        return low / weights, high / weights
