"""Shapes that float and int8 operators share: windows (SAME or VALID as pixels), weights, rows, reduced axes."""

from __future__ import annotations

from dataclasses import dataclass

import tflite

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import MAX_ELEMENTS, OpContext
from rlx_edge.ir import Array, Shape

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """(rows, columns) each, and padding as (top, left, bottom, right)."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]


def same_padding(size: int, reach: int, stride: int) -> Pair:
    """(before, after) so that the output has ceil(size / stride) positions; an odd pixel goes after."""
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def conv_window(ctx: OpContext, image: Shape, kernel: Pair) -> Window:
    """The window of a convolution on an NHWC image."""
    return _window(ctx, image, kernel, (ctx.integer("DilationHFactor"), ctx.integer("DilationWFactor")))


def pool_window(ctx: OpContext, image: Shape) -> Window:
    """The window of a pool on an NHWC image."""
    return _window(ctx, image, (ctx.integer("FilterHeight"), ctx.integer("FilterWidth")), (1, 1))


def _window(ctx: OpContext, image: Shape, kernel: Pair, dilation: Pair) -> Window:
    stride, padding = (ctx.integer("StrideH"), ctx.integer("StrideW")), ctx.integer("Padding")
    if len(image) != 4:
        raise UnsupportedError(f"an operand of shape {list(image)} where an image of rank 4 is needed")
    if min(*kernel, *stride, *dilation) < 1:
        raise UnsupportedError(f"kernel {list(kernel)}, stride {list(stride)}, dilation {list(dilation)}")
    if padding == tflite.Padding.VALID:
        return Window(kernel, stride, dilation, (0, 0, 0, 0))
    if padding != tflite.Padding.SAME:
        raise UnsupportedError(f"the padding {padding}")
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    (top, bottom), (left, right) = (same_padding(image[1 + i], reaches[i], stride[i]) for i in (0, 1))
    if image[0] * (image[1] + top + bottom) * (image[2] + left + right) * image[3] > MAX_ELEMENTS:
        raise UnsupportedError(f"an image that has more than {MAX_ELEMENTS} elements with its padding")
    return Window(kernel, stride, dilation, (top, left, bottom, right))


def conv_groups(w: Array, image: Shape) -> int:
    """Groups of a CONV_2D with weights [C_out, kH, kW, C_in / groups]."""
    if w.ndim != 4 or len(image) != 4:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(image)}: rank 4 is needed")
    return image[3] // int(w.shape[3])


def depthwise_weights(ctx: OpContext, w: Array, image: Shape) -> Array:
    """[1, kH, kW, C_out] as [C_out, kH, kW, 1], checked against the image's channels and the depth multiplier."""
    if w.ndim != 4 or len(image) != 4 or w.shape[0] != 1:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(image)}: [1, kH, kW, C] is needed")
    multiplier = ctx.integer("DepthMultiplier")
    if image[3] * multiplier != w.shape[3]:
        raise ModelError(
            f"{ctx.describe()}: {image[3]} channels times the depth multiplier {multiplier} "
            f"are not {w.shape[3]} channels"
        )
    moved: Array = w[0].transpose(2, 0, 1)[..., None]
    return moved


def dense_rows(ctx: OpContext, w: Array, x: int) -> int:
    """How many rows of weights [N, K] an operand of FULLY_CONNECTED holds."""
    if ctx.integer("WeightsFormat") != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise UnsupportedError(f"the weights format {ctx.integer('WeightsFormat')}")
    if w.ndim != 2 or ctx.type(x).elements % w.shape[1]:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(ctx.type(x).shape)}")
    return ctx.type(x).elements // int(w.shape[1])


def reduced_axes(ctx: OpContext, x: int) -> tuple[int, ...]:
    """The axes of a reduction (operand 1), sorted and not negative."""
    axes, _ = ctx.integers(1, "axes")
    rank = len(ctx.type(x).shape)
    if not axes:
        raise UnsupportedError("a reduction over no axis")
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"{ctx.describe()}: axes {axes} of an operand of rank {rank}")
    return tuple(sorted({axis % rank for axis in axes}))


def softmax_beta(ctx: OpContext) -> float:
    beta = float(ctx.option("Beta"))
    if not 0 < beta < float("inf"):
        raise UnsupportedError(f"beta = {beta:g}")
    return beta
