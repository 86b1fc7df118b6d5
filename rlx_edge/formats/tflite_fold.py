"""Operators that are worked out while importing: those on constants alone, and SHAPE, since all shapes are fixed.

The converter leaves such operators where a batch size was open (SHAPE, STRIDED_SLICE, PACK before a RESHAPE) and where
weights are stored as float16 or int8 (DEQUANTIZE).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import CONSTANT_TYPES, FOLD_LIMIT, OpContext, dequantized
from rlx_edge.ir import Array, DType, QuantParams, Shape

FoldFunction = Callable[[OpContext, Sequence[Array]], Array]
"""From the values of the operands to that of the output, whose declared shape says how many elements to expect."""


def fold(ctx: OpContext) -> Array | None:
    """The value of the operator's output, or None where it must be computed on the device.

    Raises UnsupportedError for a constant that grows too large, ModelError for one that is not what the file declares.
    """
    kind, indices = ctx.operator.kind, [i for i in ctx.operator.inputs if i >= 0]
    if kind not in FOLD or len(ctx.operator.outputs) != 1 or ctx.output.type_name not in CONSTANT_TYPES:
        return None
    values = [] if kind == "SHAPE" else [ctx.importer.values(i) for i in indices]
    known = [v for v in values if v is not None]
    if len(known) != len(values) or not indices:
        return None
    ctx.importer.check_shape(ctx.output)
    ctx.importer.fold_room -= math.prod(ctx.output.shape)
    if ctx.importer.fold_room < 0:
        raise UnsupportedError(f"constants that grow beyond {FOLD_LIMIT} elements when they are worked out")
    try:
        with np.errstate(all="ignore"):
            result = FOLD[kind](ctx, known)
    except (ValueError, IndexError, TypeError, OverflowError) as error:  # what numpy raises on operands that do not fit
        raise ModelError(f"{ctx.importer.where}: {ctx.describe()}: {error}") from None
    declared = np.dtype(CONSTANT_TYPES[ctx.output.type_name])
    if result.shape != ctx.output.shape or result.dtype != declared:
        raise ModelError(
            f"{ctx.importer.where}: {ctx.describe()} is declared {declared.name}{list(ctx.output.shape)}, "
            f"but its constant operands give {result.dtype.name}{list(result.shape)}"
        )
    return result


def _declared(ctx: OpContext) -> np.dtype[np.generic]:
    return np.dtype(CONSTANT_TYPES[ctx.output.type_name])


def _shape(ctx: OpContext, x: Sequence[Array]) -> Array:
    return np.array(ctx.importer.model.tensors[ctx.operator.inputs[0]].shape, _declared(ctx))


def _cast(ctx: OpContext, x: Sequence[Array]) -> Array:
    return x[0].astype(_declared(ctx))


def _quant(ctx: OpContext, index: int) -> QuantParams:
    quant = ctx.importer.quant_of(ctx.importer.model.tensors[index])
    if quant is None:
        raise ValueError("a quantized tensor without quantization parameters")
    return quant


def _dequantize(ctx: OpContext, x: Sequence[Array]) -> Array:
    """From float16, or from int8 and its parameters."""
    if x[0].dtype.kind == "f":
        return x[0].astype(np.float32)
    return dequantized(x[0], _quant(ctx, ctx.operator.inputs[0]))


def _quantize(ctx: OpContext, x: Sequence[Array]) -> Array:
    """float32 to int8: the quotient in float32, ties away from zero."""
    if x[0].dtype != np.float32 or ctx.output.type_name != "INT8":
        raise ValueError(f"a QUANTIZE of {x[0].dtype.name} constants to {ctx.output.type_name}")
    return quantized(x[0], _quant(ctx, ctx.operator.outputs[0]))


def quantized(x: Array, quant: QuantParams) -> Array:
    """saturate(round(x / scale) + zero_point) as int8, the quotient in float32, ties away from zero."""
    scales, zeros = quant.broadcast(x.ndim)
    steps = (x / scales.astype(np.float32)).astype(np.float64)
    bounded = np.clip(np.nan_to_num(steps), -(2.0**40), 2.0**40)
    rounded = np.copysign(np.floor(np.abs(bounded) + 0.5), bounded).astype(np.int64)
    return np.asarray(np.clip(rounded + zeros, *DType.I8.limits).astype(np.int8))


def _reshape(ctx: OpContext, x: Sequence[Array]) -> Array:
    return np.asarray(x[0].reshape(ctx.output.shape))


def _transpose(ctx: OpContext, x: Sequence[Array]) -> Array:
    return np.ascontiguousarray(x[0].transpose([int(axis) for axis in x[1]]))


def _expect(ctx: OpContext, elements: int) -> None:
    """Nothing is made that the file does not declare: a small file must not ask for much memory."""
    if elements != math.prod(ctx.output.shape):
        raise ValueError(f"{elements} elements where {list(ctx.output.shape)} are declared")


def _concatenation(ctx: OpContext, x: Sequence[Array]) -> Array:
    _expect(ctx, sum(v.size for v in x))
    return np.concatenate(x, axis=ctx.integer("Axis"))


def _pack(ctx: OpContext, x: Sequence[Array]) -> Array:
    _expect(ctx, sum(v.size for v in x))
    return np.stack(x, axis=ctx.integer("Axis"))


def _gather(ctx: OpContext, x: Sequence[Array]) -> Array:
    if ctx.integer("BatchDims") != 0:
        raise ValueError("batch dimensions")
    axis = ctx.integer("Axis")
    _expect(ctx, x[1].size * (x[0].size // x[0].shape[axis]))
    return np.take(x[0], x[1], axis=axis)


def _fill(ctx: OpContext, x: Sequence[Array]) -> Array:
    """BROADCAST_TO and FILL with their constant first."""
    return np.asarray(np.broadcast_to(x[0], ctx.output.shape))


def _fill_shape_first(ctx: OpContext, x: Sequence[Array]) -> Array:
    return np.asarray(np.broadcast_to(x[1], ctx.output.shape))


def _strided_slice(ctx: OpContext, x: Sequence[Array]) -> Array:
    masks = {name: ctx.integer(f"{name}Mask") for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    if masks["Ellipsis"] or masks["NewAxis"]:
        raise ValueError("an ellipsis or a new axis")
    parts: list[slice | int] = []
    for axis, (begin, end, step) in enumerate(zip(*(v.tolist() for v in x[1:4]), strict=True)):
        if masks["ShrinkAxis"] >> axis & 1:
            parts.append(begin)
            continue
        first = None if masks["Begin"] >> axis & 1 else begin
        parts.append(slice(first, None if masks["End"] >> axis & 1 else end, step))
    return np.asarray(x[0][tuple(parts)])


def _slice(ctx: OpContext, x: Sequence[Array]) -> Array:
    parts = (slice(b, None if n == -1 else b + n) for b, n in zip(x[1].tolist(), x[2].tolist(), strict=True))
    return np.asarray(x[0][tuple(parts)])


def _numbers(function: Callable[..., Array], floats_only: bool = False) -> FoldFunction:
    """An elementwise function of float32, or of int32 and int64 as well."""

    def apply(ctx: OpContext, x: Sequence[Array]) -> Array:
        if any(v.dtype.kind != "f" and (floats_only or v.dtype.itemsize < 4) for v in x):
            raise ValueError(f"constants of {x[0].dtype.name}")
        shape: Shape = np.broadcast_shapes(*(v.shape for v in x))
        _expect(ctx, math.prod(shape))
        if ctx.operator.options.get("FusedActivationFunction", 0):
            raise ValueError("a fused activation")
        return np.asarray(function(*x), x[0].dtype)

    return apply


def _reduce(function: Callable[..., Array]) -> FoldFunction:
    def apply(ctx: OpContext, x: Sequence[Array]) -> Array:
        axes = tuple(int(axis) for axis in x[1].reshape(-1))
        return np.asarray(function(x[0], axis=axes, keepdims=bool(ctx.option("KeepDims"))), x[0].dtype)

    return apply


def _divide(a: Array, b: Array) -> Array:
    """Of integers as C does it, towards zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if not b.all():
        raise ValueError("a division by 0")
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))


FOLD: Mapping[str, FoldFunction] = {
    "SHAPE": _shape,
    "CAST": _cast,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
    "PACK": _pack,
    "GATHER": _gather,
    "BROADCAST_TO": _fill,
    "FILL": _fill_shape_first,
    "STRIDED_SLICE": _strided_slice,
    "SLICE": _slice,
    "ADD": _numbers(np.add),
    "SUB": _numbers(np.subtract),
    "MUL": _numbers(np.multiply),
    "DIV": _numbers(_divide),
    "MAXIMUM": _numbers(np.maximum),
    "MINIMUM": _numbers(np.minimum),
    "NEG": _numbers(np.negative),
    "SQRT": _numbers(np.sqrt, floats_only=True),
    "RSQRT": _numbers(lambda x: np.asarray(1 / np.sqrt(x)), floats_only=True),
    "EXP": _numbers(np.exp, floats_only=True),
    "REDUCE_PROD": _reduce(np.prod),
    "SUM": _reduce(np.sum),
}
"""What is worked out on constants, by its name in the schema."""
