"""Activation functions as exporters spell them out. `merge_clamps` has made every clamp a Relu or a Clamp before."""

from __future__ import annotations

import math

from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, CmpOp, Op
from rlx_edge.passes.merge_clamps import FLOAT_MAX
from rlx_edge.passes.pattern import (
    Pattern,
    Scalar,
    Tensor,
    act,
    add,
    binary,
    clip,
    compare,
    div,
    either,
    mul,
    negative,
    number,
    plus,
    power,
    product,
    reciprocal,
    root,
    square,
    sub,
    times,
    where,
)
from rlx_edge.passes.recognize import Recognizer, Rule, Site, activation, one_op

X = Tensor("x")
ALPHA = Scalar("alpha")
ZERO, HALF, ONE = number(0.0), number(0.5), number(1.0)

_RELU6_OF_X_PLUS_3 = clip(plus(X, 3.0), 0.0, 6.0)
_SIGMOID = act(ActivationFn.SIGMOID, X)
_SOFTPLUS = act(ActivationFn.SOFTPLUS, X)
_EXP_OF_MINUS_X_PLUS_1 = add(act(ActivationFn.EXP, negative(X)), ONE)
_BELOW_0 = either(clip(X, -math.inf, 0.0), clip(X, -FLOAT_MAX, 0.0))
_RELU_OF_MINUS_X_TIMES = mul(act(ActivationFn.RELU, negative(X)), ALPHA)


def _erf_form() -> Pattern:
    """x * 0.5 * (1 + erf(x / sqrt(2)))."""
    return product(X, add(act(ActivationFn.ERF, times(X, math.sqrt(0.5))), ONE), 0.5)


def _tanh_form() -> Pattern:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), also with x factored out."""
    factor, cubic = math.sqrt(2.0 / math.pi), 0.044715
    cube = either(power(X, number(3.0)), mul(X, square(X)))
    third = either(times(cube, cubic), product(X, square(X), cubic))
    inner = either(times(add(X, third), factor), product(X, add(times(square(X), cubic), ONE), factor))
    return product(X, add(act(ActivationFn.TANH, inner), ONE), 0.5)


def _leaky(slope: float) -> Op:
    return Activation(ActivationFn.LEAKY_RELU, slope)


def _leaky_up_to_1(site: Site) -> Op | None:
    """max(x, alpha * x) is x above 0 only for slopes up to 1."""
    return _leaky(site.scalar("alpha")) if site.scalar("alpha") <= 1.0 else None


def _if_it_is_x_there(site: Site) -> int | None:
    """PyTorch's softplus is x beyond 20. Beyond 17 the difference, exp(-17), is below float32's rounding of 17."""
    return site.result(Activation(ActivationFn.SOFTPLUS), [site.tensor("x")]) if site.scalar("most") >= 17.0 else None


_LEAKY_TIMES = mul(X, ALPHA)
_LEAKY_WHERE = either(
    where(either(compare(CmpOp.GT, X, ZERO), compare(CmpOp.GE, X, ZERO)), X, _LEAKY_TIMES),
    where(either(compare(CmpOp.LT, X, ZERO), compare(CmpOp.LE, X, ZERO)), _LEAKY_TIMES, X),
    where(either(compare(CmpOp.LT, ZERO, X), compare(CmpOp.LE, ZERO, X)), X, _LEAKY_TIMES),
    add(act(ActivationFn.RELU, X), mul(_BELOW_0, ALPHA)),
    sub(act(ActivationFn.RELU, X), _RELU_OF_MINUS_X_TIMES),
)

RULES: tuple[Rule, ...] = (
    Rule(
        "hard sigmoid",
        either(
            times(_RELU6_OF_X_PLUS_3, 1 / 6),
            clip(plus(times(X, 1 / 6), 0.5), 0.0, 1.0),
            clip(times(plus(X, 3.0), 1 / 6), 0.0, 1.0),
        ),
        activation(ActivationFn.HARD_SIGMOID),
    ),
    Rule(
        "hard swish",
        either(mul(X, act(ActivationFn.HARD_SIGMOID, X)), product(X, _RELU6_OF_X_PLUS_3, 1 / 6)),
        activation(ActivationFn.HARD_SWISH),
    ),
    Rule(
        "sigmoid",
        either(
            reciprocal(_EXP_OF_MINUS_X_PLUS_1),
            times(plus(act(ActivationFn.TANH, times(X, 0.5)), 1.0), 0.5),
            plus(times(act(ActivationFn.TANH, times(X, 0.5)), 0.5), 0.5),
        ),
        activation(ActivationFn.SIGMOID),
    ),
    Rule("silu", either(mul(X, _SIGMOID), div(X, _EXP_OF_MINUS_X_PLUS_1)), activation(ActivationFn.SILU)),
    Rule(
        "softplus",
        act(ActivationFn.LOG, add(act(ActivationFn.EXP, X), ONE)),
        activation(ActivationFn.SOFTPLUS),
    ),
    Rule("softplus with a threshold", where(compare(CmpOp.GT, X, Scalar("most")), X, _SOFTPLUS), _if_it_is_x_there),
    Rule(
        "mish",
        mul(X, act(ActivationFn.TANH, _SOFTPLUS)),
        activation(ActivationFn.MISH),
    ),
    Rule(
        "log sigmoid",
        either(act(ActivationFn.LOG, _SIGMOID), negative(act(ActivationFn.SOFTPLUS, negative(X)))),
        activation(ActivationFn.LOG_SIGMOID),
    ),
    Rule("gelu", _erf_form(), activation(ActivationFn.GELU)),
    Rule("gelu by tanh", _tanh_form(), activation(ActivationFn.GELU_APPROX)),
    Rule("softsign", div(X, add(act(ActivationFn.ABS, X), ONE)), activation(ActivationFn.SOFTSIGN)),
    Rule("absolute value", binary(BinaryOp.MAX, X, negative(X)), activation(ActivationFn.ABS)),
    Rule("leaky relu by max", binary(BinaryOp.MAX, X, _LEAKY_TIMES), one_op(_leaky_up_to_1)),
    Rule("leaky relu", _LEAKY_WHERE, one_op(lambda site: _leaky(site.scalar("alpha")))),
    Rule(
        "leaky relu by a negative slope",
        add(act(ActivationFn.RELU, X), _RELU_OF_MINUS_X_TIMES),
        one_op(lambda site: _leaky(-site.scalar("alpha"))),
    ),
    Rule("reciprocal root", reciprocal(root(X)), activation(ActivationFn.RSQRT)),
    Rule("root", power(X, HALF), activation(ActivationFn.SQRT)),
    Rule("reciprocal", either(div(ONE, X), power(X, number(-1.0))), activation(ActivationFn.RECIP)),
    Rule("square", power(X, number(2.0)), one_op(lambda site: Binary(BinaryOp.MUL), "x", "x")),
)
"""Tried in this order."""

recognize_activations = Recognizer(RULES)
"""The pass."""
