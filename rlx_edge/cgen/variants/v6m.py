"""What the Armv6-M kernels need of weights and scales (firmware/kernels/rlx_v6m.h): groups of products that fit in
16-bit fields, and a rescale in two multiplications where that is exact."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.cgen.variants import proofs
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.ir import Array
from rlx_edge.reference.fixedpoint import scale_double_rounding

ACCUMULATOR_BITS = 24
FIELD = 1 << 15
"""A group's sum over one position must lie in [-FIELD, FIELD), and is biased by FIELD."""

SHORT_BITS = 19
"""|acc| < 2^19 for the short rescale: acc * m0 with m0 < 2^LOW_BITS fits in int32."""
LOW_BITS, UNIT_BITS = 12, 10
"""m1 * 2^12 + m0 is about the multiplier / 2^9, so that 2^10 stands for one unit of what the rule shifts right."""
SHORT_FLAG = 256
"""In the word of the right shift, whose low byte the core uses."""
SHORT_SHIFTS = 22
CANDIDATES = np.arange(-4, 5)


def groups_fit(weights: Array) -> Array:
    """Whether sum over the last axis of w * a lies in [-2^15, 2^15) for all int8 a: bool [...]. weights: int8."""
    positive, negative = _signed_sums(weights)
    return np.asarray((127 * positive + 128 * negative < FIELD) & (-128 * positive - 127 * negative >= -FIELD))


def _signed_sums(weights: Array) -> tuple[Array, Array]:
    """Sums over the last axis of the positive weights, and of the negative ones without their sign."""
    w = weights.astype(np.int64)
    return np.maximum(w, 0).sum(axis=-1), np.maximum(-w, 0).sum(axis=-1)


def first_values(bias: Array, groups: Array) -> Array:
    """The first values of lo and hi, int64 [C_out, 2]: both positions' bias, less the FIELD that each group adds."""
    return first_pairs(bias, bias, groups)


def first_pairs(low: Array, high: Array, groups: Array) -> Array:
    """As `first_values`, where the two halves of a pair have a bias each."""
    return np.stack([_wrapped(low + (high << 16) - FIELD * groups), high], axis=1)


def _wrapped(values: Array) -> Array:
    """Modulo 2^32, as int32 values."""
    return np.asarray((values + (1 << 31)) % (1 << 32) - (1 << 31))


@dataclass(frozen=True, eq=False)
class Channels:
    """`weighted`, with weights and bias 0 in channels that give the same code whatever the input is. fixed: bool
    [C_out], which those are; codes: int64 [C_out], what they give."""

    weighted: Weighted
    fixed: Array
    codes: Array


def channels(w: Weighted) -> Channels:
    """Finds the channels whose output does not depend on the input, so that nothing of them can overflow."""
    first, last = (code_of(w, acc) for acc in accumulators(w))
    fixed = first == last  # the rescale is monotone
    rows = np.where(fixed[:, None], 0, w.rows).astype(w.rows.dtype)
    bias, bound = np.where(fixed, 0, w.bias), np.where(fixed, 0, w.bound)
    return Channels(replace(w, rows=rows, bias=bias, bound=bound), fixed, first)


def accumulators(w: Weighted) -> tuple[Array, Array]:
    """The lowest and the highest accumulator of each channel, int64 [C_out]."""
    positive, negative = _signed_sums(w.rows)
    return w.bias - 128 * positive - 127 * negative, w.bias + 127 * positive + 128 * negative


def code_of(w: Weighted, acc: Array) -> Array:
    """The output code of an accumulator of each channel, not yet clamped to less than an int8: int64 [C_out]."""
    return np.asarray(np.clip(scale_double_rounding(acc, w.multipliers, -w.shifts) + w.out_zp, -128, 127))


@dataclass(frozen=True, eq=False)
class Rescales:
    """words: int64 [C_out, 4], k, m0, m1 and s of the short rescale where it is exact, else k, ml, mh and e of the long
    one. bias: int64 [C_out], which the accumulators begin with: `Weighted.bias`, less what k adds."""

    words: Array
    bias: Array

    @property
    def long(self) -> int:
        """How many channels have the long rescale."""
        return int((self.words[:, 3] < SHORT_FLAG).sum())


