"""TFLite operator -> graph: one builder a kind, in one table.

A builder returns the node of the operator's output. It raises UnsupportedError with the reason alone ("int16 ...");
the importer adds which operator it was and goes on, so that one message lists everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tflite

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.ir import Array, DType, QuantParams, real_multipliers
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Concat,
    Dequantize,
    Layout,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
)

Builder = Callable[[OpContext], int]

SOFTMAX_OUTPUT = QuantParams.per_tensor(1 / 256, -128)

_ACTIVATION_LIMITS: Mapping[int, tuple[float, float]] = {
    tflite.ActivationFunctionType.RELU: (0.0, float("inf")),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


# ---- What several operators share -----------------------------------------------------------------------------------


def fused_clamp(ctx: OpContext, out: QuantParams) -> tuple[int, int] | None:
    """A fused activation as bounds in quantized units: zero_point + round(limit / scale), the division in float32.

    None when it bounds nothing that int8 does not.
    """
    fused = ctx.integer("FusedActivationFunction")
    if fused == tflite.ActivationFunctionType.NONE:
        return None
    if fused not in _ACTIVATION_LIMITS:
        raise UnsupportedError(f"the fused activation {fused} (NONE, RELU, RELU6 and RELU_N1_TO_1 are supported)")
    low, high = (_quantized_limit(limit, out) for limit in _ACTIVATION_LIMITS[fused])
    return None if (low, high) == DType.I8.limits else (low, high)


def _quantized_limit(limit: float, out: QuantParams) -> int:
    low, high = DType.I8.limits
    with np.errstate(over="ignore"):
        steps = float(np.float32(limit) / np.float32(out.scale))
    if abs(steps) > high - low:
        return high if steps > 0 else low
    rounded = int(np.copysign(np.floor(abs(steps) + 0.5), steps))
    return min(max(rounded + out.zero_point, low), high)


def same_padding(size: int, reach: int, stride: int) -> tuple[int, int]:
    """(before, after) so that the output has ceil(size / stride) positions; an odd pixel goes after."""
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def image_padding(
    ctx: OpContext, x: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of an operator's SAME or VALID on an NHWC image."""
    shape, padding = ctx.type(x).shape, ctx.integer("Padding")
    if len(shape) != 4:
        raise UnsupportedError(f"an operand of shape {list(shape)} where an image of rank 4 is needed")
    if min(*kernel, *stride, *dilation) < 1:
        raise UnsupportedError(f"kernel {list(kernel)}, stride {list(stride)}, dilation {list(dilation)}")
    if padding == tflite.Padding.VALID:
        return (0, 0, 0, 0)
    if padding != tflite.Padding.SAME:
        raise UnsupportedError(f"the padding {padding}")
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    (top, bottom), (left, right) = (same_padding(shape[1 + i], reaches[i], stride[i]) for i in (0, 1))
    return (top, left, bottom, right)


def require_equal_quant(ctx: OpContext, x: int, out: QuantParams | None) -> None:
    """TFLite moves the bytes of these operators as they are, whatever their parameters say."""
    if ctx.type(x).quant != out:
        raise UnsupportedError("operand and output have different quantization parameters")


def weights(ctx: OpContext, axis: int) -> tuple[Array, QuantParams]:
    """The INT8 weights (operand 1) and their parameters, one scale or one per index of `axis`."""
    values, type = ctx.constant(1, "weights")
    if type.dtype is not DType.I8:
        raise UnsupportedError(f"{type.dtype.value} weights (tensor {ctx.name(1)!r})")
    if type.quant is None:
        raise UnsupportedError(f"i8 weights without quantization parameters (tensor {ctx.name(1)!r})")
    if type.quant.axis not in (None, axis):
        raise UnsupportedError(f"weights quantized along axis {type.quant.axis} instead of {axis}")
    return values, type.quant


def bias(ctx: OpContext, channels: int, x: QuantParams, w: QuantParams) -> int:
    """The INT32 bias (operand 2) as a Param, zeros when it is absent; its scales are products by definition."""
    quant = QuantParams(tuple(x.scale * s for s in w.scales), (0,) * len(w.scales), None if w.axis is None else 0)
    if not ctx.has(2):
        return ctx.bias(None, channels, quant)
    values, type = ctx.constant(2, "a bias")
    if type.dtype is not DType.I32:
        raise UnsupportedError(f"a bias of type {type.dtype.value} (tensor {ctx.name(2)!r})")
    if values.size != channels:
        raise ModelError(f"{ctx.describe()}: a bias of {values.size} values for {channels} channels")
    return ctx.bias(values.reshape(-1), channels, quant)


# ---- Convolution and dense ------------------------------------------------------------------------------------------


