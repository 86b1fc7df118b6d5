"""The one home of every rounding rule.

First the integer arithmetic, then one pure function a (op, rule) pair from real scales to the frozen integers that the
reference, the host C and the device all use. Values are int64 arrays that hold int32 values, so that nothing wraps
unseen; the code generator proves that the int32 arithmetic of the C code cannot overflow.

The formulas are those of TensorFlow Lite's int8 specification as the `tflite-micro` wheel executes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import (
    Array,
    DType,
    Frozen,
    FrozenAdd,
    FrozenExp,
    FrozenScale,
    FrozenSoftmax,
    FrozenTable,
    Graph,
    QuantParams,
    Requant,
    TensorType,
)
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Op,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Softmax,
)
from rlx_edge.reference import unary

Int = Array

ADD_LEFT_SHIFT = 20
SOFTMAX_INTEGER_BITS = 5
EXP_BITS = 27
"""Fraction bits of softmax's powers under the rule onnx: sums of 4,095 of them, times 24 bits, fit 63 bits."""
FLOAT32_SCALES = (2.0**-40, 2.0**40)
SOFTMAX_SCALES = (2.0**-12, 1.0)

# ---- Arithmetic ----------------------------------------------------------------------------------------------------


def round_half_away(x: Array) -> Array:
    """Round to the nearest integer, ties away from zero."""
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x) if x.dtype == np.float64 else _round_f32(x)


def _round_f32(x: Array) -> Array:
    # |x| + 0.5 is not exact in float32 (0.49999997 + 0.5 rounds to 1), so the sum is made in double.
    wide = x.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(x.dtype)


def high_mul(x: ArrayLike, multiplier: ArrayLike) -> Int:
    """(x * multiplier + 2^30) >> 31: the rounded upper half of the doubled product, ties towards +infinity."""
    product = np.asarray(x, np.int64) * np.asarray(multiplier, np.int64)
    return np.asarray(np.minimum((product + (1 << 30)) >> 31, (1 << 31) - 1))


def shift_right(x: ArrayLike, bits: ArrayLike) -> Int:
    """x / 2^bits, rounded to nearest, ties away from zero."""
    wide, n = np.asarray(x, np.int64), np.asarray(bits, np.int64)
    mask = (np.int64(1) << n) - 1
    return (wide >> n) + ((wide & mask) > (mask >> 1) + (wide < 0))


def scale_double_rounding(x: ArrayLike, multiplier: ArrayLike, shift: ArrayLike) -> Int:
    """x * multiplier / 2^31 * 2^shift with two roundings: the high multiply's, then the right shift's (rule tflm)."""
    left, right = np.maximum(shift, 0), np.maximum(np.negative(shift), 0)
    return shift_right(high_mul(np.asarray(x, np.int64) << left, multiplier), right)


def scale_single_rounding(x: ArrayLike, multiplier: ArrayLike, shift: ArrayLike) -> Int:
    """The same with one rounding of the 64-bit product, ties towards +infinity (rule single)."""
    total = 31 - np.asarray(shift, np.int64)
    product = np.asarray(x, np.int64) * np.asarray(multiplier, np.int64)
    return (product + (np.int64(1) << (total - 1))) >> total


def scale_float32(x: ArrayLike, multiplier: ArrayLike, shift: ArrayLike) -> Int:
    """rint(float32(x) * real) with real = multiplier / 2^31 * 2^shift, a float32: each step rounded to the nearest
    float32, ties to even, as ONNX Runtime's kernels do (rule onnx)."""
    real = np.ldexp(np.asarray(multiplier, np.float64), np.asarray(shift) - 31).astype(np.float32)
    product = np.asarray(x, np.int64).astype(np.float32) * real
    return np.asarray(np.clip(np.rint(product).astype(np.float64), -(2.0**40), 2.0**40).astype(np.int64))


_SCALE: dict[Requant, Callable[[ArrayLike, ArrayLike, ArrayLike], Int]] = {
    Requant.TFLM: scale_double_rounding,
    Requant.TFLITE_REF: scale_double_rounding,
    Requant.TFLITE_UINT8: scale_double_rounding,
    Requant.SINGLE: scale_single_rounding,
    Requant.ONNX: scale_float32,
}


