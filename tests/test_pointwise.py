"""Elementwise ops against exact rational arithmetic, Python's own numbers, and onnxruntime."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Cast, Clamp, CmpOp, Compare, Where
from rlx_edge.ir.ops.elementwise import ON_BITS, ON_INTEGERS_ONLY
from rlx_edge.ir.ops.pointwise import Fma, GatedResidual, StopGradient

SINGLES = st.floats(width=32)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, 1e-30, 1e30, math.inf, -math.inf, math.nan]


def singles(seed: int, size: int = 40) -> Array:
    """Values of all magnitudes, with the special ones."""
    random = np.random.default_rng(seed)
    values = random.normal(size=size) * np.exp2(random.integers(-12, 13, size))
    return np.concatenate([values, random.permutation(SPECIAL)]).astype(np.float32)


def rounded(exact: Fraction) -> np.float32:
    """The nearest float32, of two equally near the one with an even last bit; of a number that is not too large."""
    with np.errstate(over="ignore"):
        near = np.float32(float(exact))
        candidates = [near, *(np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf))]
    finite = filter(np.isfinite, candidates)
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1))


@given(st.lists(st.tuples(SINGLES, SINGLES, SINGLES), min_size=1, max_size=20))
@example([(1.0 + 2.0**-23, 1.0 + 2.0**-23, -1.0)])  # the product alone does not fit
@example([(1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-60), (1.0 + 2.0**-12, 1.0 + 2.0**-12, -(2.0**-60))])  # a tie, and not
@example([(0.0, 0.0, 2.0**128 - 2.0**104), (2.0**127, 2.0, -(2.0**103)), (2.0**127, 2.0, -(2.0**104))])
@example([(2.0**-149, 0.5, 2.0**-149), (2.0**-149, 2.0**-149, 2.0**-149), (2.0**127, 2.0, -(2.0**127))])
def test_fma_rounds_once(triples: list[tuple[float, float, float]]) -> None:
    a, b, c = (np.array(values, np.float32) for values in zip(*triples, strict=True))
    found = compute(Fma(), a, b, c)
    for (x, y, z), value in zip(triples, found, strict=True):
        if not all(map(math.isfinite, (x, y, z))):
            with np.errstate(all="ignore"):
                np.testing.assert_equal(value, np.float32(np.float64(x) * y + z))
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if abs(exact) >= 2**128 - 2**103:  # half an ulp above the largest
            assert value == math.copysign(math.inf, exact)
        else:
            assert value == rounded(exact), (x, y, z)


def test_fma_is_not_two_roundings() -> None:
    """Veltkamp's and Dekker's exact error of a product, which two roundings lose."""
    a = np.float32([1 + 2**-12, 1 / 3, math.pi])
    product = a * a
    error = compute(Fma(), a, a, -product)
    assert [Fraction(float(p)) + Fraction(float(e)) for p, e in zip(product, error, strict=True)] == [
        Fraction(float(x)) ** 2 for x in a
    ]


def test_stop_gradient_is_the_identity() -> None:
    for values in (singles(0), np.array([[True, False]]), np.array([-(2**31), 7], np.int32)):
        np.testing.assert_array_equal(compute(StopGradient(), values), values)


@FEW
@given(st.integers(0, 1 << 20))
def test_gated_residual(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(2, 2, 5, 3)).astype(np.float32)
    gate = random.normal(size=[(2, 1, 3), (3,), (1, 5, 3)][seed % 3]).astype(np.float32)
    nodes = [helper.make_node("Mul", ["y", "gate"], ["m"]), helper.make_node("Add", ["x", "m"], ["out"])]
    inputs = {"x": x, "y": y, "gate": gate}
    (expected,) = run_oracle(make_model(nodes, {n: v.shape for n, v in inputs.items()}, ["out"]), inputs)
    np.testing.assert_allclose(compute(GatedResidual(), x, y, gate), expected, rtol=1e-6, atol=1e-6)


SAME_NAME = (
    "Relu Sigmoid Tanh Exp Log Sqrt Neg Abs Sin Cos Tan Atan Round Floor Ceil Sign Softplus Elu Erf "
    "HardSwish Mish Softsign"
)
ONNX_ACTIVATIONS: dict[ActivationFn, str] = {
    ActivationFn.GELU: "Gelu",
    ActivationFn.GELU_APPROX: "Gelu approximate=tanh",
    ActivationFn.RECIP: "Reciprocal",
    ActivationFn.HARD_SIGMOID: "HardSigmoid alpha=0.16666667",
    **{ActivationFn(name): name for name in SAME_NAME.split()},
}
"""The operator of ONNX that is the same function."""


def test_activations_are_those_of_onnxruntime() -> None:
    x = np.concatenate([singles(1, 60), np.linspace(-6, 6, 97, dtype=np.float32)])
    x = x[np.abs(x) < 1e4]  # beyond, onnxruntime's sines lose their digits, and NaN has the test below
    nodes = []
    for fn, text in ONNX_ACTIVATIONS.items():
        kind, *attributes = text.split()
        given_as = {k: v if k == "approximate" else float(v) for k, v in (a.split("=") for a in attributes)}
        nodes.append(helper.make_node(kind, ["x"], [fn.value], **given_as))
    nodes += [
        helper.make_node("Mul", ["x", "Sigmoid"], ["Silu"]),
        helper.make_node("Reciprocal", ["Sqrt"], ["Rsqrt"]),
        *(helper.make_node("Neg", [a], [b]) for a, b in (("x", "minus x"), ("its softplus", "LogSigmoid"))),
        helper.make_node("Softplus", ["minus x"], ["its softplus"]),
    ]
    nodes[-1], nodes[-2] = nodes[-2], nodes[-1]
    ours = (ActivationFn.LEAKY_RELU, ActivationFn.TABLE)
    names = [fn.value for fn in ActivationFn if fn not in ours]
    assert len(names) == 29
    expected = run_oracle(make_model(nodes, {"x": x.shape}, names, opset=20), {"x": x})
    for name, values in zip(names, expected, strict=True):
        found = compute(Activation(ActivationFn(name)), x)
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=2e-6, err_msg=name)


def test_activations_keep_their_digits() -> None:
    """Where the formulas cancel: against SciPy, which has them in other forms."""
    special = pytest.importorskip("scipy.special")
    x = np.concatenate([-np.exp2(np.linspace(-20, 3.3, 60)), np.linspace(-8, 8, 33)]).astype(np.float32)
    wide = x.astype(np.float64)
    for fn, expected in {
        ActivationFn.GELU: wide * special.ndtr(wide),
        ActivationFn.ERF: special.erf(wide),
        ActivationFn.SIGMOID: special.expit(wide),
        ActivationFn.SILU: wide * special.expit(wide),
        ActivationFn.LOG_SIGMOID: special.log_expit(wide),
        ActivationFn.SOFTPLUS: -special.log_expit(-wide),
        ActivationFn.ELU: np.where(wide > 0, wide, special.expm1(wide)),
        ActivationFn.MISH: wide * np.tanh(-special.log_expit(-wide)),
    }.items():
        np.testing.assert_allclose(compute(Activation(fn), x), expected, rtol=2e-7, err_msg=fn.value)


def test_activations_of_nan_and_infinities() -> None:
    """Only a sign is lost of a NaN; elsewhere the limits of the functions."""
    x = np.array([math.nan, math.inf, -math.inf], np.float32)
    for fn, (above, below) in {
        ActivationFn.GELU: (math.inf, math.nan),  # 0 times infinity, as the formula has it
        ActivationFn.SIGMOID: (1, 0),
        ActivationFn.SOFTPLUS: (math.inf, 0),
        ActivationFn.LOG_SIGMOID: (0, -math.inf),
        ActivationFn.ELU: (math.inf, -1),
        ActivationFn.SIGN: (1, -1),
        ActivationFn.ERF: (1, -1),
    }.items():
        np.testing.assert_array_equal(compute(Activation(fn), x), np.float32([math.nan, above, below]), fn.value)


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


ON_FLOATS: dict[BinaryOp, Callable[[float, float], float]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.DIV: _divide,
    BinaryOp.MAX: lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else max(a, b),
    BinaryOp.MIN: lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else min(a, b),
    BinaryOp.MOD: lambda a, b: math.fmod(a, b) if b and math.isfinite(a) else math.nan,
    BinaryOp.ATAN2: math.atan2,
}
"""Python's own functions. A sum, product or quotient of float32 rounded to float64 and then to float32 is right."""


