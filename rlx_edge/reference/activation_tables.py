"""Functions of one int8 as tables of 256 codes, as each rounding rule computes them.

Under `tflm` and `tflite_ref`, the functions for which TensorFlow Lite has an int8 kernel follow that kernel, in its own
fixed-point or float32 arithmetic; every other function, and every function under `rlx` and `onnx`, is worked out on
real values: dequantize, the function, quantize, in float32.

Fk is an int32 with k integer bits, as in fixedsoftmax.py. Formulas: TensorFlow Lite's reference kernels and gemmlowp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from rlx_edge.ir import Array, FrozenTable, QuantParams, Requant
from rlx_edge.ir.ops import Activation, ActivationFn
from rlx_edge.reference import unary
from rlx_edge.reference.fixedpoint import (
    Int,
    dequantize_f32,
    quantize_f32,
    quantize_multiplier,
    round_half_away,
    scale_double_rounding,
    shift_right,
)
from rlx_edge.reference.fixedsoftmax import exp_of_negative, one_minus_over_one_plus, reciprocal_of_one_plus

CODES = np.arange(-128, 128, dtype=np.int64)
_LOW, _HIGH = -128, 127

Kernel = Callable[[Activation, QuantParams, QuantParams], Int]
"""From an op, its operand's and its result's parameters to the result for each of CODES, not yet saturated."""


def freeze_activation(op: Activation, x: QuantParams, out: QuantParams) -> FrozenTable:
    """The op's table under its rule. Raises ValueError for parameters that the rule's kernel does not take."""
    kernels = _KERNELS.get(op.requant, {})
    if op.fn in kernels:
        codes = np.clip(kernels[op.fn](op, x, out), _LOW, _HIGH)
    else:
        real = unary.apply(op.fn, dequantize_f32(CODES, x), op.alpha)
        codes = quantize_f32(real, out)
    return FrozenTable(tuple(int(code) for code in codes))


# ---- Fixed point ----------------------------------------------------------------------------------------------------


def _in_f4(x: QuantParams) -> tuple[Int, Int]:
    """x - zero_point as F4 (from -16 to 16), and which of them are within that range."""
    multiplier, shift = quantize_multiplier(x.scale * 2.0**27)
    difference = CODES - x.zero_point
    # Shifted left by more than 31 bits, every code but the zero point is out of range anyway.
    radius = math.floor(15 * 2.0 ** (27 - shift)) if shift < 31 else 0
    inside = np.abs(difference) < radius
    return scale_double_rounding(np.where(inside, difference, 0), multiplier, shift), inside


def _logistic(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    raw, inside = _in_f4(x)
    positive = reciprocal_of_one_plus(exp_of_negative(-np.abs(raw), integer_bits=4))
    f0 = np.where(raw > 0, positive, np.where(raw < 0, (1 << 31) - 1 - positive, 1 << 30))
    return _outside(x, inside, shift_right(f0, 23) - 128)


def _tanh(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    raw, inside = _in_f4(x)
    magnitude = one_minus_over_one_plus(exp_of_negative(-np.abs(raw)))  # -2 |x|: the same bits, read as F5
    return _outside(x, inside, shift_right(np.sign(raw) * magnitude, 24))


def _outside(x: QuantParams, inside: Int, values: Int) -> Int:
    """`values` where the operand is within range, else the end of int8 on its side.

    Where a large scale leaves nothing within range, the zero point itself is on the lower side, as in the kernel.
    """
    return np.where(inside, values, np.where(x.zero_point >= CODES, _LOW, _HIGH))


def _rescaled(values: Int, real: float, out: QuantParams) -> Int:
    multiplier, shift = quantize_multiplier(real)
    if int(np.abs(values).max()) << max(shift, 0) > (1 << 31) - 1:
        raise ValueError(f"scales {real:g} apart, for which TFLite's kernel overflows int32")
    return scale_double_rounding(values, multiplier, shift) + out.zero_point


def _relu_f64(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    return np.maximum(_rescaled(CODES - x.zero_point, x.scale / out.scale, out), out.zero_point)


def _relu_f32(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    """tflite-runtime: the multiplier is worked out in float32."""
    real = float(np.float32(x.scale) / np.float32(out.scale))
    return np.maximum(_rescaled(CODES - x.zero_point, real, out), out.zero_point)


def _leaky_relu(x: QuantParams, out: QuantParams, above: float, below: float) -> Int:
    """One multiplier for each side of 0."""
    difference = CODES - x.zero_point
    return np.where(difference >= 0, _rescaled(difference, above, out), _rescaled(difference, below, out))


def _leaky_relu_f64(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    """tflite-micro: the multipliers are worked out in double precision."""
    return _leaky_relu(x, out, x.scale / out.scale, x.scale * _slope(op) / out.scale)


def _leaky_relu_f32(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    """tflite-runtime: the multipliers are worked out in float32."""
    x_scale, out_scale = np.float32(x.scale), np.float32(out.scale)
    return _leaky_relu(x, out, float(x_scale / out_scale), float(x_scale * np.float32(_slope(op)) / out_scale))


def _slope(op: Activation) -> float:
    alpha = op.alpha or 0.0
    if alpha < 0:
        raise ValueError(f"an int8 LeakyRelu with the slope {alpha:g}, which is negative")
    return float(np.float32(alpha))


def _abs_f64(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    return _rescaled(np.abs(CODES - x.zero_point), x.scale / out.scale, out)


def _abs_f32(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    return _rescaled(np.abs(CODES - x.zero_point), float(np.float32(x.scale) / np.float32(out.scale)), out)


def _hard_swish(op: Activation, x: QuantParams, out: QuantParams) -> Int:
    """In int16: x at 1/128 of its scale, times relu6(x + 3) / 6 as a fraction of 2^15."""
    fine = np.float32(1 / 128) * np.float32(x.scale)
    multiplier, exponent = _int16_multiplier(float(fine / np.float32(out.scale)))
    gate_multiplier, gate_exponent = _int16_multiplier(float(fine / np.float32(3 / 32768)))
    steps = (CODES - x.zero_point) * 128
    gate = _clip16(steps << max(gate_exponent - 1, 0))
    gate = _high_mul16(gate, gate_multiplier)
    if gate_exponent > 0:
        gate = _clip16(gate << 1)
    gate = _shift_right16(gate, max(-gate_exponent, 0))
    gate = (gate + (1 << 15)) >> 1
    product = gate * _high_mul16(steps, multiplier)
    halves = np.clip(np.sign(product) * (np.abs(product) >> 15), -(1 << 15), (1 << 15) - 1)
    if exponent > 0:
        raise ValueError(
            f"an input scale of {x.scale:g} is too large for an int8 HardSwish with outputs of {out.scale:g}"
        )
    return _shift_right16(halves, -exponent) + out.zero_point


def _int16_multiplier(real: float) -> tuple[int, int]:
    """quantize_multiplier, its multiplier rounded to 16 bits."""
    multiplier, exponent = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), exponent


def _shift_right16(x: Int, bits: int) -> Int:
    """shift_right on int16, where gemmlowp's mask of more than 15 bits wraps to -1: any x >= 0 gives 1, others -1."""
    return shift_right(x, bits) if bits <= 15 else np.where(x >= 0, 1, -1)


