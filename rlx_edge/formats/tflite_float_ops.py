"""TFLite operators on FLOAT32 tensors -> float graph: one builder a kind, in one table.

Weights may be FLOAT16, or INT8 or INT4 with parameters (the converter's "hybrid" and "dynamic range" files): they
become the float32 values that they stand for, and the layer computes in float32. A runtime's hybrid kernel also rounds
the activations to int8 while it runs, by their range in that very sample; that is no property of the model and is not
kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tflite

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.formats.tflite_moves import MOVES, Builder
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
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Conv,
    Layout,
    MatMul,
    Op,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
    Transpose,
)

Step = tuple[Op, tuple[int, ...], str]
"""An op on the value so far, its other operands, and what to call the result on the way."""

_FUSED: Mapping[int, Op] = {
    tflite.ActivationFunctionType.RELU: Activation(ActivationFn.RELU),
    tflite.ActivationFunctionType.RELU_N1_TO_1: Clamp(-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: Clamp(0.0, 6.0),
}


def chain(ctx: OpContext, x: int, steps: Sequence[Step]) -> int:
    """Append ops one after the other; the last computes the output tensor."""
    for op, others, suffix in steps[:-1]:
        x = ctx.add_helper(op, (x, *others), suffix, None)
    op, others, _ = steps[-1]
    return ctx.add(op, (x, *others), None)


def fused(ctx: OpContext) -> list[Step]:
    """The operator's fused activation, as a step or none."""
    kind = ctx.integer("FusedActivationFunction")
    if kind == tflite.ActivationFunctionType.NONE:
        return []
    if kind not in _FUSED:
        raise UnsupportedError(f"the fused activation {kind} (NONE, RELU, RELU6 and RELU_N1_TO_1 are supported)")
    return [(_FUSED[kind], (), "before_activation")]


def _bias(ctx: OpContext, channels: int) -> list[Step]:
    if not ctx.has(2):
        return []
    values = ctx.reals(2, "a bias")
    if values.size != channels:
        raise ModelError(f"{ctx.describe()}: a bias of {values.size} values for {channels} channels")
    return [(Binary(BinaryOp.ADD), (ctx.float_param(2, "", values.reshape(-1)),), "product")]


def _named(steps: list[Step]) -> list[Step]:
    """Each result called after what the next step does with it."""
    return [(op, others, steps[i + 1][2] if i + 1 < len(steps) else "") for i, (op, others, _) in enumerate(steps)]


# ---- Convolution and dense ------------------------------------------------------------------------------------------


def _convolution(ctx: OpContext, x: int, w: Array, groups: int) -> int:
    """`w` is [C_out, kH, kW, C_in / groups]."""
    window = conv_window(ctx, ctx.type(x).shape, (w.shape[1], w.shape[2]))
    op = Conv(window.kernel, window.stride, window.padding, window.dilation, groups, Layout.NHWC)
    held = ctx.float_param(1, ctx.operator.kind, w)
    return chain(ctx, x, _named([(op, (held,), ""), *_bias(ctx, w.shape[0]), *fused(ctx)]))


def conv_2d(ctx: OpContext) -> int:
    x, w = ctx.input(0, DType.F32), ctx.reals(1, "weights")
    return _convolution(ctx, x, w, conv_groups(w, ctx.type(x).shape))


def depthwise_conv_2d(ctx: OpContext) -> int:
    x = ctx.input(0, DType.F32)
    image = ctx.type(x).shape
    return _convolution(ctx, x, depthwise_weights(ctx, ctx.reals(1, "weights"), image), image[3])


def fully_connected(ctx: OpContext) -> int:
    x, w, out = ctx.input(0, DType.F32), ctx.reals(1, "weights"), ctx.output_type(DType.F32)
    rows = dense_rows(ctx, w, x)
    held = ctx.float_param(1, ctx.operator.kind, w.T)
    steps: list[Step] = [(MatMul(), (held,), "rows"), *_bias(ctx, w.shape[0]), *fused(ctx)]
    if ctx.type(x).shape != (rows, w.shape[1]):
        steps.insert(0, (Reshape((rows, w.shape[1])), (), ""))
    if out.shape != (rows, w.shape[0]):
        steps.append((Reshape(out.shape), (), "matrix"))
    return chain(ctx, x, _named(steps))


def batch_matmul(ctx: OpContext) -> int:
    operands = []
    for operand, field in ((0, "AdjX"), (1, "AdjY")):
        x = ctx.input(operand, DType.F32)
        if ctx.option(field):
            rank = len(ctx.type(x).shape)
            x = ctx.add_helper(Transpose((*range(rank - 2), rank - 1, rank - 2)), (x,), field.lower(), None)
        operands.append(x)
    return ctx.add(MatMul(), operands, None)


# ---- Elementwise, pooling, reduction --------------------------------------------------------------------------------


def _binary(fn: BinaryOp, has_fused: bool = False) -> Builder:
    def build(ctx: OpContext) -> int:
        a, b = ctx.input(0, DType.F32), ctx.input(1, DType.F32)
        return chain(ctx, a, _named([(Binary(fn), (b,), ""), *(fused(ctx) if has_fused else [])]))

    return build


