"""Windows over images, for convolution and pooling."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array
from rlx_edge.ir.ops.base import Layout
from rlx_edge.ir.ops.conv import Window, pad_sides


def to_nhwc(x: Array, layout: Layout) -> Array:
    return x.transpose(0, 2, 3, 1) if layout is Layout.NCHW else x


def from_nhwc(x: Array, layout: Layout) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if layout is Layout.NCHW else x


def windows(x: Array, op: Window, fill: float, dilation: tuple[int, ...] = (1, 1)) -> Array:
    """[N, H, W, C] padded with `fill` -> [N, H_out, W_out, kH, kW, C], a read-only view where possible."""
    top, left, bottom, right = pad_sides(op.padding)
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=x.dtype.type(fill))
    reach = [(k - 1) * d + 1 for k, d in zip(op.kernel_size, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(1, 2))
    strided = view[:, :: op.stride[0], :: op.stride[1], :, :: dilation[0], :: dilation[1]]
    moved: Array = strided.transpose(0, 1, 2, 4, 5, 3)
    return moved


def correlate(patches: Array, weights: Array, groups: int) -> Array:
    """Sum over windows: [N, H, W, kH, kW, C] with weights [C_out, kH, kW, C/groups] -> [N, H, W, C_out] in float64.

    Integers up to 2^53 are exact in float64, so int8 products summed this way are the exact accumulators.
    """
    n, h, w, kh, kw, c = patches.shape
    c_out = weights.shape[0]
    split = patches.astype(np.float64).reshape(n * h * w, kh * kw, groups, c // groups)
    x = split.transpose(2, 0, 1, 3).reshape(groups, n * h * w, -1)
    k = weights.astype(np.float64).reshape(groups, c_out // groups, -1).transpose(0, 2, 1)
    sums: Array = np.matmul(x, k).transpose(1, 0, 2).reshape(n, h, w, c_out)
    return sums
