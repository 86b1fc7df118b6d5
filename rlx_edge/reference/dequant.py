"""DequantMatMul in float32, in one order of steps, each rounded to the nearest float32: no fused multiply-adds.

For each output, with q the codes of its column:
1. for each block b of K, in order:
   a. s = 0; for each k of the block, in order: s = s + x[k] * q[k];
   b. where any zero point of the layer is not 0: t = 0; for each k: t = t + x[k]; then s = s - zp[b] * t;
   c. total = total + scale[b] * s, from a total of 0 on;
2. total = total + bias, where there is one;
3. bounds. They compare bits as ordered integers, so that -0 is less than 0; a NaN stays one, always the same.
The C kernels (firmware/kernels/rlx_dequant_matmul.h) take the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import DequantMatMul, Op
from rlx_edge.ir.ops.dequant import STORED

NAN = 0x7FC00000
NO_BOUNDS = (-np.inf, np.inf)


def dequant_matmul(op: Op, operands: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, DequantMatMul)
    if op.scheme.kind not in STORED:
        raise UnsupportedError(f"the reference has no {op.kind_name} of weights of the scheme {op.scheme}")
    x, codes, scales, zeros = operands[:4]
    block, w = op.scheme.block_size, codes.astype(np.float32)
    total = np.zeros((len(x), w.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for b, start in enumerate(range(0, len(w), block)):
            sums, plain = np.zeros_like(total), np.zeros((len(x), 1), np.float32)
            for k in range(start, min(start + block, len(w))):
                column = x[:, k : k + 1]
                sums = sums + column * w[k]
                plain = plain + column
            if zeros.any():
                sums = sums - zeros[b] * plain
            total = total + scales[b] * sums
        if len(operands) > 4:
            total = total + operands[4]
    return bounded(total, op.clamp or NO_BOUNDS)


def ordered(value: float) -> int:
    """An int32 that compares as the float32 does, but for -0, which comes before 0."""
    bits = int(np.array(value, np.float32).view(np.int32))
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def bounded(values: Array, clamp: tuple[float, float]) -> Array:
    """float32 values within bounds, and any NaN as the one with the bits NAN."""
    bits = values.view(np.int32)
    keys = np.clip(bits ^ ((bits >> 31) & 0x7FFFFFFF), ordered(clamp[0]), ordered(clamp[1]))
    found = (keys ^ ((keys >> 31) & 0x7FFFFFFF)).astype(np.int32)
    found[np.isnan(values)] = NAN
    return np.asarray(found.view(np.float32))