@FEW
@given(st.integers(0, 1 << 20))
def test_binary_functions_are_pythons(seed: int) -> None:
    a, b = singles(seed), singles(seed + 1)
    with np.errstate(all="ignore"):
        for fn, function in ON_FLOATS.items():
            expected = np.array([function(float(x), float(y)) for x, y in zip(a, b, strict=True)]).astype(np.float32)
            np.testing.assert_array_equal(compute(Binary(fn), a, b), expected, fn.value)
    base, exponent = abs(a[:40]), b[:40] / np.float32(1 << 13)
    powers = [float(x) ** float(y) for x, y in zip(base, exponent, strict=True)]
    np.testing.assert_allclose(compute(Binary(BinaryOp.POW), base, exponent), powers, rtol=1e-7)
    assert {*ON_FLOATS, BinaryOp.POW, *ON_BITS, *ON_INTEGERS_ONLY} == set(BinaryOp)


ON_WHOLE: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.DIV: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    BinaryOp.MAX: max,
    BinaryOp.MIN: min,
    BinaryOp.MOD: lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    BinaryOp.BIT_AND: operator.and_,
    BinaryOp.BIT_OR: operator.or_,
    BinaryOp.BIT_XOR: operator.xor,
    BinaryOp.SHL: lambda a, b: a << (b & 31),
    BinaryOp.SHR: lambda a, b: a >> (b & 31),
}