def squared_difference(ctx: OpContext) -> int:
    difference = ctx.add_helper(
        Binary(BinaryOp.SUB), (ctx.input(0, DType.F32), ctx.input(1, DType.F32)), "difference", None
    )
    return ctx.add(Binary(BinaryOp.MUL), (difference, difference), None)


def square(ctx: OpContext) -> int:
    x = ctx.input(0, DType.F32)
    return ctx.add(Binary(BinaryOp.MUL), (x, x), None)


def _unary(op: Op) -> Builder:
    def build(ctx: OpContext) -> int:
        return ctx.add(op, (ctx.input(0, DType.F32),), None)

    return build


def leaky_relu(ctx: OpContext) -> int:
    return ctx.add(leaky(float(ctx.option("Alpha"))), (ctx.input(0, DType.F32),), None)


def leaky(alpha: float) -> Op:
    """LeakyRelu with a finite slope. Raises UnsupportedError for another."""
    if not np.isfinite(alpha):
        raise UnsupportedError(f"alpha = {alpha}")
    return Activation(ActivationFn.LEAKY_RELU, alpha=alpha)


def prelu(ctx: OpContext) -> int:
    """With one slope for all channels it is LEAKY_RELU."""
    slopes = ctx.reals(1, "slopes")
    if (slopes != slopes.flat[0]).any():
        raise UnsupportedError("slopes that differ from channel to channel")
    return ctx.add(leaky(float(slopes.flat[0])), (ctx.input(0, DType.F32),), None)


def gelu(ctx: OpContext) -> int:
    fn = ActivationFn.GELU_APPROX if ctx.option("Approximate") else ActivationFn.GELU
    return ctx.add(Activation(fn), (ctx.input(0, DType.F32),), None)


def _pool(kind: ReduceOp) -> Builder:
    def build(ctx: OpContext) -> int:
        x = ctx.input(0, DType.F32)
        window = pool_window(ctx, ctx.type(x).shape)
        op = Pool(kind, window.kernel, window.stride, window.padding, Layout.NHWC)
        return chain(ctx, x, _named([(op, (), ""), *fused(ctx)]))

    return build


def _reduce(kind: ReduceOp) -> Builder:
    def build(ctx: OpContext) -> int:
        x = ctx.input(0, DType.F32)
        return ctx.add(Reduce(kind, reduced_axes(ctx, x), bool(ctx.option("KeepDims"))), (x,), None)

    return build


def softmax(ctx: OpContext) -> int:
    x = ctx.input(0, DType.F32)
    return ctx.add(Softmax(len(ctx.type(x).shape) - 1, softmax_beta(ctx)), (x,), None)


FUNCTIONS: Mapping[str, ActivationFn] = {
    "RELU": ActivationFn.RELU,
    "LOGISTIC": ActivationFn.SIGMOID,
    "TANH": ActivationFn.TANH,
    "HARD_SWISH": ActivationFn.HARD_SWISH,
    "ELU": ActivationFn.ELU,
    "EXP": ActivationFn.EXP,
    "LOG": ActivationFn.LOG,
    "SQRT": ActivationFn.SQRT,
    "RSQRT": ActivationFn.RSQRT,
    "NEG": ActivationFn.NEG,
    "ABS": ActivationFn.ABS,
    "SIN": ActivationFn.SIN,
    "COS": ActivationFn.COS,
    "ROUND": ActivationFn.ROUND,
    "FLOOR": ActivationFn.FLOOR,
    "CEIL": ActivationFn.CEIL,
    "SIGN": ActivationFn.SIGN,
}
"""Operators that are a function of each element."""

CLAMPS: Mapping[str, Clamp] = {
    "RELU6": Clamp(0.0, 6.0),
    "RELU_N1_TO_1": Clamp(-1.0, 1.0),
    "RELU_0_TO_1": Clamp(0.0, 1.0),
}

FLOAT_BUILDERS: Mapping[str, Builder] = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_matmul,
    "ADD": _binary(BinaryOp.ADD, has_fused=True),
    "SUB": _binary(BinaryOp.SUB, has_fused=True),
    "MUL": _binary(BinaryOp.MUL, has_fused=True),
    "DIV": _binary(BinaryOp.DIV, has_fused=True),
    "MAXIMUM": _binary(BinaryOp.MAX),
    "MINIMUM": _binary(BinaryOp.MIN),
    "POW": _binary(BinaryOp.POW),
    "SQUARED_DIFFERENCE": squared_difference,
    "SQUARE": square,
    "AVERAGE_POOL_2D": _pool(ReduceOp.MEAN),
    "MAX_POOL_2D": _pool(ReduceOp.MAX),
    "MEAN": _reduce(ReduceOp.MEAN),
    "SUM": _reduce(ReduceOp.SUM),
    "REDUCE_MAX": _reduce(ReduceOp.MAX),
    "REDUCE_MIN": _reduce(ReduceOp.MIN),
    "REDUCE_PROD": _reduce(ReduceOp.PROD),
    "SOFTMAX": softmax,
    **{kind: _unary(Activation(fn)) for kind, fn in FUNCTIONS.items()},
    **{kind: _unary(op) for kind, op in CLAMPS.items()},
    "LEAKY_RELU": leaky_relu,
    "PRELU": prelu,
    "GELU": gelu,
    **MOVES,
    **SLICES,
    **PARTS,
}
"""Every operator that is imported on FLOAT32 tensors, by its name in the schema."""
