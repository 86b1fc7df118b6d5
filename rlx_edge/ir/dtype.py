"""Element types, with their size in bits."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""Any tensor's values."""


class DType(Enum):
    """An element type. The value is the name used in text and in files.

    C64 is a complex number of two f32. I4 and I2 are weights of 4 and 2 bits; in Python each of their values is an
    int8, in files they are packed (ir/subbyte.py).
    """

    F16 = "f16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    I2 = "i2"
    I4 = "i4"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits that one element takes when packed."""
        return {"bool": 8}.get(self.value) or int(self.value[1:])

    @property
    def is_integer(self) -> bool:
        return self.value[0] in "iu"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype that holds one element, of less than a byte too."""
        return np.dtype(_NUMPY[self])

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if not self.is_integer:
            raise ValueError(f"{self.value} is not an integer type")
        top = 1 << (self.bits - (0 if self is DType.U8 else 1))
        return (0 if self is DType.U8 else -top), top - 1

    @staticmethod
    def of(array: Array) -> DType:
        """The DType of a numpy array. Raises ValueError for a dtype that the IR does not have."""
        for dtype, scalar in _NUMPY.items():
            if array.dtype == np.dtype(scalar) and dtype.bits >= 8:
                return dtype
        raise ValueError(f"no IR dtype holds numpy's {array.dtype}")


_NUMPY: dict[DType, type[np.generic]] = {
    DType.F16: np.float16,
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.C64: np.complex64,
    DType.I2: np.int8,
    DType.I4: np.int8,
    DType.I8: np.int8,
    DType.U8: np.uint8,
    DType.I16: np.int16,
    DType.I32: np.int32,
    DType.I64: np.int64,
    DType.BOOL: np.bool_,
}

NOT_AT_THE_EDGE: tuple[DType, ...] = (DType.F16, DType.F64, DType.C64)
"""What a graph can hold, but neither importers take nor targets compute with."""

WEIGHTS: tuple[DType, ...] = (DType.I8, DType.I4, DType.I2)
"""What the weights of an integer convolution or matrix product may be."""
