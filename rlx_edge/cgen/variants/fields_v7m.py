"""Weights for two products in one multiplication (firmware/kernels/rlx_gemm_v7m.h): groups, bounds, corrections.

A multiplication of a0 + (a1 << 16) by w gives two products; 16 bits a field hold the products of a few weights before
they must be taken out. How many depends on the weights: with P the sum of a group's positive weights, N that of its
negative ones' magnitudes, and any int8 inputs, its sum of products lies between -(127 N + 128 P) and 128 N + 127 P.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.variants.packing import padded
from rlx_edge.ir import Array

HIGHEST, LOWEST = 1 << 15, -(1 << 15) + 1
"""What a group's sum of products may reach. It is subtracted from 2^15, and the result must be 0 to 2^16 - 1."""

LAST_CORRECTED = (1 << 13) - 1
"""A correction names a step by 16 bits, which count bytes of x."""

UNROLL = {4: 32, 2: 8}
"""Steps of the kernel's loops, by the size of groups."""


@dataclass(frozen=True)
class Correction:
    """A part of weight `step` that is multiplied on its own."""

    step: int
    part: int


@dataclass(frozen=True, eq=False)
class Fields:
    """weights: int8 [C_out, steps], 0 beyond the taps; `group` of them fit in the fields; corrections per channel."""

    weights: Array
    group: int
    corrections: tuple[tuple[Correction, ...], ...]

    @property
    def steps(self) -> int:
        return int(self.weights.shape[1])

    @property
    def corrected(self) -> int:
        return sum(map(len, self.corrections))

    @property
    def text(self) -> str:
        """For the comment in the generated C."""
        high, low = _reach(self.weights.reshape(len(self.weights), -1, self.group))
        return f"groups of {self.group} products reach {int(low.min())} to {int(high.max())} in fields of 16 bits"


def fields(rows: Array) -> Fields:
    """Groups of 4 with corrections, or of 2, whichever takes fewer instructions. rows: int8 [C_out, taps]."""
    weights = padded(rows, 4)
    pairs = Fields(weights, 2, ((),) * len(rows))
    quads = _quads(weights)
    found = quads if quads is not None and instructions(quads) <= instructions(pairs) else pairs
    high, low = _reach(found.weights.reshape(len(rows), -1, found.group))
    assert (high <= HIGHEST).all() and (low >= LOWEST).all(), "a field of a group would overflow"
    return found


def instructions(f: Fields) -> int:
    """What the kernel's loops over steps and corrections take for 4 positions and all channels."""
    block, channels = (18 if f.group == 4 else 22), len(f.weights)
    return channels * (block * f.steps // 4 + 3 * turns(f)) + 15 * f.corrected


def turns(f: Fields) -> int:
    """Of the unrolled loop, for one channel."""
    return -(-f.steps // UNROLL[f.group])


def _reach(groups: Array) -> tuple[Array, Array]:
    """The largest and smallest sums of products with int8 inputs, over the last axis."""
    wide = groups.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(axis=-1), np.maximum(-wide, 0).sum(axis=-1)
    return 128 * negative + 127 * positive, -(127 * negative + 128 * positive)


def _quads(weights: Array) -> Fields | None:
    """Groups of 4, by corrections where they do not fit."""
    kept = weights.astype(np.int64).reshape(len(weights), -1, 4)
    found: list[list[Correction]] = [[] for _ in kept]
    for channel, group in np.argwhere(~_fits(kept)):
        values = kept[channel, group]
        for place, part in _parts(values):
            values[place] -= part
            found[channel].append(Correction(4 * int(group) + place, part))
    if any(c.step > LAST_CORRECTED for corrections in found for c in corrections):
        return None
    return Fields(kept.reshape(weights.shape).astype(np.int8), 4, tuple(map(tuple, found)))


def _fits(groups: Array) -> Array:
    high, low = _reach(groups)
    return np.asarray((high <= HIGHEST) & (low >= LOWEST))


def _parts(values: Sequence[int] | Array) -> list[tuple[int, int]]:
    """(place, part) to take off a group of 4 so that it fits: as little as possible, of as few weights as possible."""
    left, found = [int(v) for v in values], []
    while not _fits(np.array(left)):
        place = max(range(len(left)), key=lambda i: abs(left[i]))
        sign, whole = (1 if left[place] > 0 else -1), left[place]
        for size in range(1, abs(whole) + 1):
            left[place] = whole - sign * size
            if _fits(np.array(left)):
                break
        found.append((place, whole - left[place]))
    return found
