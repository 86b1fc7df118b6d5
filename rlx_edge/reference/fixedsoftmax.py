"""Fixed-point softmax, as TensorFlow Lite's int8 kernel computes it with gemmlowp's fixed-point functions.

Numbers are int32 with an implied binary point: Fk has k integer bits, so raw / 2^(31-k) is its value.
"""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array, FrozenExp, FrozenSoftmax
from rlx_edge.reference.fixedpoint import Int, high_mul, shift_right

_MAX, _MIN = (1 << 31) - 1, -(1 << 31)

EXP_MINUS_EIGHTH = 1895147668
ONE_THIRD = 715827883
EXP_STEPS = (  # (weight of the bit in F5, exp of minus that weight in F0)
    (1 << 24, 1672461947),
    (1 << 25, 1302514674),
    (1 << 26, 790015084),
    (1 << 27, 290630308),
    (1 << 28, 39332535),
    (1 << 29, 720401),
    (1 << 30, 242),
)
F2_48_OVER_17 = 1515870810
F2_MINUS_32_OVER_17 = -1010580540
F2_ONE = 1 << 29
SUM_INTEGER_BITS = 12


def _saturating_left(x: Int, bits: int) -> Int:
    return np.asarray(np.clip(x << bits, _MIN, _MAX))


def exp_of_negative(a: Int, integer_bits: int = 5) -> Int:
    """exp(a) in F0 for a <= 0, in F5 (from -32 to 0) or in F4 (from -16 to 0)."""
    finer = 5 - integer_bits
    quarter = 1 << (24 + finer)
    rest = (a & (quarter - 1)) - quarter
    x = _saturating_left(rest, integer_bits) + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    series = shift_right(high_mul(shift_right(x4, 2) + x3, ONE_THIRD) + x2, 1)
    result = EXP_MINUS_EIGHTH + high_mul(EXP_MINUS_EIGHTH, x + series)
    remainder = rest - a
    for bit, factor in EXP_STEPS[: len(EXP_STEPS) - finer]:
        result = np.where(remainder & (bit << finer), high_mul(result, factor), result)
    return np.where(a == 0, _MAX, result)


def reciprocal_of_one_plus(a: Int) -> Int:
    """1 / (1 + a) in F0 for a from 0 to 1 in F0."""
    return _saturating_left(_twice_reciprocal(a), 1)


def one_minus_over_one_plus(a: Int) -> Int:
    """(1 - a) / (1 + a) in F0 for a from 0 to 1 in F0: tanh(-ln(a) / 2)."""
    return _saturating_left(_twice_reciprocal(a) - F2_ONE, 2)


def _twice_reciprocal(a: Int) -> Int:
    """2 / (1 + a) in F2 for a from 0 to 1 in F0, by three Newton steps."""
    half_denominator = (a + _MAX + 1) >> 1
    x = F2_48_OVER_17 + high_mul(half_denominator, F2_MINUS_32_OVER_17)
    for _ in range(3):
        error = F2_ONE - high_mul(half_denominator, x)
        x = x + _saturating_left(high_mul(x, error), 2)
    return x


def softmax_row_exps(rows: Array, frozen: FrozenSoftmax) -> Array:
    """Softmax along the last axis of int8 rows; the output has scale 1/256 and zero point -128."""
    wide = rows.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True)
    counted = difference >= frozen.diff_min
    scaled = high_mul(np.where(counted, difference, 0) << frozen.left_shift, frozen.multiplier)
    exps = np.where(counted, exp_of_negative(scaled), 0)
    total = shift_right(exps, SUM_INTEGER_BITS).sum(axis=-1, keepdims=True)
    headroom = 32 - np.frompyfunc(lambda v: int(v).bit_length(), 1, 1)(total).astype(np.int64)
    reciprocal = reciprocal_of_one_plus((total << headroom) - (1 << 31))
    bits_over_unit = SUM_INTEGER_BITS - headroom
    quotient = shift_right(high_mul(reciprocal, exps), bits_over_unit + 31 - 8)
    return np.where(counted, np.clip(quotient - 128, -128, 127), -128).astype(np.int8)


def softmax_by_table(rows: Array, frozen: FrozenExp) -> Int:
    """Softmax along the last axis of int8 rows under the rule onnx, before the zero point is added.

    The quotient power / (sum * out_scale) is rounded to the nearest integer, ties to even.
    """
    wide = rows.astype(np.int64)
    powers = np.array(frozen.powers, np.int64)[wide.max(axis=-1, keepdims=True) - wide]
    numerator, denominator = powers << frozen.shift, powers.sum(axis=-1, keepdims=True) * frozen.mantissa
    quotient, rest = np.divmod(numerator, denominator)
    beyond = 2 * (rest.astype(np.uint64)) > denominator.astype(np.uint64)
    tie = 2 * (rest.astype(np.uint64)) == denominator.astype(np.uint64)
    return np.asarray(quotient + (beyond | (tie & (quotient % 2 == 1))))
