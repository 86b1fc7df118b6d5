"""The preprocessing that a model was quantized with, as C: worked out ahead of time by the code that read its data.

A byte's code is looked up. A float's code is found by binary search among the smallest floats that give each code:
preprocessing and rounding only ever rise (or only ever fall) with the float, so that 255 thresholds say it all, and the
C code has nothing to round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen import text
from rlx_edge.ir import Array, QuantParams, TensorType
from rlx_edge.preprocess import Preprocess
from rlx_edge.reference.fixedpoint import Rounding, quantize_f32, round_half_away

SIGN = 1 << 31
LARGEST = 0x7F800000
"""The bits of infinity; what lies above is NaN."""


@dataclass(frozen=True)
class PreprocessTables:
    """What bytes (a camera's pixels) and floats become at the first input: a row per channel, or one row.

    `pixels` holds 256 codes a row, `thresholds` 255 keys of floats. `turns` has -1 for a channel whose code falls with
    the float, and whose thresholds are those of ~code, else 0. NaN becomes the zero point.
    """

    formula: str
    channels: int
    pixels: tuple[str, ...]
    thresholds: tuple[str, ...]
    turns: tuple[int, ...]
    zero_point: int


def preprocess_tables(
    formula: str | None, type: TensorType, rounding: Rounding = round_half_away
) -> PreprocessTables | None:
    """The tables of a formula for an input; None without a formula, or where the input is not quantized."""
    if formula is None or type.quant is None:
        return None
    steps = Preprocess.parse(formula)
    channels = max(len(steps.mean), len(steps.std))
    pixels = _codes(
        steps, type.quant, np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, channels)), rounding
    )
    turns = np.broadcast_to(np.where(np.array(steps.std) * steps.scale < 0, -1, 0), channels)
    return PreprocessTables(
        formula,
        channels,
        tuple(text.number_table(row) for row in pixels.T),
        tuple(_unsigned(row) for row in _thresholds(steps, type.quant, turns, rounding).T),
        tuple(map(int, turns)),
        type.quant.zero_point,
    )


def _codes(steps: Preprocess, quant: QuantParams, values: Array, rounding: Rounding) -> Array:
    """int8 codes of values [n, channels], exactly as data.py makes them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return quantize_f32(steps.apply(values), quant, rounding=rounding)


def _thresholds(steps: Preprocess, quant: QuantParams, turns: Array, rounding: Rounding) -> Array:
    """Keys [255, channels], int64: the least whose float gives (turned) code -127, -126, ... or more; by bisection.

    A key orders floats as numbers: the bits with the sign turned for positive ones, all bits turned for negative ones.
    A code that no float reaches has the key of infinity plus 1, which none has.
    """
    wanted = np.arange(-127, 128)[:, None]
    low = np.full((255, len(turns)), SIGN - 1 - LARGEST, np.int64)  # The key of -infinity.
    high = np.full((255, len(turns)), SIGN + LARGEST + 1, np.int64)
    while np.any(low < high):
        middle = (low + high) // 2
        reached = (_codes(steps, quant, _floats(np.minimum(middle, SIGN + LARGEST)), rounding) ^ turns) >= wanted
        reached |= middle > SIGN + LARGEST
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + 1, high))
    return high


def _floats(keys: Array) -> Array:
    """The float32 values of keys."""
    bits = np.where(keys >= SIGN, keys - SIGN, (SIGN << 1) - 1 - keys)
    return np.ascontiguousarray(bits.astype(np.uint32)).view(np.float32)


def _unsigned(row: Array) -> str:
    return text.number_table(row).replace(",", "u,")