def _convolution(ctx: OpContext, w: Array, w_quant: QuantParams, groups: int) -> int:
    """`w` is [C_out, kH, kW, C_in/groups], its parameters are along axis 0."""
    x, out = ctx.input(0), ctx.output_quant()
    kernel = (w.shape[1], w.shape[2])
    stride = (ctx.integer("StrideH"), ctx.integer("StrideW"))
    dilation = (ctx.integer("DilationHFactor"), ctx.integer("DilationWFactor"))
    if any(w_quant.zero_points):
        raise UnsupportedError("convolution weights with a zero point other than 0")
    x_quant = ctx.quant(x)
    op = QConv2d(
        kernel_size=kernel,
        stride=stride,
        padding=image_padding(ctx, x, kernel, stride, dilation),
        dilation=dilation,
        groups=groups,
        x_zp=x_quant.zero_point,
        w_zp=0,
        out_zp=out.zero_point,
        mult=real_multipliers(x_quant, w_quant, out),
        layout=Layout.NHWC,
        requant=ctx.requant,
        clamp=fused_clamp(ctx, out),
    )
    return ctx.add(op, (x, ctx.weights(w, w_quant), bias(ctx, w.shape[0], x_quant, w_quant)), out)


def conv_2d(ctx: OpContext) -> int:
    x_shape = ctx.type(ctx.input(0)).shape
    w, quant = weights(ctx, axis=0)
    if w.ndim != 4 or len(x_shape) != 4:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(x_shape)}: rank 4 is needed")
    return _convolution(ctx, w, quant, groups=x_shape[3] // w.shape[3])


def depthwise_conv_2d(ctx: OpContext) -> int:
    x_shape = ctx.type(ctx.input(0)).shape
    w, quant = weights(ctx, axis=3)
    if w.ndim != 4 or len(x_shape) != 4 or w.shape[0] != 1:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(x_shape)}: [1, kH, kW, C] is needed")
    if x_shape[3] * ctx.integer("DepthMultiplier") != w.shape[3]:
        raise ModelError(
            f"{ctx.describe()}: {x_shape[3]} channels times the depth multiplier {ctx.integer('DepthMultiplier')} "
            f"are not {w.shape[3]} channels"
        )
    moved = QuantParams(quant.scales, quant.zero_points, None if quant.axis is None else 0)
    return _convolution(ctx, w[0].transpose(2, 0, 1)[..., np.newaxis], moved, groups=x_shape[3])


def fully_connected(ctx: OpContext) -> int:
    if ctx.integer("WeightsFormat") != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise UnsupportedError(f"the weights format {ctx.integer('WeightsFormat')}")
    x, out, out_quant = ctx.input(0), ctx.output_type(), ctx.output_quant()
    w, quant = weights(ctx, axis=0)
    x_quant = ctx.quant(x)
    if w.ndim != 2 or ctx.type(x).elements % w.shape[1]:
        raise UnsupportedError(f"weights {list(w.shape)} on an operand {list(ctx.type(x).shape)}")
    moved = QuantParams(quant.scales, quant.zero_points, None if quant.axis is None else 1)
    if moved.axis is not None and any(moved.zero_points):
        raise UnsupportedError("weights with one scale per channel and a zero point other than 0")
    op = QMatMul(
        x_zp=x_quant.zero_point,
        w_zp=moved.zero_point,
        out_zp=out_quant.zero_point,
        mult=real_multipliers(x_quant, moved, out_quant),
        requant=ctx.requant,
        clamp=fused_clamp(ctx, out_quant),
    )
    rows = ctx.type(x).elements // w.shape[1]
    if ctx.type(x).shape != (rows, w.shape[1]):
        x = ctx.add_helper(Reshape((rows, w.shape[1])), (x,), "rows", x_quant)
    operands = (x, ctx.weights(w.T, moved), bias(ctx, w.shape[0], x_quant, quant))
    if out.shape == (rows, w.shape[0]):
        return ctx.add(op, operands, out_quant)
    flat = ctx.add_helper(op, operands, "matrix", out_quant)
    return ctx.add(Reshape(out.shape), (flat,), out_quant)


# ---- Elementwise, pooling, reduction --------------------------------------------------------------------------------


def _binary(fn: BinaryOp) -> Builder:
    def build(ctx: OpContext) -> int:
        operands, out = (ctx.input(0), ctx.input(1)), ctx.output_quant()
        return ctx.add(Binary(fn, ctx.requant, fused_clamp(ctx, out)), operands, out)

    return build


def _pool(kind: ReduceOp) -> Builder:
    def build(ctx: OpContext) -> int:
        x, out = ctx.input(0), ctx.output_quant()
        require_equal_quant(ctx, x, out)
        kernel = (ctx.integer("FilterHeight"), ctx.integer("FilterWidth"))
        stride = (ctx.integer("StrideH"), ctx.integer("StrideW"))
        padding = image_padding(ctx, x, kernel, stride)
        op = Pool(kind, kernel, stride, padding, Layout.NHWC, requant=ctx.requant, clamp=fused_clamp(ctx, out))
        return ctx.add(op, (x,), out)

    return build