def rescale(x: Int, frozen: FrozenScale, rule: Requant) -> Int:
    """Apply frozen multipliers and shifts along the last axis. Raises UnsupportedError for a rule without them."""
    if rule not in _SCALE:
        raise UnsupportedError(f"frozen multipliers under the rounding rule {rule.value!r}, which has none")
    return _SCALE[rule](x, np.array(frozen.multipliers, np.int64), np.array(frozen.shifts, np.int64))


def quantize_multiplier(real: float) -> tuple[int, int]:
    """(multiplier, shift) with real = multiplier / 2^31 * 2^shift and 2^30 <= multiplier < 2^31.

    A multiplier of 0, or one below 2^-32, gives (0, 0). Raises ValueError for one that is negative, not finite, or
    too large to be applied (2^31 and above).
    """
    if not math.isfinite(real) or real < 0 or real >= 2.0**31:
        raise ValueError(f"a multiplier of {real} cannot be applied to an int32")
    fraction, exponent = math.frexp(real)
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier >>= 1
        exponent += 1
    if exponent < -31 or multiplier == 0:
        return 0, 0
    return multiplier, exponent


def frozen_scale(reals: Sequence[float]) -> FrozenScale:
    """quantize_multiplier of each."""
    pairs = [quantize_multiplier(real) for real in reals]
    return FrozenScale(tuple(m for m, _ in pairs), tuple(s for _, s in pairs))


# ---- Real numbers to integers and back -------------------------------------------------------------------------------


def quantize_f32(
    x: Array, quant: QuantParams, dtype: DType = DType.I8, rounding: Callable[[Array], Array] = round_half_away
) -> Array:
    """saturate(round(x / scale) + zero_point), the division in float32. NaN gives zero_point.

    `rounding`: ties away from zero; np.rint, ties to even, is that of the rule onnx.
    """
    scales, zeros = quant.broadcast(x.ndim)
    low, high = dtype.limits
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = rounding(x.astype(np.float32) / scales.astype(np.float32))
    wide = np.nan_to_num(ratio.astype(np.float64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40))
    bounded = np.clip(wide, -(2.0**40), 2.0**40).astype(np.int64)
    return np.asarray(np.clip(bounded + zeros, low, high).astype(dtype.numpy))


Rounding = Callable[[Array], Array]
"""From real numbers to the nearest integers, in one way or another at ties."""


def input_rounding(graph: Graph) -> Rounding:
    """How real values become codes at the inputs of an int8 model: to even where it follows the rule onnx."""
    onnx = any(getattr(node.op, "requant", None) is Requant.ONNX for node in graph.nodes)
    return np.rint if onnx else round_half_away


def dequantize_f32(q: Array, quant: QuantParams) -> Array:
    """(q - zero_point) * scale, rounded once to float32."""
    scales, zeros = quant.broadcast(q.ndim)
    return ((q.astype(np.int64) - zeros) * scales).astype(np.float32)


# ---- (op, rule) -> frozen integers -----------------------------------------------------------------------------------


def freeze(op: Op, operands: Sequence[TensorType], out: TensorType) -> Frozen | None:
    """The integers that `op` computes with under its rule, or None for an op (or a rule) that needs none.

    Raises UnsupportedError, naming both, for a pair that docs/numerics.md leaves empty.
    """
    rule: Requant | None = getattr(op, "requant", None)
    if rule is None or out.dtype != DType.I8 or operands[0].dtype != DType.I8:
        return None
    if isinstance(op, Activation) and op.fn is ActivationFn.TABLE:
        return op.frozen
    function = _FREEZE.get((type(op), rule))
    if function is None:
        raise UnsupportedError(f"{op.kind_name} has no rounding rule {rule.value!r} (docs/numerics.md)")
    try:
        return function(op, operands, out)
    except ValueError as error:
        raise UnsupportedError(f"{op.kind_name}: {error}") from error


def _quant(type: TensorType) -> QuantParams:
    if type.quant is None:
        raise ValueError(f"a tensor {type} without quantization parameters")
    return type.quant


def _none(op: Op, operands: Sequence[TensorType], out: TensorType) -> None:
    """Rules that compute in float32 from the scales themselves, and ops that need no multiplier."""


