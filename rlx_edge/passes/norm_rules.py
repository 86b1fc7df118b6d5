"""Normalizations and softmax as exporters spell them out, put together one step at a time.

The normalized tensor becomes a LayerNorm with factors of 1 and offsets of 0; a product with a constant and a sum with
one that follow become its gamma and beta.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_edge.ir import Array
from rlx_edge.ir.ops import ActivationFn, LayerNorm, ReduceOp, RmsNorm, Softmax
from rlx_edge.passes.pattern import (
    Apply,
    Bind,
    Pattern,
    Scalar,
    Tensor,
    act,
    add,
    div,
    either,
    mul,
    number,
    reciprocal,
    reduce,
    root,
    square,
    sub,
)
from rlx_edge.passes.rebuild import vector_along
from rlx_edge.passes.recognize import Recognizer, Rule, Site, one_op

X, GAMMA, BETA = Tensor("x"), Tensor("gamma"), Tensor("beta")
AXES = Bind("axes")

_MEAN = reduce(ReduceOp.MEAN, X, AXES)
_CENTERED = sub(X, _MEAN)
_VARIANCE = add(reduce(ReduceOp.MEAN, square(_CENTERED), AXES), Scalar("eps"))
_MEAN_SQUARE = add(reduce(ReduceOp.MEAN, square(X), AXES), Scalar("eps"))


def _inverse(x: Pattern) -> Pattern:
    """1 / sqrt(x)."""
    return either(act(ActivationFn.RSQRT, x), reciprocal(root(x)))


_INVERSE = _inverse(_VARIANCE)
_SCALED_INVERSE = mul(_INVERSE, GAMMA)


def _norm(gamma: Pattern, beta: Pattern) -> Apply:
    return Apply(LayerNorm, (("axis", Bind("axis")), ("eps", Bind("eps"))), (X, gamma, beta))


def _axis(site: Site) -> int | None:
    """The only axis of the pattern's reductions."""
    axes = site.found["axes"]
    assert isinstance(axes, tuple)
    return axes[0] % len(site.node.type.shape) if len(axes) == 1 else None


def _plain(site: Site) -> int | None:
    """The normalized tensor itself."""
    axis = _axis(site)
    return None if axis is None else _layer_norm(site, axis, 1.0, 0.0)


def _with_factors(site: Site) -> int | None:
    axis = _axis(site)
    return None if axis is None else _layer_norm(site, axis, site.values("gamma"), site.values("beta"))


def _with_gamma(site: Site) -> int | None:
    return _layer_norm(site, _held_axis(site), site.values("gamma"), 0.0)


def _with_beta(site: Site) -> int | None:
    return _layer_norm(site, _held_axis(site), site.values("gamma"), site.values("beta"))


def _held_axis(site: Site) -> int:
    axis = site.found["axis"]
    assert isinstance(axis, int)
    return axis % len(site.node.type.shape)


def _layer_norm(site: Site, axis: int, gamma: Array | float | None, beta: Array | float | None) -> int | None:
    """None where a factor is computed, or is not one value an index of the axis. The variance must stay positive."""
    shape, eps = site.type("x").shape, site.scalar("eps")
    if gamma is None or beta is None or eps < 0.0:
        return None
    vectors = [vector_along(np.asarray(values, np.float32), shape, axis) for values in (gamma, beta)]
    params = [
        site.builder.param(f"{site.node.name}.{name}", np.ascontiguousarray(vector))
        for name, vector in zip(("gamma", "beta"), vectors, strict=True)
        if vector is not None
    ]
    return site.result(LayerNorm(axis, eps), [site.tensor("x"), *params]) if len(params) == 2 else None


def _rms(site: Site) -> int | None:
    axis = _axis(site)
    return None if axis is None else _rms_norm(site, axis, 1.0)


def _rms_with_gamma(site: Site) -> int | None:
    return _rms_norm(site, _held_axis(site), site.values("gamma"))


def _rms_norm(site: Site, axis: int, gamma: Array | float | None) -> int | None:
    vector = None if gamma is None else vector_along(np.asarray(gamma, np.float32), site.type("x").shape, axis)
    if vector is None or site.scalar("eps") < 0.0:
        return None
    factor = site.builder.param(f"{site.node.name}.gamma", np.ascontiguousarray(vector))
    return site.result(RmsNorm(axis, site.scalar("eps")), [site.tensor("x"), factor])


def _softmax(site: Site) -> Softmax | None:
    axis = _axis(site)
    return None if axis is None else Softmax(axis)


def _exp_over_sum(exponent: Pattern) -> Pattern:
    powers = act(ActivationFn.EXP, exponent)
    total = reduce(ReduceOp.SUM, powers, AXES)
    return either(div(powers, total), mul(powers, reciprocal(total)))


_RULES: tuple[tuple[str, Pattern, Callable[[Site], int | None]], ...] = (
    ("layer norm", either(div(_CENTERED, root(_VARIANCE)), mul(_CENTERED, _INVERSE)), _plain),
    (
        "layer norm as one factor and one offset",
        add(mul(X, _SCALED_INVERSE), sub(BETA, mul(_MEAN, _SCALED_INVERSE))),
        _with_factors,
    ),
    ("layer norm, gamma", mul(_norm(number(1.0), number(0.0)), GAMMA), _with_gamma),
    ("layer norm, beta", add(_norm(GAMMA, number(0.0)), BETA), _with_beta),
    ("rms norm", either(div(X, root(_MEAN_SQUARE)), mul(X, _inverse(_MEAN_SQUARE))), _rms),
    (
        "rms norm, gamma",
        mul(Apply(RmsNorm, (("axis", Bind("axis")), ("eps", Bind("eps"))), (X, number(1.0))), GAMMA),
        _rms_with_gamma,
    ),
    ("softmax", _exp_over_sum(sub(X, reduce(ReduceOp.MAX, X, AXES))), one_op(_softmax)),
    ("softmax without its maximum", _exp_over_sum(X), one_op(_softmax)),
)

RULES: tuple[Rule, ...] = tuple(Rule(*row) for row in _RULES)

recognize_norms = Recognizer(RULES)
"""The pass."""