@FEW
@given(st.lists(st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2), min_size=1, max_size=20))
def test_integers_wrap(pairs: list[tuple[int, int]]) -> None:
    for fn, function in ON_WHOLE.items():
        kept = [(a, (b or 1) if fn not in ON_INTEGERS_ONLY else b & 31) for a, b in pairs]
        if fn is BinaryOp.DIV:
            kept = [(a, b if (a, b) != (-(2**31), -1) else 1) for a, b in kept]  # overflows, which C leaves open
        found = compute(Binary(fn), *(np.array(side, np.int32) for side in zip(*kept, strict=True)))
        expected = [(function(a, b) + 2**31) % 2**32 - 2**31 for a, b in kept]
        assert found.tolist() == expected, fn
    assert compute(Binary(BinaryOp.POW), np.int32([3, -2, 7]), np.int32([5, 3, 0])).tolist() == [243, -8, 1]


COMPARED = {
    CmpOp.EQ: operator.eq,
    CmpOp.NE: operator.ne,
    CmpOp.LT: operator.lt,
    CmpOp.LE: operator.le,
    CmpOp.GT: operator.gt,
    CmpOp.GE: operator.ge,
}


@FEW
@given(st.integers(0, 1 << 20))
def test_comparisons_where_and_clamp_are_pythons(seed: int) -> None:
    a, b = singles(seed), singles(seed + 1)
    b[::3] = a[::3]
    assert set(COMPARED) == set(CmpOp)
    for fn, function in COMPARED.items():
        found = compute(Compare(fn), a, b)
        assert found.tolist() == [function(float(x), float(y)) for x, y in zip(a, b, strict=True)], fn
        chosen = compute(Where(), found, a, b)
        np.testing.assert_array_equal(chosen, [x if c else y for c, x, y in zip(found, a, b, strict=True)])
    kept = a[~np.isnan(a)]
    assert compute(Clamp(-1.5, 2.0), kept).tolist() == [min(max(float(x), -1.5), 2.0) for x in kept]
    assert np.isnan(compute(Clamp(-1.5, 2.0), np.float32([math.nan]))).all()


@FEW
@given(st.lists(st.floats(-(2.0**62), 2.0**62, width=32) | st.floats(-300, 300, width=32), min_size=1))
def test_casts_are_pythons(values: list[float]) -> None:
    x = np.array(values, np.float32)
    for dtype in (DType.I8, DType.U8, DType.I16, DType.I32, DType.I64):
        low, _ = dtype.limits
        expected = [(int(value) - low) % 2**dtype.bits + low for value in values]
        whole = compute(Cast(dtype), x)
        assert whole.tolist() == expected, dtype
        back = compute(Cast(DType.F32), whole)
        assert back.tolist() == [float(rounded(Fraction(value))) for value in expected], dtype
    assert compute(Cast(DType.BOOL), x).tolist() == [value != 0 for value in values]
    assert compute(Cast(DType.F64), x).tolist() == values