def mean(ctx: OpContext) -> int:
    x, out = ctx.input(0), ctx.output_quant()
    axes, _ = ctx.integers(1, "axes")
    rank = len(ctx.type(x).shape)
    if not axes:
        raise UnsupportedError("a mean over no axis")
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"{ctx.describe()}: axes {axes} of an operand of rank {rank}")
    resolved = tuple(sorted({axis % rank for axis in axes}))
    return ctx.add(Reduce(ReduceOp.MEAN, resolved, bool(ctx.option("KeepDims")), ctx.requant), (x,), out)


def softmax(ctx: OpContext) -> int:
    x, out = ctx.input(0), ctx.output_quant()
    if out != SOFTMAX_OUTPUT:
        raise UnsupportedError(f"an output of scale {out.scale:g} and zero point {out.zero_point} (not 1/256, -128)")
    beta = float(ctx.option("Beta"))
    if not 0 < beta < float("inf"):
        raise UnsupportedError(f"beta = {beta:g}")
    return ctx.add(Softmax(len(ctx.type(x).shape) - 1, beta, ctx.requant), (x,), out)


# ---- Moving elements ------------------------------------------------------------------------------------------------


def _moved_input(ctx: OpContext, operand: int = 0) -> tuple[int, QuantParams | None]:
    """An operand that is INT8 or FLOAT32, as the output is, and their common parameters."""
    dtype = DType.F32 if ctx.dtype(operand) is DType.F32 else DType.I8
    x, out = ctx.input(operand, dtype), ctx.output_type(dtype).quant
    require_equal_quant(ctx, x, out)
    return x, out


def reshape(ctx: OpContext) -> int:
    """The output's declared shape is the new shape: operand 1 and the options only repeat it."""
    x, quant = _moved_input(ctx)
    return ctx.add(Reshape(ctx.importer.type_of(ctx.operator.outputs[0]).shape), (x,), quant)


def pad(ctx: OpContext) -> int:
    x, quant = _moved_input(ctx)
    flat, shape = ctx.integers(1, "paddings")
    if shape != (len(ctx.type(x).shape), 2):
        raise ModelError(f"{ctx.describe()}: paddings of shape {list(shape)} for rank {len(ctx.type(x).shape)}")
    pads = tuple(zip(flat[::2], flat[1::2], strict=True))
    return ctx.add(Pad(pads, value=_pad_value(ctx, quant)), (x,), quant)


def _pad_value(ctx: OpContext, quant: QuantParams | None) -> float:
    """PADV2's value (operand 2) as a real number; 0 for PAD."""
    if not ctx.has(2):
        return 0.0
    values, type = ctx.constant(2, "a padding value")
    if values.size != 1 or type.quant != quant:
        raise UnsupportedError("a padding value that is not one number with the operand's quantization parameters")
    value = float(values.reshape(-1)[0])
    return value if quant is None else (value - quant.zero_point) * quant.scale


def concatenation(ctx: OpContext) -> int:
    if ctx.integer("FusedActivationFunction") != tflite.ActivationFunctionType.NONE:
        raise UnsupportedError(f"the fused activation {ctx.integer('FusedActivationFunction')}")
    operands = [_moved_input(ctx, operand) for operand in range(len(ctx.operator.inputs))]
    if not operands:
        raise ModelError(f"{ctx.describe()} has no operand")
    rank = len(ctx.type(operands[0][0]).shape)
    axis = ctx.integer("Axis")
    return ctx.add(Concat(axis + rank if axis < 0 else axis), [x for x, _ in operands], operands[0][1])


def quantize(ctx: OpContext) -> int:
    out = ctx.output_quant()
    x = ctx.input(0, DType.F32 if ctx.dtype(0) is DType.F32 else DType.I8)
    return ctx.add(Quantize.to(out, ctx.requant), (x,), out)


def dequantize(ctx: OpContext) -> int:
    ctx.output_type(DType.F32)
    x = ctx.input(0)
    return ctx.add(Dequantize.of(ctx.quant(x)), (x,), None)


BUILDERS: Mapping[str, Builder] = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "ADD": _binary(BinaryOp.ADD),
    "SUB": _binary(BinaryOp.SUB),
    "MUL": _binary(BinaryOp.MUL),
    "AVERAGE_POOL_2D": _pool(ReduceOp.MEAN),
    "MAX_POOL_2D": _pool(ReduceOp.MAX),
    "MEAN": mean,
    "SOFTMAX": softmax,
    "RESHAPE": reshape,
    "PAD": pad,
    "PADV2": pad,
    "CONCATENATION": concatenation,
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
}
"""Every operator that is imported, by its name in the schema."""
