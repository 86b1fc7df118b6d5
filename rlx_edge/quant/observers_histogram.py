"""Counts of a tensor's values in bins that do not depend on the data: the upper bits of IEEE 754 numbers.

A bin is a sign, an exponent and the first MANTISSA_BITS bits of the mantissa, so it is narrower than 1/512 of its
values. Only OCTAVES exponents are kept apart, the largest that occur; smaller values are counted as 0. When a larger
value comes, bins that fall below join the count of 0, so that the final counts follow from the values alone, in
whatever order and portions they came.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlx_edge.ir import Array

MANTISSA_BITS = 9
OCTAVES = 16

_SHIFT = 23 - MANTISSA_BITS
_SIZE = OCTAVES << MANTISSA_BITS
_CHUNK = 1 << 15
"""Values at once, so that what numpy makes of them stays in a core's cache."""


class Histogram:
    """Counts of float32 values in 128 KiB, however many there are."""

    def __init__(self) -> None:
        self.top = OCTAVES
        """The biased exponent of the largest magnitude; at least OCTAVES, so that subnormal numbers count as 0."""
        self.counts: NDArray[np.int64] = np.zeros(2 * _SIZE + 1, np.int64)
        """By position: negative values from the largest magnitude on, 0 in the middle, positive values."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def update(self, values: Array, low: float, high: float) -> None:
        """Count float32 values, all finite and between `low` and `high`."""
        self._raise_top(int(np.float32(max(-low, high)).view(np.int32)) >> 23)
        bits = np.ascontiguousarray(values).reshape(-1).view(np.int32)
        for start in range(0, bits.size, _CHUNK):
            self._count(bits[start : start + _CHUNK], signed=low < 0)

    def _count(self, bits: NDArray[np.int32], signed: bool) -> None:
        positions = (bits & 0x7FFFFFFF if signed else bits) >> _SHIFT
        positions -= self._base - 1
        np.maximum(positions, 0, out=positions)
        if signed:
            signs = bits >> 31  # -1 or 0: x ^ -1 is -x - 1.
            positions ^= signs
            positions -= signs
            positions += _SIZE
            self.counts += np.bincount(positions, minlength=2 * _SIZE + 1)
        else:  # Negative zero has a negative position, which is 0 by now.
            found = np.bincount(positions)
            self.counts[_SIZE : _SIZE + found.size] += found

    @property
    def _base(self) -> int:
        """The upper bits of the smallest magnitude that is not counted as 0."""
        return (self.top - OCTAVES + 1) << MANTISSA_BITS

    def merge(self, other: Histogram) -> None:
        """Take in what another has counted."""
        self._raise_top(other.top)
        self.counts += other._moved_to(self.top)

    def _raise_top(self, top: int) -> None:
        if top > self.top:
            self.counts = self._moved_to(top)
            self.top = top

    def _moved_to(self, top: int) -> NDArray[np.int64]:
        """The counts by position under another `top`, which is not smaller."""
        down = min((top - self.top) << MANTISSA_BITS, _SIZE)
        moved = np.zeros_like(self.counts)
        moved[down:_SIZE] = self.counts[: _SIZE - down]
        moved[_SIZE] = self.counts[_SIZE - down : _SIZE + 1 + down].sum()
        moved[_SIZE + 1 : 2 * _SIZE + 1 - down] = self.counts[_SIZE + 1 + down :]
        return moved

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The middle of each bin that holds values, ascending, and how many it holds."""
        held = np.flatnonzero(self.counts)
        positions = held - _SIZE
        bits = ((np.abs(positions) + self._base - 1) << _SHIFT) + (1 << (_SHIFT - 1))
        middles = bits.astype(np.int32).view(np.float32).astype(np.float64)
        return np.sign(positions) * middles, self.counts[held]
