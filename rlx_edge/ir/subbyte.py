"""Values of fewer than 8 bits, packed into bytes: row-major, the first value in the lowest bits.

TensorFlow Lite's INT4 tensors and ONNX's are packed in the same way. What is left over of the last byte is 0.
"""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.ir.dtype import Array


def pack(values: Array, bits: int) -> Array:
    """int8 values that `bits` (4 or 2) hold, of any shape, to uint8 [ceil(size * bits / 8)]."""
    per_byte = 8 // bits
    flat = values.astype(np.uint8).ravel() & ((1 << bits) - 1)
    flat = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(flat << shifts, axis=1), np.uint8)


def unpack(data: Array, bits: int, shape: tuple[int, ...]) -> Array:
    """int8 values of that shape from their packed uint8 bytes. Raises ValueError for too many or too few."""
    size = math.prod(shape)
    if data.size != (size * bits + 7) // 8:
        raise ValueError(f"{data.size} bytes for {size} values of {bits} bits")
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    fields = (data.reshape(-1, 1) >> shifts).astype(np.uint8) << np.uint8(8 - bits)
    return np.asarray(fields.astype(np.uint8).view(np.int8) >> (8 - bits), np.int8).ravel()[:size].reshape(shape)