def _product(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """x_scale * w_scale / out_scale in double precision."""
    x, w, y = _quant(operands[0]), _quant(operands[1]), _quant(out)
    return frozen_scale([x.scale * scale / y.scale for scale in w.scales])


def _product_f32(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """The same with x_scale * w_scale rounded to float32 first, as tflite-runtime's FULLY_CONNECTED does.

    Only for one scale per tensor: with one per channel it takes the double product, as convolutions do.
    """
    x, w, y = _quant(operands[0]), _quant(operands[1]), _quant(out)
    if len(w.scales) > 1:
        return _product(op, operands, out)
    return frozen_scale([float(np.float32(x.scale) * np.float32(w.scale)) / y.scale])


def _product_all_f32(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """Product and quotient both rounded to float32, as tflite-runtime's MUL does."""
    a, b, y = (np.float32(_quant(type).scale) for type in (*operands, out))
    return frozen_scale([float(a * b / y)])


def _ratio(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """in_scale / out_scale."""
    return frozen_scale([_quant(operands[0]).scale / _quant(out).scale])


def _binary(op: Op, operands: Sequence[TensorType], out: TensorType) -> Frozen:
    assert isinstance(op, Binary)
    if op.fn is BinaryOp.MUL:
        return _product(op, operands, out) if op.requant is Requant.TFLM else _product_all_f32(op, operands, out)
    if op.fn not in (BinaryOp.ADD, BinaryOp.SUB):
        raise ValueError(f"an int8 {op.fn.value}")
    a, b, y = _quant(operands[0]).scale, _quant(operands[1]).scale, _quant(out).scale
    twice_max = 2.0 * max(a, b)
    return FrozenAdd(
        ADD_LEFT_SHIFT,
        frozen_scale([a / twice_max]),
        frozen_scale([b / twice_max]),
        frozen_scale([twice_max / ((1 << ADD_LEFT_SHIFT) * y)]),
    )


def _mean(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """in_scale / out_scale with 1 / count worked in, truncating: (multiplier << bits) // count."""
    assert isinstance(op, Reduce)
    if op.op is not ReduceOp.MEAN:
        raise ValueError(f"an int8 reduction {op.op.value}")
    count = operands[0].elements // out.elements
    multiplier, shift = quantize_multiplier(_quant(operands[0]).scale / _quant(out).scale)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    return FrozenScale(((multiplier << bits) // count,), (shift - bits,))


def _softmax(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenSoftmax:
    assert isinstance(op, Softmax)
    if _quant(out) != QuantParams.per_tensor(1 / 256, -128):
        raise ValueError("an int8 softmax needs an output scale of 1/256 and a zero point of -128")
    fraction_bits = 31 - SOFTMAX_INTEGER_BITS
    real = min(op.beta * _quant(operands[0]).scale * (1 << fraction_bits), 2.0**31 - 1.0)
    if real <= 1.0:
        raise ValueError(f"an input scale of {_quant(operands[0]).scale:g} is too small for an int8 softmax")
    multiplier, left_shift = quantize_multiplier(real)
    radius = math.floor(((1 << SOFTMAX_INTEGER_BITS) - 1) * (1 << fraction_bits) / (1 << left_shift))
    return FrozenSoftmax(multiplier, left_shift, -radius)


# ---- Rule onnx: the same steps in float32 ----------------------------------------------------------------------------


def _product_float32(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """x_scale * w_scale / out_scale, each step rounded to float32."""
    x, w, y = _quant(operands[0]), _quant(operands[1]), _quant(out)
    with np.errstate(over="ignore", under="ignore"):
        reals = np.float32(x.scale) * np.array(w.scales, np.float32) / np.float32(y.scale)
    return frozen_scale([float(real) for real in reals])


def _mean_float32(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """in_scale / (out_scale * count), each step rounded to float32."""
    assert isinstance(op, Reduce)
    if op.op is not ReduceOp.MEAN:
        raise ValueError(f"an int8 reduction {op.op.value}")
    count = operands[0].elements // out.elements
    return frozen_scale(
        [float(np.float32(_quant(operands[0]).scale) / (np.float32(_quant(out).scale) * np.float32(count)))]
    )


def _scales_float32(op: Op, operands: Sequence[TensorType], out: TensorType) -> None:
    """Float32 arithmetic on the scales themselves; they must be such that no step overflows or is subnormal."""
    low, high = FLOAT32_SCALES
    for scale in (_quant(type).scale for type in (*operands, out)):
        if not low <= scale <= high:
            raise ValueError(f"a scale of {scale:g}; the rule onnx takes {low:g} to {high:g} here")
    if isinstance(op, Binary) and op.fn not in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
        raise ValueError(f"an int8 {op.fn.value}")


def _table_float32(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenTable:
    """quantize(f(dequantize(q))) of every code q, in float32."""
    codes = np.arange(-128, 128).astype(np.int8)
    real = dequantize_f32(codes, _quant(operands[0]))
    if isinstance(op, Activation):
        real = unary.apply(op.fn, real, op.alpha)
    return FrozenTable(tuple(int(q) for q in quantize_f32(real, _quant(out), rounding=np.rint)))


def _softmax_table(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenExp:
    """Powers in float64, rounded to 27 bits; the rest of softmax is integer arithmetic (reference/fixedsoftmax.py)."""
    assert isinstance(op, Softmax)
    low, high = SOFTMAX_SCALES
    scale = float(np.float32(_quant(out).scale))
    if not low <= scale <= high:
        raise ValueError(f"an output scale of {scale:g}; the rule onnx takes {low:g} to {high:g} for softmax")
    differences = np.arange(256, dtype=np.float64) * (_quant(operands[0]).scale * op.beta)
    powers = np.rint(np.exp(-differences) * (1 << EXP_BITS))
    mantissa, exponent = math.frexp(scale)
    return FrozenExp(tuple(int(p) for p in powers), int(mantissa * (1 << 24)), 24 - exponent)


def _table(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenTable:
    from rlx_edge.reference.activation_tables import freeze_activation  # it builds on this file's arithmetic

    assert isinstance(op, Activation)
    return freeze_activation(op, _quant(operands[0]), _quant(out))


_FreezeFunction = Callable[[Op, Sequence[TensorType], TensorType], Frozen | None]

_FREEZE: dict[tuple[type[Op], Requant], _FreezeFunction] = {
    (Activation, Requant.ONNX): _table_float32,
    (QConv2d, Requant.TFLM): _product,
    (QConv2d, Requant.TFLITE_REF): _product,
    (QConv2d, Requant.TFLITE_UINT8): _product_f32,
    (QConv2d, Requant.SINGLE): _product,
    (QConv2d, Requant.ONNX): _product_float32,
    (QConv2d, Requant.RLX): _none,
    (QMatMul, Requant.TFLM): _product,
    (QMatMul, Requant.TFLITE_REF): _product_f32,
    (QMatMul, Requant.TFLITE_UINT8): _product_f32,
    (QMatMul, Requant.SINGLE): _product,
    (QMatMul, Requant.ONNX): _product_float32,
    (QMatMul, Requant.RLX): _none,
    (Binary, Requant.TFLM): _binary,
    (Binary, Requant.TFLITE_REF): _binary,
    (Binary, Requant.TFLITE_UINT8): _binary,
    (Binary, Requant.ONNX): _scales_float32,
    (Binary, Requant.RLX): _none,
    (Quantize, Requant.TFLM): _ratio,
    (Quantize, Requant.TFLITE_REF): _ratio,
    (Quantize, Requant.TFLITE_UINT8): _ratio,
    (Quantize, Requant.ONNX): _table_float32,
    (Quantize, Requant.RLX): _none,
    (Pool, Requant.TFLM): _none,
    (Pool, Requant.TFLITE_REF): _none,
    (Pool, Requant.TFLITE_UINT8): _none,
    (Pool, Requant.ONNX): _scales_float32,
    (Pool, Requant.RLX): _none,
    (Reduce, Requant.TFLM): _mean,
    (Reduce, Requant.TFLITE_REF): _mean,
    (Reduce, Requant.TFLITE_UINT8): _mean,
    (Reduce, Requant.ONNX): _mean_float32,
    (Reduce, Requant.RLX): _none,
    (Softmax, Requant.TFLM): _softmax,
    (Softmax, Requant.TFLITE_REF): _softmax,
    (Softmax, Requant.TFLITE_UINT8): _softmax,
    (Softmax, Requant.ONNX): _softmax_table,
    (Softmax, Requant.RLX): _none,
    (Activation, Requant.TFLM): _table,
    (Activation, Requant.TFLITE_REF): _table,
    (Activation, Requant.TFLITE_UINT8): _table,
    (Activation, Requant.RLX): _table,
}
"""The op x rule matrix of docs/numerics.md."""


def rules_of(kind: type[Op]) -> tuple[Requant, ...]:
    """The rules that an op kind has on int8 tensors."""
    return tuple(rule for op, rule in _FREEZE if op is kind)
