"""TFLite operators on INT8 tensors -> int8 graph: one builder a kind, in one table.

A builder returns the node of the operator's output. It raises UnsupportedError with the reason alone ("int16 ...");
the importer adds which operator it was and goes on, so that one message lists everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.formats.tflite_functions import INT8_FUNCTIONS
from rlx_edge.formats.tflite_fused import FUSED_LIMITS, fused_bounds
from rlx_edge.formats.tflite_moves import MOVES, Builder, require_equal_quant
from rlx_edge.formats.tflite_shapes import (
    conv_groups,
    conv_window,
    dense_rows,
    depthwise_weights,
    pool_window,
    reduced_axes,
    softmax_beta,
)
from rlx_edge.formats.tflite_slices import PARTS, SLICES
from rlx_edge.ir import Array, DType, QuantParams, real_multipliers
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Dequantize,
    Layout,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
)

SOFTMAX_OUTPUT = QuantParams.per_tensor(1 / 256, -128)

# ---- What several operators share -----------------------------------------------------------------------------------


def fused_clamp(ctx: OpContext, out: QuantParams) -> tuple[int, int] | None:
    """A fused activation as bounds in codes; None when it bounds nothing that int8 does not."""
    fused = ctx.integer("FusedActivationFunction")
    if fused not in FUSED_LIMITS:
        raise UnsupportedError(f"the fused activation {fused} (NONE, RELU, RELU6 and RELU_N1_TO_1 are supported)")
    bounds = fused_bounds(fused, out)
    return None if bounds == DType.I8.limits else bounds


def weights(ctx: OpContext, axis: int) -> tuple[Array, QuantParams]:
    """The INT8 or INT4 weights (operand 1) and their parameters, one scale or one per index of `axis`."""
    values, type = ctx.constant(1, "weights")
    if type.dtype not in ((DType.I8,) if ctx.operator.was_uint8 else (DType.I8, DType.I4)):
        raise UnsupportedError(f"{type.dtype.value} weights (tensor {ctx.name(1)!r})")
    if type.quant is None:
        raise UnsupportedError(f"{type.dtype.value} weights without quantization parameters (tensor {ctx.name(1)!r})")
    if len(set(type.quant.zero_points)) != 1:
        raise UnsupportedError(f"weights whose zero points differ from channel to channel (tensor {ctx.name(1)!r})")
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
    window = conv_window(ctx, ctx.type(x).shape, (w.shape[1], w.shape[2]))
    x_quant = ctx.quant(x)
    if w_quant.zero_point != 0 and not ctx.operator.was_uint8:
        raise UnsupportedError("int8 convolution weights with a zero point other than 0, which TFLite's kernels ignore")
    op = QConv2d(
        kernel_size=window.kernel,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
        x_zp=x_quant.zero_point,
        w_zp=w_quant.zero_point,
        out_zp=out.zero_point,
        mult=real_multipliers(x_quant, w_quant, out),
        layout=Layout.NHWC,
        requant=ctx.requant,
        clamp=fused_clamp(ctx, out),
    )
    return ctx.add(op, (x, ctx.weights(w, w_quant), bias(ctx, w.shape[0], x_quant, w_quant)), out)


def conv_2d(ctx: OpContext) -> int:
    w, quant = weights(ctx, axis=0)
    return _convolution(ctx, w, quant, conv_groups(w, ctx.type(ctx.input(0)).shape))


def depthwise_conv_2d(ctx: OpContext) -> int:
    image = ctx.type(ctx.input(0)).shape
    w, quant = weights(ctx, axis=3)
    moved = QuantParams(quant.scales, quant.zero_points, None if quant.axis is None else 0)
    return _convolution(ctx, depthwise_weights(ctx, w, image), moved, groups=image[3])


def fully_connected(ctx: OpContext) -> int:
    x, out, out_quant = ctx.input(0), ctx.output_type(), ctx.output_quant()
    w, quant = weights(ctx, axis=0)
    x_quant, rows = ctx.quant(x), dense_rows(ctx, w, x)
    moved = QuantParams(quant.scales, quant.zero_points, None if quant.axis is None else 1)
    op = QMatMul(
        x_zp=x_quant.zero_point,
        w_zp=moved.zero_point,
        out_zp=out_quant.zero_point,
        mult=real_multipliers(x_quant, moved, out_quant),
        requant=ctx.requant,
        clamp=fused_clamp(ctx, out_quant),
    )
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
        window, clamp = pool_window(ctx, ctx.type(x).shape), fused_clamp(ctx, out)
        op = Pool(kind, window.kernel, window.stride, window.padding, Layout.NHWC, requant=ctx.requant, clamp=clamp)
        return ctx.add(op, (x,), out)

    return build


def mean(ctx: OpContext) -> int:
    x, out = ctx.input(0), ctx.output_quant()
    op = Reduce(ReduceOp.MEAN, reduced_axes(ctx, x), bool(ctx.option("KeepDims")), ctx.requant)
    return ctx.add(op, (x,), out)


def softmax(ctx: OpContext) -> int:
    x, out = ctx.input(0), ctx.output_quant()
    if out != SOFTMAX_OUTPUT:
        raise UnsupportedError(f"an output of scale {out.scale:g} and zero point {out.zero_point} (not 1/256, -128)")
    return ctx.add(Softmax(len(ctx.type(x).shape) - 1, softmax_beta(ctx), ctx.requant), (x,), out)


# ---- To and from real numbers ---------------------------------------------------------------------------------------


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
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
    **INT8_FUNCTIONS,
    **MOVES,
    **SLICES,
    **PARTS,
}
"""Every operator that is imported on INT8 tensors, by its name in the schema."""
