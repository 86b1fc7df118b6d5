"""What each op means on int8 tensors, under its rounding rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import (
    Array,
    DType,
    FrozenAdd,
    FrozenExp,
    FrozenScale,
    FrozenSoftmax,
    FrozenTable,
    QuantParams,
    Requant,
    TensorType,
)
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    BinaryOp,
    Clamp,
    Dequantize,
    Op,
    Pad,
    PadMode,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Softmax,
)
from rlx_edge.reference import floating, moving
from rlx_edge.reference.fixedpoint import (
    Int,
    dequantize_f32,
    freeze,
    quantize_f32,
    rescale,
    round_half_away,
)
from rlx_edge.reference.fixedsoftmax import softmax_by_table, softmax_row_exps
from rlx_edge.reference.windows import correlate, from_nhwc, to_nhwc, windows

_I8 = (-128, 127)

WIDEST_COLUMN_STRIDE = 2
"""Mean pooling under the rule onnx sums columns first up to this stride."""


def quant_of(type: TensorType) -> QuantParams:
    """The parameters of a quantized tensor. Raises ValueError on one that has none."""
    if type.quant is None:
        raise ValueError(f"a tensor {type} without quantization parameters")
    return type.quant


def frozen_of(op: Op, types: Sequence[TensorType], out: TensorType) -> object:
    """The integers stored in a lowered op, or, before lowering, those that its rule gives."""
    return getattr(op, "frozen", None) or freeze(op, types, out)


def _quantize(x: Array, quant: QuantParams, rule: Requant) -> Array:
    """Real values to codes, ties as the rule has them."""
    return quantize_f32(x, quant, rounding=np.rint if rule is Requant.ONNX else round_half_away)


def look_up(x: Array, table: FrozenTable) -> Array:
    """The table's code for each int8 code."""
    return np.array(table.codes, np.int8)[x.astype(np.int64) + 128]


def _saturate(x: Array, clamp: tuple[int, int] | None) -> Array:
    low, high = clamp or _I8
    return np.clip(x, low, high).astype(np.int8)


def requantize(acc: Int, op: QConv2d | QMatMul, types: Sequence[TensorType], out: TensorType) -> Array:
    """Accumulators [..., C_out] to int8."""
    frozen = frozen_of(op, types, out)
    if isinstance(frozen, FrozenScale):
        scaled: Array = rescale(acc, frozen, op.requant)
    else:
        rounded = round_half_away(acc.astype(np.float32) * np.array(op.mult, np.float32))
        scaled = np.clip(rounded.astype(np.float64), -(2.0**40), 2.0**40).astype(np.int64)
    return _saturate(scaled + op.out_zp, op.clamp)


def q_conv2d(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, QConv2d)
    image = to_nhwc(x[0], op.layout).astype(np.int64) - op.x_zp
    weights = to_nhwc(x[1], op.layout).astype(np.int64) - op.w_zp
    # Padded positions stand for the real value 0, which is 0 once the zero point is taken off.
    acc = correlate(windows(image, op, 0, op.dilation), weights, op.groups).astype(np.int64)
    return from_nhwc(requantize(acc + x[2].astype(np.int64), op, types, out), op.layout)


def q_matmul(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, QMatMul)
    rows, weights = x[0].astype(np.float64) - op.x_zp, x[1].astype(np.float64) - op.w_zp
    acc = np.matmul(rows, weights).astype(np.int64) + x[2].astype(np.int64)
    return requantize(acc, op, types, out)


def binary(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Binary)
    a_quant, b_quant, out_quant = quant_of(types[0]), quant_of(types[1]), quant_of(out)
    frozen = frozen_of(op, types, out)
    if frozen is None:
        real = floating.binary(op, [dequantize_f32(x[0], a_quant), dequantize_f32(x[1], b_quant)], types, out)
        return _saturate(_quantize(real, out_quant, op.requant), op.clamp)
    a = x[0].astype(np.int64) - a_quant.zero_point
    b = x[1].astype(np.int64) - b_quant.zero_point
    if isinstance(frozen, FrozenAdd):
        scaled_a = rescale(a << frozen.left_shift, frozen.a, op.requant)
        scaled_b = rescale(b << frozen.left_shift, frozen.b, op.requant)
        total = scaled_a + scaled_b if op.fn is BinaryOp.ADD else scaled_a - scaled_b
        scaled = rescale(total, frozen.out, op.requant)
    else:
        assert isinstance(frozen, FrozenScale)
        scaled = rescale(a * b, frozen, op.requant)
    return _saturate(scaled + out_quant.zero_point, op.clamp)


def quantize(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Quantize)
    target = quant_of(out)
    if types[0].dtype == DType.F32:
        return _saturate(_quantize(x[0].astype(np.float32), target, op.requant), op.clamp)
    source = quant_of(types[0])
    frozen = frozen_of(op, types, out)
    if frozen is None:
        return _saturate(quantize_f32(dequantize_f32(x[0], source), target), op.clamp)
    if isinstance(frozen, FrozenTable):
        return _saturate(look_up(x[0], frozen), op.clamp)
    assert isinstance(frozen, FrozenScale)
    scaled = rescale(x[0].astype(np.int64) - source.zero_point, frozen, op.requant)
    return _saturate(scaled + target.zero_point, op.clamp)


