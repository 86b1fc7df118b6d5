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
from rlx_edge.ir import Array, DType, Frozen, FrozenAdd, FrozenScale, FrozenSoftmax, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Binary, BinaryOp, Op, Pool, QConv2d, QMatMul, Quantize, Reduce, ReduceOp, Softmax

Int = Array

ADD_LEFT_SHIFT = 20
SOFTMAX_INTEGER_BITS = 5

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


def rescale(x: Int, frozen: FrozenScale, rule: Requant) -> Int:
    """Apply frozen multipliers and shifts along the last axis, under an integer rule."""
    multipliers, shifts = np.array(frozen.multipliers, np.int64), np.array(frozen.shifts, np.int64)
    scale = scale_single_rounding if rule is Requant.SINGLE else scale_double_rounding
    return scale(x, multipliers, shifts)


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


def quantize_f32(x: Array, quant: QuantParams, dtype: DType = DType.I8) -> Array:
    """saturate(round(x / scale) + zero_point), the division in float32, ties away from zero. NaN gives zero_point."""
    scales, zeros = quant.broadcast(x.ndim)
    low, high = dtype.limits
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = round_half_away(x.astype(np.float32) / scales.astype(np.float32))
    wide = np.nan_to_num(ratio.astype(np.float64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40))
    bounded = np.clip(wide, -(2.0**40), 2.0**40).astype(np.int64)
    return np.asarray(np.clip(bounded + zeros, low, high).astype(dtype.numpy))


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


def _ratio(op: Op, operands: Sequence[TensorType], out: TensorType) -> FrozenScale:
    """in_scale / out_scale."""
    return frozen_scale([_quant(operands[0]).scale / _quant(out).scale])


def _binary(op: Op, operands: Sequence[TensorType], out: TensorType) -> Frozen:
    assert isinstance(op, Binary)
    if op.fn is BinaryOp.MUL:
        return _product(op, operands, out)
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


_FreezeFunction = Callable[[Op, Sequence[TensorType], TensorType], Frozen | None]

_FREEZE: dict[tuple[type[Op], Requant], _FreezeFunction] = {
    (QConv2d, Requant.TFLM): _product,
    (QConv2d, Requant.TFLITE_REF): _product,
    (QConv2d, Requant.SINGLE): _product,
    (QConv2d, Requant.ONNX): _none,
    (QConv2d, Requant.RLX): _none,
    (QMatMul, Requant.TFLM): _product,
    (QMatMul, Requant.TFLITE_REF): _product_f32,
    (QMatMul, Requant.SINGLE): _product,
    (QMatMul, Requant.ONNX): _none,
    (QMatMul, Requant.RLX): _none,
    (Binary, Requant.TFLM): _binary,
    (Binary, Requant.TFLITE_REF): _binary,
    (Binary, Requant.RLX): _none,
    (Quantize, Requant.TFLM): _ratio,
    (Quantize, Requant.TFLITE_REF): _ratio,
    (Quantize, Requant.RLX): _none,
    (Pool, Requant.TFLM): _none,
    (Pool, Requant.TFLITE_REF): _none,
    (Pool, Requant.RLX): _none,
    (Reduce, Requant.TFLM): _mean,
    (Reduce, Requant.TFLITE_REF): _mean,
    (Reduce, Requant.RLX): _none,
    (Softmax, Requant.TFLM): _softmax,
    (Softmax, Requant.TFLITE_REF): _softmax,
    (Softmax, Requant.RLX): _none,
}
"""The op x rule matrix of docs/numerics.md."""


def rules_of(kind: type[Op]) -> tuple[Requant, ...]:
    """The rules that an op kind has on int8 tensors."""
    return tuple(rule for op, rule in _FREEZE if op is kind)
