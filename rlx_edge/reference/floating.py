"""What each op means on float32 tensors. Sums are made in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Conv, Conv3d, ConvTranspose2d, MatMul, Op, Pool
from rlx_edge.ir.ops.conv import pad_sides, spread_output
from rlx_edge.ir.ops.reduction import ReduceOp
from rlx_edge.reference.binary import binary
from rlx_edge.reference.reductions import reduce, softmax
from rlx_edge.reference.unary import activation, clamp
from rlx_edge.reference.windows import correlate, from_nhwc, to_nhwc, windows

__all__ = [
    "activation",
    "binary",
    "clamp",
    "conv",
    "conv3d",
    "conv_transpose2d",
    "matmul",
    "pool",
    "reduce",
    "softmax",
    "window_counts",
]


def matmul(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, MatMul)
    if x[0].dtype.kind != "f":
        return np.asarray(np.matmul(x[0], x[1]))
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(x[0].astype(np.float64), x[1].astype(np.float64)).astype(np.float32))


def conv(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Conv)
    patches = windows(to_nhwc(x[0], op.layout), op, 0.0, op.dilation)
    sums = correlate(patches, to_nhwc(x[1], op.layout), op.groups)
    return from_nhwc(sums.astype(np.float32), op.layout)


def pool(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Pool)
    image = to_nhwc(x[0], op.layout)
    if op.kind is ReduceOp.MAX:
        lowest = -np.inf if image.dtype.kind == "f" else np.iinfo(image.dtype).min
        result = windows(image, op, lowest).max(axis=(3, 4))
    else:
        sums = windows(image, op, 0.0).astype(np.float64).sum(axis=(3, 4))
        result = sums / window_counts(op, image)
    return from_nhwc(result.astype(x[0].dtype), op.layout)


def window_counts(op: Pool, image: Array) -> Array:
    """How many positions each window averages over: [1, H_out, W_out, 1], int64."""
    if op.count_include_pad:
        return np.array(op.kernel_size[0] * op.kernel_size[1], np.int64).reshape(1, 1, 1, 1)
    ones = np.ones((1, *image.shape[1:3], 1), np.int64)
    counts: Array = windows(ones, op, 0).sum(axis=(3, 4))
    return counts


def conv_transpose2d(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    """Each pixel times the window's weights, added at the window's places; padding cuts the borders off."""
    assert isinstance(op, ConvTranspose2d)
    image, weights = (to_nhwc(a, op.layout).astype(np.float64) for a in x)
    n, h, w, c_in = image.shape
    kh, kw, c_group = weights.shape[1:]
    split = image.reshape(n, h, w, op.groups, c_in // op.groups)
    kernels = weights.reshape(op.groups, c_in // op.groups, kh, kw, c_group)
    products = np.einsum("nhwgc,gcijo->nhwijgo", split, kernels).reshape(n, h, w, kh, kw, -1)
    top, left, _, _ = pad_sides(op.padding)
    rows, columns = spread_output(op, h, w)
    (sy, sx), (dy, dx) = op.stride, op.dilation
    height = max((h - 1) * sy + (kh - 1) * dy + 1, top + rows)
    width = max((w - 1) * sx + (kw - 1) * dx + 1, left + columns)
    full = np.zeros((n, height, width, products.shape[-1]))
    for i in range(kh):
        for j in range(kw):
            y, z = i * dy, j * dx
            full[:, y : y + (h - 1) * sy + 1 : sy, z : z + (w - 1) * sx + 1 : sx] += products[:, :, :, i, j]
    return from_nhwc(full[:, top : top + rows, left : left + columns].astype(np.float32), op.layout)


def conv3d(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Conv3d)
    sides = [(0, 0), (0, 0), *((op.padding[k], op.padding[k - 3]) for k in range(3))]
    padded = np.pad(x[0].astype(np.float64), sides)
    reach = [(size - 1) * step + 1 for size, step in zip(x[1].shape[2:], op.dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3, 4))
    every = (slice(None), slice(None), *(slice(None, None, step) for step in (*op.stride, *op.dilation)))
    patches = view[every]
    n, c_in, *size = patches.shape[:5]
    groups, c_out = op.groups, x[1].shape[0]
    split = patches.reshape(n, groups, c_in // groups, *patches.shape[2:])
    kernels = x[1].astype(np.float64).reshape(groups, c_out // groups, *x[1].shape[1:])
    sums = np.einsum("ngcdhwijk,gocijk->ngodhw", split, kernels, optimize=True)
    return np.asarray(sums.reshape(n, c_out, *size).astype(np.float32))
