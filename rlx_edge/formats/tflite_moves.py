"""TFLite operators that move elements without changing them: the same builders for INT8 and FLOAT32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tflite

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.ir import DType, QuantParams
from rlx_edge.ir.ops import Concat, Pad, Reshape, Transpose

Builder = Callable[[OpContext], int]


def require_equal_quant(ctx: OpContext, x: int, out: QuantParams | None) -> None:
    """TFLite moves the bytes of these operators as they are, whatever their parameters say."""
    if ctx.type(x).quant != out:
        raise UnsupportedError("operand and output have different quantization parameters")


def moved_input(ctx: OpContext, operand: int = 0) -> tuple[int, QuantParams | None]:
    """An operand that is INT8 or FLOAT32, as the output is, and their common parameters."""
    dtype = DType.F32 if ctx.dtype(operand) is DType.F32 else DType.I8
    x, out = ctx.input(operand, dtype), ctx.output_type(dtype).quant
    require_equal_quant(ctx, x, out)
    return x, out


def _reshaped(ctx: OpContext) -> int:
    """The operand in the shape that the output declares."""
    x, quant = moved_input(ctx)
    return ctx.add(Reshape(ctx.importer.type_of(ctx.operator.outputs[0]).shape), (x,), quant)


def reshape(ctx: OpContext) -> int:
    """The new shape is operand 1; without one, as in old files, it is the shape that the output declares."""
    if not ctx.has(1):
        return _reshaped(ctx)
    x, quant = moved_input(ctx)
    shape, _ = ctx.integers(1, "a shape")
    return ctx.add(Reshape(tuple(shape)), (x,), quant)


def transpose(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
    perm, _ = ctx.integers(1, "a permutation")
    rank = len(ctx.type(x).shape)
    return ctx.add(Transpose(tuple(axis + rank if axis < 0 else axis for axis in perm)), (x,), quant)


def pad(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
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
    operands = [moved_input(ctx, operand) for operand in range(len(ctx.operator.inputs))]
    if not operands:
        raise ModelError(f"{ctx.describe()} has no operand")
    rank = len(ctx.type(operands[0][0]).shape)
    axis = ctx.integer("Axis")
    return ctx.add(Concat(axis + rank if axis < 0 else axis), [x for x, _ in operands], operands[0][1])


MOVES: Mapping[str, Builder] = {
    "RESHAPE": reshape,
    "SQUEEZE": _reshaped,
    "EXPAND_DIMS": _reshaped,
    "TRANSPOSE": transpose,
    "PAD": pad,
    "PADV2": pad,
    "CONCATENATION": concatenation,
}
"""Operators of INT8 and FLOAT32 tensors alike."""
