"""What the kinds of ir/ops/volumes.py mean, on images [N, C, H, W] and volumes [N, C, D, H, W]."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.volumes import ConvTranspose3d, Im2Col, Interpolate3d, ResizeNearest2x
from rlx_edge.reference.further import OpFunction
from rlx_edge.reference.windows import to_nhwc, windows

Types = Sequence[TensorType]


def resize_nearest_2x(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    return double(x[0])


def double(image: Array) -> Array:
    """Each pixel of [N, C, H, W] four times."""
    return image.repeat(2, axis=2).repeat(2, axis=3)


def interpolate3d(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Interpolate3d)
    result = x[0]
    for axis, size in enumerate(op.size, start=2):
        result = np.take(result, np.arange(size) * x[0].shape[axis] // size, axis=axis)
    return result


def im2col(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Columns in the order of a weight [C_out, C, kH, kW]: channel, row, column of the window."""
    assert isinstance(op, Im2Col)
    patches = windows(to_nhwc(x[0], op.layout), op, 0.0, op.dilation)
    return patches.transpose(0, 1, 2, 5, 3, 4).reshape(out.shape)


def conv_transpose3d(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Each element times the window's weights, added at the window's places; padding cuts the borders off.

    The sums are made in float64 and rounded once.
    """
    assert isinstance(op, ConvTranspose3d)
    data, weights = (value.astype(np.float64) for value in x)
    (n, c_in, *size), (_, c_group, *kernel) = data.shape, weights.shape
    split = data.reshape(n, op.groups, c_in // op.groups, *size)
    kernels = weights.reshape(op.groups, c_in // op.groups, c_group, *kernel)
    reach = [
        max((m - 1) * stride + dilation * (k - 1) + 1, pad + wanted)
        for m, k, stride, dilation, pad, wanted in zip(
            size, kernel, op.stride, op.dilation, op.padding, out.shape[2:], strict=True
        )
    ]
    full = np.zeros((n, c_group * op.groups, *reach))
    for i, j, k in product(*map(range, kernel)):
        spread = np.einsum("ngcdhw,gco->ngodhw", split, kernels[:, :, :, i, j, k]).reshape(n, -1, *size)
        at = [
            slice(first * dilation, first * dilation + (m - 1) * stride + 1, stride)
            for first, dilation, m, stride in zip((i, j, k), op.dilation, size, op.stride, strict=True)
        ]
        full[(slice(None), slice(None), *at)] += spread
    kept = [slice(pad, pad + wanted) for pad, wanted in zip(op.padding, out.shape[2:], strict=True)]
    return full[(slice(None), slice(None), *kept)].astype(out.dtype.numpy)


FUNCTIONS: dict[type[Op], OpFunction] = {
    ResizeNearest2x: resize_nearest_2x,
    Interpolate3d: interpolate3d,
    Im2Col: im2col,
    ConvTranspose3d: conv_transpose3d,
}

ON_CODES: dict[type[Op], OpFunction] = {ResizeNearest2x: resize_nearest_2x, Interpolate3d: interpolate3d}
