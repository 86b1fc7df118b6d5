"""What each unary function means. Float results are worked out in float64 and rounded once.

Formulas are those of the RLX vocabulary. numpy has no error function, and SciPy, which has one, is no dependency of
this package: `math.erf` and `math.erfc` are exact to the last bits of a float64, at some 100 ns an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Clamp, Op

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))  # exp overflows to infinity where the result is 0.


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * _erfc(-x / math.sqrt(2.0)))  # erfc keeps its digits where 1 + erf cancels.


def _gelu_approx(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, x))


def _hard_sigmoid(x: Array) -> Array:
    return np.asarray(np.clip(x / 6.0 + 0.5, 0.0, 1.0))


def _hard_swish(x: Array) -> Array:
    return np.asarray(x * np.clip(x + 3.0, 0.0, 6.0) / 6.0)


ON_REALS: dict[ActivationFn, Callable[[Array], Array]] = {
    ActivationFn.GELU: _gelu,
    ActivationFn.GELU_APPROX: _gelu_approx,
    ActivationFn.SILU: lambda x: np.asarray(x * _sigmoid(x)),
    ActivationFn.SIGMOID: _sigmoid,
    ActivationFn.TANH: np.tanh,
    ActivationFn.EXP: np.exp,
    ActivationFn.LOG: np.log,
    ActivationFn.SQRT: np.sqrt,
    ActivationFn.RSQRT: lambda x: np.asarray(1.0 / np.sqrt(x)),
    ActivationFn.SIN: np.sin,
    ActivationFn.COS: np.cos,
    ActivationFn.TAN: np.tan,
    ActivationFn.ATAN: np.arctan,
    ActivationFn.RECIP: lambda x: np.asarray(1.0 / x),
    ActivationFn.ROUND: np.rint,
    ActivationFn.FLOOR: np.floor,
    ActivationFn.CEIL: np.ceil,
    ActivationFn.SOFTPLUS: _softplus,
    ActivationFn.ELU: lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    ActivationFn.ERF: _erf,
    ActivationFn.HARD_SWISH: _hard_swish,
    ActivationFn.HARD_SIGMOID: _hard_sigmoid,
    ActivationFn.MISH: lambda x: np.asarray(x * np.tanh(_softplus(x))),
    ActivationFn.SOFTSIGN: lambda x: np.asarray(x / (1.0 + np.abs(x))),
    ActivationFn.LOG_SIGMOID: lambda x: -_softplus(-x),
}
"""Functions of float64 arrays."""

ON_NUMBERS: dict[ActivationFn, Callable[[Array], Array]] = {
    ActivationFn.RELU: lambda x: np.maximum(x, x.dtype.type(0)),
    ActivationFn.NEG: np.negative,
    ActivationFn.ABS: np.abs,
    ActivationFn.SIGN: np.sign,
}
"""Functions that round nothing, in the tensor's own dtype: integers too."""


def apply(fn: ActivationFn, x: Array, alpha: float | None = None) -> Array:
    """The function of each element, in the dtype of `x`: float32, or an integer type for those of ON_NUMBERS.

    `alpha` is LeakyRelu's slope below 0.
    """
    if fn in ON_NUMBERS:
        return np.asarray(ON_NUMBERS[fn](x))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):  # Logarithms and roots outside of their range are NaN or infinite by meaning.
        if fn is ActivationFn.LEAKY_RELU:
            return np.where(wide > 0.0, wide, wide * np.float64(alpha or 0.0)).astype(x.dtype)
        return np.asarray(ON_REALS[fn](wide)).astype(x.dtype)


def activation(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Activation)
    return apply(op.fn, x[0], op.alpha)


def clamp(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Clamp)
    result: Array = np.clip(x[0], np.float32(op.min), np.float32(op.max))
    return result
