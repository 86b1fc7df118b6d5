"""The integers that an integer op computes with, once a rounding rule has turned real scales into them.

`reference/fixedpoint.py` makes them; the reference, the host C and the device use these very numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Requant(Enum):
    """The named rounding rules; docs/numerics.md says which op has which."""

    RLX = "rlx"
    TFLM = "tflm"
    TFLITE_REF = "tflite_ref"
    TFLITE_UINT8 = "tflite_uint8"
    SINGLE = "single"
    ONNX = "onnx"


@dataclass(frozen=True)
class FrozenScale:
    """Multipliers (q31) and shifts (positive: left), one or one per output channel: x * multiplier/2^31 * 2^shift."""

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class FrozenAdd:
    """ADD and SUB: both inputs shifted left, rescaled to a common scale, summed, rescaled to the output's."""

    left_shift: int
    a: FrozenScale
    b: FrozenScale
    out: FrozenScale


@dataclass(frozen=True)
class FrozenSoftmax:
    """Fixed-point softmax: differences to the row's maximum below `diff_min` contribute nothing."""

    multiplier: int
    left_shift: int
    diff_min: int


@dataclass(frozen=True)
class FrozenTable:
    """A unary function on int8: the result's code for each code of the operand, -128 first."""

    codes: tuple[int, ...]


@dataclass(frozen=True)
class FrozenExp:
    """Softmax by a table: exp(-d * scale * beta) * 2^27 for each difference d = 0 to 255 to the row's maximum.

    The output's scale is mantissa / 2^shift, with 2^23 <= mantissa < 2^24.
    """

    powers: tuple[int, ...]
    mantissa: int
    shift: int


Frozen = FrozenScale | FrozenAdd | FrozenSoftmax | FrozenTable | FrozenExp