def activation(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    """A table: the code of the result for each code of the operand."""
    assert isinstance(op, Activation)
    frozen = frozen_of(op, types, out)
    assert isinstance(frozen, FrozenTable)
    return look_up(x[0], frozen)


def dequantize(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Dequantize)
    return dequantize_f32(x[0], QuantParams(op.scales, op.zero_points, op.axis))


def pool(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Pool)
    image = to_nhwc(x[0], op.layout).astype(np.int64)
    if op.kind is ReduceOp.MAX:
        return from_nhwc(_saturate(windows(image, op, -128).max(axis=(3, 4)), op.clamp), op.layout)
    if op.requant is Requant.RLX:
        real = floating.pool(op, [dequantize_f32(x[0], quant_of(types[0]))], types, out)
        return _saturate(quantize_f32(real, quant_of(out)), op.clamp)
    if op.requant is Requant.ONNX:
        return from_nhwc(_mean_of_windows(op, to_nhwc(x[0], op.layout), quant_of(types[0]), quant_of(out)), op.layout)
    fill = quant_of(types[0]).zero_point if op.count_include_pad else 0
    sums = windows(image, op, fill).sum(axis=(3, 4))
    count = floating.window_counts(op, image)
    if op.requant is Requant.TFLITE_UINT8:  # integer division of what are sums of uint8: half up
        return from_nhwc(_saturate((sums + 128 * count + count // 2) // count - 128, op.clamp), op.layout)
    # Integer division that truncates towards zero, after half of the divisor is added away from zero.
    magnitude = (np.abs(sums) + count // 2) // count
    return from_nhwc(_saturate(np.where(sums > 0, magnitude, -magnitude), op.clamp), op.layout)


def _mean_of_windows(op: Pool, image: Array, source: QuantParams, target: QuantParams) -> Array:
    """Rule onnx: sums in float32, in the order of ONNX Runtime's float kernel.

    It sums down each column of a window and then over the columns; where windows lie 3 or more columns apart, row by
    row.
    """
    taps = windows(dequantize_f32(image, source), op, 0.0)
    if op.stride[1] <= WIDEST_COLUMN_STRIDE:
        total = _in_order(_in_order(taps, axis=3), axis=3)
    else:
        total = _in_order(taps.reshape(*taps.shape[:3], -1, taps.shape[5]), axis=3)
    mean = total / floating.window_counts(op, image).astype(np.float32)
    return _saturate(_quantize(mean, target, Requant.ONNX), op.clamp)


def _in_order(x: Array, axis: int) -> Array:
    """The sum along an axis, first to last, each sum rounded."""
    total, *rest = np.moveaxis(x, axis, 0)
    for part in rest:
        total = total + part
    return np.asarray(total)


def reduce(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Reduce)
    source, target = quant_of(types[0]), quant_of(out)
    frozen = frozen_of(op, types, out)
    if frozen is None:
        real = floating.reduce(op, [dequantize_f32(x[0], source)], types, out)
        return quantize_f32(real, target)
    assert isinstance(frozen, FrozenScale)
    sums = np.asarray(np.sum(x[0].astype(np.int64) - source.zero_point, axis=op.axes, keepdims=op.keep_dim))
    scaled = rescale(sums, frozen, op.requant).reshape(sums.shape)  # a scalar stays one
    return _saturate(scaled + target.zero_point, None)


def softmax(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Softmax)
    frozen = frozen_of(op, types, out)
    if frozen is None:
        real = floating.softmax(op, [dequantize_f32(x[0], quant_of(types[0]))], types, out)
        return quantize_f32(real, quant_of(out))
    rows = np.moveaxis(x[0], op.axis, -1)
    if isinstance(frozen, FrozenExp):
        codes = softmax_by_table(rows, frozen) + quant_of(out).zero_point
        return np.ascontiguousarray(np.moveaxis(_saturate(codes, None), -1, op.axis))
    assert isinstance(frozen, FrozenSoftmax)
    return np.ascontiguousarray(np.moveaxis(softmax_row_exps(rows, frozen), -1, op.axis))


def clamp(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Clamp)
    return np.clip(x[0], *clamp_bounds(op, quant_of(out)))


def clamp_bounds(op: Clamp, quant: QuantParams) -> tuple[int, int]:
    """The op's real bounds in quantized units."""
    low, high = quantize_f32(np.array([op.min, op.max], np.float32), quant)
    return int(low), int(high)


def pad(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Pad)
    if op.mode is not PadMode.CONSTANT:
        return moving.pad(op, x, types, out)
    return np.pad(x[0], op.pads, constant_values=pad_value(op, types[0]))


def trilu(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    """The codes of the triangle; elsewhere the code of 0."""
    inside = moving.trilu(op, [np.ones(x[0].shape, np.bool_)], types, out)
    assert out.quant is not None
    return np.where(inside, x[0], np.int8(out.quant.zero_point))


def pad_value(op: Pad, type: TensorType) -> float | int:
    """The element that fills padded positions."""
    if type.quant is None:
        return op.value
    return int(quantize_f32(np.array([op.value], np.float32), type.quant, type.dtype)[0])
