"""Weights of 4 and 2 bits for the DSP extension: those of 4 channels are digits of a number (rlx_digits_dsp.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.variants import packing, proofs
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.ir import Array

CHANNELS = 4
ACCUMULATOR_BITS = 30


@dataclass(frozen=True)
class Digits:
    """Weights of so many bits, 4 or 2."""

    bits: int

    @property
    def offset(self) -> int:
        """What is added to the weights of channels 1 to 3."""
        return 1 << (self.bits - 1)

    @property
    def powers(self) -> Array:
        """By which the channels' weights count, int64 [4]."""
        return np.int64(1) << self.bits * np.arange(CHANNELS - 1, -1, -1, dtype=np.int64)

    def refused(self, w: Weighted, quads: Array) -> str | None:
        """Why channels [n, 4] cannot be told from each other, or why there are other weights."""
        added = self.offset * (np.arange(CHANNELS) > 0)
        sums = limit_sums(w, quads.ravel(), np.tile(self.powers, len(quads)), np.tile(added, len(quads)))
        return self.refused_weights(w) or sums

    def refused_weights(self, w: Weighted) -> str | None:
        """Why weights are no digits, or an accumulator is too large, whatever the digits."""
        outside = proofs.limit_weights(w, -self.offset, self.offset - 1)
        return outside or proofs.limit_accumulators(w, ACCUMULATOR_BITS)

    def start(self, w: Weighted, quad: Array) -> Array:
        """What the sums of 4 channels begin with, int32 [4]."""
        return packing.wrapped(np.cumsum(w.bias[quad] * self.powers))

    def numbers(self, rows: Array) -> Array:
        """Weights [4, steps, 2] of an even number of steps as the stream holds them, int16 or int8."""
        added = self.offset * (np.arange(CHANNELS) > 0)
        numbers = np.tensordot(self.powers, rows.astype(np.int64) + added[:, None, None], axes=1)
        if self.bits == 4:
            return packing.int16(numbers)
        by_two = numbers.reshape(-1, 2, 2).transpose(0, 2, 1)
        return packing.int8(by_two)


def limit_sums(w: Weighted, channels: Array, powers: Array, added: Array) -> str | None:
    """Why channels [n] cannot be told from each other: the sums of products with digits, which are the weights and what
    is `added` to them, times `powers`, do not fit in int32."""
    largest = (w.bound[channels] + added * 128 * w.rows.shape[1]) * powers
    if largest.max() < 1 << 31:
        return None
    first = int(largest.argmax())
    return f"channel {channels[first]}: {powers[first]} times its accumulator can reach {largest[first]}"


def zero_point(w: Weighted) -> Array:
    """What a stream with scales begins with."""
    return packing.int32([2 * w.out_zp + 1])


def scales(w: Weighted, channels: Array, moves: Array) -> tuple[Array, Array]:
    """Multipliers, and shifts with the steps to the next channel, of an even number of channels."""
    return packing.int32(w.multipliers[channels]), packing.int16(w.shifts[channels] + 256 * moves)