def rescales(channels: Channels, halved: Array | int = 0) -> Rescales | str:
    """How each channel is rescaled, or why one cannot be. halved: int64 [C_out], the accumulators that are rescaled are
    2^halved times those of `channels`; more than 0 only where shifts are 0."""
    w = channels.weighted
    lowest = accumulators(w)[0]
    times = np.broadcast_to(np.asarray(halved, np.int64), lowest.shape)
    short, from_0 = short_scales(w, np.zeros_like(lowest), times), short_scales(w, lowest, times)
    moved = ~short.exact & from_0.exact
    exact = short.exact | moved | channels.fixed
    others = replace(w, multipliers=np.where(exact, 0, w.multipliers), shifts=np.where(exact, 1, w.shifts))
    refused = proofs.limit_accumulators(replace(w, bound=np.where(exact, 0, w.bound)), ACCUMULATOR_BITS)
    offsets = proofs.offsets(others)
    if refused is not None or isinstance(offsets, str):
        return refused or str(offsets)
    # The long rescale adds k to a value that is 2^15 too small, and wraps where that does.
    long = np.stack([_wrapped(offsets + FIELD), w.multipliers & 0xFFFF, w.multipliers >> 16, w.shifts], axis=1)
    m = np.where(channels.fixed, 0, np.where(moved, from_0.m, short.m))
    k = np.where(channels.fixed, channels.codes << UNIT_BITS, np.where(moved, from_0.k, short.k))
    s = np.where(channels.fixed, UNIT_BITS, w.shifts + _units(w.shifts)) + SHORT_FLAG
    words = np.where(exact[:, None], np.stack([k, m & (1 << LOW_BITS) - 1, m >> LOW_BITS, s], axis=1), long)
    return Rescales(words, w.bias - np.where(moved & ~channels.fixed, lowest, 0))


@dataclass(frozen=True, eq=False)
class ShortScales:
    """exact: bool [C_out]; m, k: int64 [C_out], where exact."""

    exact: Array
    m: Array
    k: Array


def short_scales(w: Weighted, less: Array, halved: Array) -> ShortScales:
    """For which channels, with acc = accumulator - less,
        g(acc) = (((acc * m) >> 12) - (acc < 0) * (2^10 - 1) + k) >> s, saturated,
    is the rescale of 2^halved * accumulator.

    Both g and the rescale f are monotone in acc, so they are equal on all of [lowest, highest], the values of acc that
    there can be, if each code q from -127 to 127 begins at the same place T: with t = g before its shift,
    t(T) >= q * 2^s and t(T - 1) < q * 2^s. For a given m that bounds k from both sides; some m around the multiplier
    / 2^9 are tried.
    """
    lowest, highest = (acc - less for acc in accumulators(w))
    shifts = np.clip(w.shifts, 0, SHORT_SHIFTS)
    q = np.arange(-127, 128)
    starts = -(-code_starts(w.multipliers, shifts, w.out_zp) >> halved[:, None]) - less[:, None]
    units = _units(shifts)
    level = q << (shifts + units)[:, None]
    at, before = np.maximum(starts, lowest[:, None]), np.minimum(starts - 1, highest[:, None])
    reached, left_out = starts <= highest[:, None], before >= lowest[:, None]
    exact = np.zeros(len(w.rows), bool)
    found_m, found_k = np.zeros(len(w.rows), np.int64), np.zeros(len(w.rows), np.int64)
    largest = np.maximum(-lowest, highest)
    possible = (largest < 1 << SHORT_BITS) & (w.shifts <= SHORT_SHIFTS) & (w.shifts >= 0)
    for m in np.maximum((w.multipliers << halved >> 31 - LOW_BITS - units)[:, None] + CANDIDATES, 0).T:
        low = np.where(reached, level - _before_k(at, m), -(1 << 40)).max(axis=1)
        high = np.where(left_out, level - 1 - _before_k(before, m), 1 << 40).min(axis=1)
        k = low + (high - low) // 2
        fits = possible & ~exact & (low <= high) & (np.abs(k) < 1 << 30) & (largest * m >> LOW_BITS < 1 << 30)
        exact, found_m, found_k = exact | fits, np.where(fits, m, found_m), np.where(fits, k, found_k)
    return ShortScales(exact, found_m, found_k)


def _units(shifts: Array) -> Array:
    """UNIT_BITS, or fewer where the zero point << s would leave int32. Ties are then no longer rounded as they should
    be, which `short_scales` finds out where it matters."""
    return np.asarray(np.minimum(UNIT_BITS, SHORT_SHIFTS + 1 - shifts))


def _before_k(acc: Array, m: Array) -> Array:
    return np.asarray(((acc * m[:, None]) >> LOW_BITS) - np.where(acc < 0, (1 << UNIT_BITS) - 1, 0))


def code_starts(multipliers: Array, shifts: Array, out_zp: int) -> Array:
    """The smallest accumulator that the rescale takes to q or more, for q from -127 to 127: int64 [C_out, 255].

    q - out_zp = d needs a rescaled h >= d * 2^s - 2^(s - 1), and one more for d <= 0, as ties go away from zero; and
    h = (acc * m + 2^30) >> 31 >= H needs acc >= (H * 2^31 - 2^30) / m. multipliers of 0 give any value.
    """
    d, s = np.arange(-127, 128) - out_zp, shifts[:, None]
    least = (d << s) - (np.int64(1) << s >> 1) + ((d <= 0) & (s > 0))
    m = np.maximum(multipliers, 1)[:, None]
    return np.asarray(-(-((least << 31) - (1 << 30)) // m))