def _clip16(x: Int) -> Int:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def _high_mul16(x: Int, multiplier: int) -> Int:
    """The rounded upper half of the doubled product of two int16, ties towards +infinity."""
    return _clip16((x * multiplier + (1 << 14)) >> 15)


# ---- Float32 --------------------------------------------------------------------------------------------------------


def _lookup(function: Callable[[Array], Array]) -> Kernel:
    """The kernel that fills its own table: float32 throughout, times the reciprocal of the output's scale."""

    def kernel(op: Activation, x: QuantParams, out: QuantParams) -> Int:
        real = np.float32(x.scale) * (CODES - x.zero_point).astype(np.float32)
        with np.errstate(all="ignore"):
            scaled = function(real).astype(np.float32) * (np.float32(1) / np.float32(out.scale))
        if not (np.abs(scaled) < 2.0**31 - 256).all():
            raise ValueError(
                f"an int8 {op.fn.value} of such values overflows int32 at an output scale of {out.scale:g}"
            )
        return round_half_away(scaled).astype(np.int64) + out.zero_point

    return kernel


def _exp(x: Array) -> Array:
    """exp rounded to the nearest float32, as the C library gives it; numpy's own float32 form may be an ulp off."""
    return np.exp(x.astype(np.float64)).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.float32(1) / (np.float32(1) + _exp(-x)))


def _tanh_f32(x: Array) -> Array:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _elu(x: Array) -> Array:
    return np.where(x < 0, _exp(np.minimum(x, 0)) - np.float32(1), x)


def _gelu_approx(x: Array) -> Array:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (np.float32(1) + _tanh_f32(inner)))


def _fixed_output(kernel: Kernel, scale: float, zero_point: int) -> Kernel:
    """A kernel that takes these parameters of the output only."""

    def checked(op: Activation, x: QuantParams, out: QuantParams) -> Int:
        if out != QuantParams.per_tensor(scale, zero_point):
            wanted = f"an output scale of 1/{1 / scale:g} and a zero point of {zero_point}"
            raise ValueError(f"an int8 {op.fn.value} needs {wanted}")
        return kernel(op, x, out)

    return checked


_TFLITE_RUNTIME: Mapping[ActivationFn, Kernel] = {
    ActivationFn.SIGMOID: _fixed_output(_lookup(_sigmoid), 1 / 256, -128),
    ActivationFn.HARD_SWISH: _hard_swish,
    ActivationFn.RELU: _relu_f32,
    ActivationFn.LEAKY_RELU: _leaky_relu_f32,
    ActivationFn.GELU_APPROX: _lookup(_gelu_approx),
    ActivationFn.TANH: _fixed_output(_lookup(_tanh_f32), 1 / 128, 0),
}
"""On int8 and on uint8. Its exact GELU is missing: the table follows erfcf of the machine's C library, which may be an
ulp off, so that it has no bits of its own."""

_KERNELS: Mapping[Requant, Mapping[ActivationFn, Kernel]] = {
    Requant.TFLM: {
        ActivationFn.SIGMOID: _fixed_output(_logistic, 1 / 256, -128),
        ActivationFn.TANH: _fixed_output(_tanh, 1 / 128, 0),
        ActivationFn.HARD_SWISH: _hard_swish,
        ActivationFn.RELU: _relu_f64,
        ActivationFn.LEAKY_RELU: _leaky_relu_f64,
        ActivationFn.ABS: _abs_f64,
        ActivationFn.ELU: _lookup(_elu),
    },
    Requant.TFLITE_REF: {
        **_TFLITE_RUNTIME,
        ActivationFn.ABS: _abs_f32,
        ActivationFn.EXP: _lookup(_exp),
    },
    Requant.TFLITE_UINT8: _TFLITE_RUNTIME,
}
"""The functions for which the runtime behind a rule has an int8 kernel of its own."""


def has_kernel(fn: ActivationFn, rule: Requant) -> bool:
    """Whether the runtime behind a rule has an int8 kernel for the function, whose bits the table has."""
    return fn in _KERNELS.get(rule, {})
