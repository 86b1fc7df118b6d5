"""ONNX's integer types that quantized values have, and what they are here: int8, or weights of fewer bits.

Unsigned ones become signed, exactly: half the range is taken off the values and off the zero point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from rlx_edge.ir import Array, DType


@dataclass(frozen=True)
class Codes:
    """What a type of the file becomes: `offset` is taken off its values."""

    dtype: DType
    offset: int = 0

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value in the file."""
        low, high = self.dtype.limits
        return low + self.offset, high + self.offset


@dataclass(frozen=True, eq=False)
class Blocks:
    """A constant whose `size` int8 values in a row along `axis` share a float32 scale and zero point. `dtype` is what
    the values need."""

    codes: Array
    dtype: DType
    scales: Array
    zeros: Array
    axis: int
    size: int

    def transposed(self) -> Blocks:
        """Of a matrix."""
        values = (self.codes.T, self.dtype, self.scales.T, self.zeros.T)
        return Blocks(*values, 1 - self.axis, self.size)

    @property
    def real(self) -> Array:
        """The float32 values that they stand for."""
        places = np.arange(self.codes.shape[self.axis]) // self.size
        zeros, scales = (np.take(v, places, self.axis) for v in (self.zeros, self.scales))
        return np.asarray((self.codes - zeros) * scales, np.float32)


CODES: Mapping[str, Codes] = {
    "int8": Codes(DType.I8),
    "uint8": Codes(DType.I8, 128),
    "int4": Codes(DType.I4),
    "uint4": Codes(DType.I4, 8),
    "int2": Codes(DType.I2),
    "uint2": Codes(DType.I2, 2),
}
"""By the name of the numpy dtype that the `onnx` package reads a tensor as; those below a byte are of `ml_dtypes`."""

ACTIVATIONS = ("int8", "uint8")
"""What the tensors that a model computes may be."""

PACKED_BITS: Mapping[int, int] = {
    getattr(onnx.TensorProto, name): bits
    for name, bits in {"INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}.items()
    if hasattr(onnx.TensorProto, name)
}
"""Bits an element of the types that are stored packed, the first element in the lowest bits."""


def to_int8(values: Array) -> Array:
    """Quantized values of any type in CODES, as they are here: int8."""
    return (values.astype(np.int16) - CODES[values.dtype.name].offset).astype(np.int8)
