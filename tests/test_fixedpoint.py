"""Every rounding rule against exact rational arithmetic, at its ties and at the ends of its range."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import (
    DType,
    FrozenAdd,
    FrozenExp,
    FrozenScale,
    FrozenSoftmax,
    GraphBuilder,
    QuantParams,
    Requant,
    TensorType,
)
from rlx_edge.ir.ops import ALL, Binary, BinaryOp, QMatMul, Quantize, Reduce, ReduceOp, Softmax
from rlx_edge.passes.freeze import freeze as freeze_graph
from rlx_edge.reference.fixedpoint import (
    dequantize_f32,
    freeze,
    high_mul,
    quantize_f32,
    quantize_multiplier,
    rescale,
    round_half_away,
    rules_of,
    scale_double_rounding,
    scale_float32,
    scale_single_rounding,
    shift_right,
)
from rlx_edge.reference.fixedsoftmax import exp_of_negative, reciprocal_of_one_plus, softmax_by_table

INT32 = (-(2**31), 2**31 - 1)
int32s = st.one_of(st.sampled_from([*INT32, 0, 1, -1]), st.integers(*INT32))
multipliers = st.one_of(st.sampled_from([2**30, 2**31 - 1]), st.integers(2**30, 2**31 - 1))


def half_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def half_away(x: Fraction) -> int:
    return half_up(x) if x >= 0 else -half_up(-x)


@given(int32s, multipliers)
def test_high_mul_rounds_ties_up(x: int, multiplier: int) -> None:
    assert int(high_mul(x, multiplier)) == half_up(Fraction(x * multiplier, 2**31))


@pytest.mark.parametrize(("x", "expected"), [(1, 1), (-1, 0), (3, 2), (-3, -1), (-5, -2)])
def test_high_mul_at_ties(x: int, expected: int) -> None:
    """x times one half: ties go towards +infinity, so 0.5 gives 1 and -0.5 gives 0."""
    assert int(high_mul(x, 2**30)) == expected


def test_high_mul_saturates_the_only_product_that_does_not_fit() -> None:
    assert int(high_mul(INT32[0], INT32[0])) == INT32[1]


@given(int32s, st.integers(0, 31))
def test_shift_right_rounds_ties_away(x: int, bits: int) -> None:
    assert int(shift_right(x, bits)) == half_away(Fraction(x, 2**bits))


@pytest.mark.parametrize(("x", "expected"), [(2, 1), (-2, -1), (6, 2), (-6, -2), (1, 0), (-1, 0)])
def test_shift_right_at_ties(x: int, expected: int) -> None:
    assert int(shift_right(x, 2)) == expected


@given(int32s, multipliers, st.integers(-31, 0))
def test_tflm_rounds_twice(x: int, multiplier: int, shift: int) -> None:
    once = half_up(Fraction(x * multiplier, 2**31))
    assert int(scale_double_rounding(x, multiplier, shift)) == half_away(Fraction(once, 2**-shift))


@given(st.integers(-(2**15), 2**15 - 1), multipliers, st.integers(1, 15))
def test_tflm_shifts_left_before_it_multiplies(x: int, multiplier: int, shift: int) -> None:
    assert int(scale_double_rounding(x, multiplier, shift)) == half_up(Fraction((x << shift) * multiplier, 2**31))


def test_two_roundings_differ_from_one() -> None:
    """1.25 rounds to 1 at once; by way of 2.5 -> 3 -> 1.5 it rounds to 2."""
    x, multiplier, shift = 5, 2**30, -1
    assert int(scale_double_rounding(x, multiplier, shift)) == 2
    assert int(scale_single_rounding(x, multiplier, shift)) == 1


@given(int32s, multipliers, st.integers(-30, 15))
def test_single_rounds_once(x: int, multiplier: int, shift: int) -> None:
    exact = Fraction(x * multiplier, 2**31) * Fraction(2) ** shift
    assert int(scale_single_rounding(x, multiplier, shift)) == half_up(exact)


def nearest_float32(x: Fraction) -> Fraction:
    """The nearest number of 24 bits, ties to even."""
    if x == 0:
        return x
    exponent = math.floor(math.log2(abs(x))) - 24
    for step in (exponent, exponent + 1, exponent + 2):  # the logarithm may be off by one
        rounded = round(x / Fraction(2) ** step)  # Fraction's round is to even
        if abs(rounded) <= 2**24:
            return rounded * Fraction(2) ** step
    raise AssertionError(x)


@given(int32s, st.floats(2.0**-30, 2.0).map(lambda m: float(np.float32(m))))
def test_onnx_rounds_to_float32_twice_and_then_to_even(x: int, real: float) -> None:
    multiplier, shift = quantize_multiplier(real)
    product = nearest_float32(nearest_float32(Fraction(x)) * Fraction(real))
    assert int(scale_float32(x, multiplier, shift)) == round(product)


@pytest.mark.parametrize(("x", "expected"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (2**24 + 1, 2**23)])
def test_onnx_at_ties(x: int, expected: int) -> None:
    assert int(scale_float32(x, 2**30, 0)) == expected


@given(
    st.lists(st.integers(-128, 127), min_size=1, max_size=12), st.floats(0.01, 0.5), st.sampled_from([1 / 256, 1 / 255])
)
def test_softmax_by_powers_is_the_nearest_code(row: list[int], scale: float, out: float) -> None:
    target = QuantParams.per_tensor(float(np.float32(out)), -128)
    op, x = Softmax(-1, requant=Requant.ONNX), tensor(scale, (len(row),))
    frozen = freeze(op, [x], TensorType((len(row),), DType.I8, target))
    assert isinstance(frozen, FrozenExp)
    powers = np.exp((np.array(row) - max(row)) * scale)
    exact = powers / powers.sum() / target.scale
    assert np.abs(softmax_by_table(np.array([row], np.int8), frozen)[0] - exact).max() <= 0.5 + 1e-4


@given(st.floats(2.0**-31, 2.0**30))
def test_quantized_multipliers_are_close(real: float) -> None:
    multiplier, shift = quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    error = abs(Fraction(multiplier, 2**31) * Fraction(2) ** shift - Fraction(real))
    assert error <= Fraction(real) / 2**31


def test_quantize_multiplier_at_its_ends() -> None:
    assert quantize_multiplier(0.5) == (2**30, 0)
    assert quantize_multiplier(1.0) == (2**30, 1)
    assert quantize_multiplier(math.nextafter(1.0, 0)) == (2**30, 1), "a fraction that rounds to 2^31 is halved"
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(2.0**-32) == (2**30, -31), "the smallest exponent"
    assert quantize_multiplier(2.0**-33) == (0, 0), "an exponent below -31 gives 0"
    assert quantize_multiplier(2.0**-1074) == (0, 0)
    assert quantize_multiplier(2.0**30) == (2**30, 31), "the largest exponent"


@pytest.mark.parametrize("real", [math.inf, math.nan, -1.0, 2.0**31])
def test_multipliers_that_make_no_sense_are_refused(real: float) -> None:
    with pytest.raises(ValueError, match="cannot be applied"):
        quantize_multiplier(real)


@pytest.mark.parametrize(
    ("x", "expected"), [(0.5, 1), (-0.5, -1), (2.5, 3), (-2.5, -3), (0.49999997, 0), (8388609.0, 8388609), (1e30, 1e30)]
)
def test_round_half_away(x: float, expected: float) -> None:
    for dtype in (np.float32, np.float64):
        assert round_half_away(np.array([x], dtype))[0] == np.array(expected, dtype)


def test_quantize_rounds_half_away_and_saturates() -> None:
    quant = QuantParams.per_tensor(0.5, 10)
    x = np.array([0.25, -0.25, 0.75, 1e9, -1e9, np.inf, -np.inf, np.nan, -0.0], np.float32)
    assert quantize_f32(x, quant).tolist() == [11, 9, 12, 127, -128, 127, -128, 10, 10]


@given(st.integers(-200, 200), st.floats(1e-6, 1e6).map(lambda s: float(np.float32(s))), st.integers(-3, 3))
def test_quantize_divides_in_float32(ties: int, scale: float, ulps: int) -> None:
    """Near ties, the quotient rounded to float32 decides, not the exact one."""
    x = np.float32((ties + 0.5) * scale)
    for _ in range(abs(ulps)):
        x = np.nextafter(x, np.float32(np.inf if ulps > 0 else -np.inf))
    quotient = Fraction(float(np.float32(x) / np.float32(scale)))
    expected = min(127, max(-128, half_away(quotient)))
    assert quantize_f32(np.array([x]), QuantParams.per_tensor(scale, 0))[0] == expected


@given(st.integers(-128, 127), st.integers(-128, 127), st.floats(1e-30, 1e30).map(lambda s: float(np.float32(s))))
def test_dequantize_rounds_once(q: int, zero_point: int, scale: float) -> None:
    got = dequantize_f32(np.array([q], np.int8), QuantParams.per_tensor(scale, zero_point))[0]
    assert got == np.float32((q - zero_point) * scale), "a product of 9 and 24 bits is exact in double"


def test_per_channel_scales_follow_their_axis() -> None:
    quant = QuantParams((1.0, 2.0), (0, 1), axis=1)
    x = np.array([[4.0, 4.0], [-3.0, -3.0]], np.float32)
    q = quantize_f32(x, quant)
    assert q.tolist() == [[4, 3], [-3, -1]]
    assert dequantize_f32(q, quant).tolist() == [[4.0, 4.0], [-3.0, -4.0]]


# ---- From parameters to frozen integers  ---------------------------------------


def tensor(scale: float, shape: tuple[int, ...] = (4, 4), zero_point: int = 0) -> TensorType:
    return TensorType(shape, DType.I8, QuantParams.per_tensor(scale, zero_point))


def test_dense_multiplier_is_a_double_product_or_a_float_one() -> None:
    """tflite-runtime multiplies the scales in float32: near a tie of the 31 bits the two rules part."""
    x, w, out = (float(np.float32(s)) for s in (0.0235294122248888, 0.0078431377187371, 0.1))
    operands = [tensor(x), tensor(w), TensorType((4,), DType.I32)]
    found = {}
    for rule in (Requant.TFLM, Requant.TFLITE_REF):
        op = QMatMul(0, 0, 0, (x * w / out,), rule)
        found[rule] = freeze(op, operands, tensor(out))
    assert found[Requant.TFLM] == FrozenScale(*zip(quantize_multiplier(x * w / out), strict=True))
    single = float(np.float32(x) * np.float32(w))
    assert found[Requant.TFLITE_REF] == FrozenScale(*zip(quantize_multiplier(single / out), strict=True))
    assert found[Requant.TFLM] != found[Requant.TFLITE_REF]


def test_add_brings_both_to_twice_the_larger_scale() -> None:
    frozen = freeze(Binary(BinaryOp.ADD, Requant.TFLM), [tensor(0.5), tensor(0.25)], tensor(1.0))
    half, quarter = FrozenScale((2**30,), (0,)), FrozenScale((2**30,), (-1,))
    assert frozen == FrozenAdd(20, half, quarter, FrozenScale((2**30,), (-19,)))


def test_mean_works_the_count_in_by_truncation() -> None:
    op = Reduce(ReduceOp.MEAN, (0, 1), False, Requant.TFLM)
    frozen = freeze(op, [tensor(1.0, (3, 1))], tensor(1.0, ()))
    assert frozen == FrozenScale(((2**30 << 1) // 3,), (0,))


def test_mean_of_equal_values_is_that_value() -> None:
    op = Reduce(ReduceOp.MEAN, (0,), False, Requant.TFLM)
    for count in range(1, 200):
        frozen = freeze(op, [tensor(1.0, (count, 2))], tensor(1.0, (2,)))
        assert isinstance(frozen, FrozenScale)
        values = np.arange(-128, 128, dtype=np.int64)
        assert rescale(values * count, frozen, Requant.TFLM).tolist() == values.tolist()


def test_softmax_needs_its_own_output_scale() -> None:
    probabilities = tensor(1 / 256, zero_point=-128)
    assert isinstance(freeze(Softmax(-1, requant=Requant.TFLM), [tensor(0.1)], probabilities), FrozenSoftmax)
    with pytest.raises(UnsupportedError, match="1/256"):
        freeze(Softmax(-1, requant=Requant.TFLM), [tensor(0.1)], tensor(1 / 128))


def test_exponential_is_close_to_the_real_one() -> None:
    a = -np.linspace(0, 31.9, 5000)
    raw = np.round(a * 2**26).astype(np.int64)
    np.testing.assert_allclose(exp_of_negative(raw) / 2**31, np.exp(a), rtol=0, atol=3e-7)
    assert exp_of_negative(np.zeros(1, np.int64))[0] == INT32[1]


def test_reciprocal_is_close_to_the_real_one() -> None:
    a = np.linspace(0, 0.999999, 5000)
    raw = np.round(a * 2**31).astype(np.int64)
    np.testing.assert_allclose(reciprocal_of_one_plus(raw) / 2**31, 1 / (1 + a), rtol=0, atol=1e-8)


def test_an_empty_cell_is_refused_by_name() -> None:
    op = Quantize.to(QuantParams.per_tensor(1.0, 0), Requant.SINGLE)
    with pytest.raises(UnsupportedError, match="Quantize has no rounding rule 'single'"):
        freeze(op, [tensor(0.5)], tensor(1.0))


def test_docs_show_the_matrix() -> None:
    """docs/numerics.md has a row per op that has rules, with a mark for each rule that it has."""
    from rlx_edge.resources import _PACKAGE

    page = (_PACKAGE.parent / "docs" / "numerics.md").read_text()
    header = next(line for line in page.splitlines() if line.startswith("| op "))
    rules = [cell.strip(" `") for cell in header.strip("|").split("|")[1:]]
    assert rules == [rule.value for rule in Requant]
    for kind in ALL:
        held = rules_of(kind)
        row = next((line for line in page.splitlines() if line.startswith(f"| {kind.__name__} ")), None)
        assert (row is not None) == bool(held), kind.__name__
        if row is not None:
            marks = [bool(cell.strip()) for cell in row.strip().strip("|").split("|")[1:]]
            assert marks == [rule in held for rule in Requant], kind.__name__


def test_frozen_multipliers_under_a_rule_without_them_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="under the rounding rule 'rlx', which has none"):
        rescale(np.array([1]), FrozenScale((1 << 30,), (0,)), Requant.RLX)


def test_frozen_integers_of_other_scales_are_refused() -> None:
    """The reference computes with what a node holds, and C with what its scales give: they must be the same."""
    builder = GraphBuilder("g")
    quant = QuantParams.per_tensor(0.5, 0)
    x = builder.input("x", TensorType((1, 4), DType.I8, quant))
    y = builder.add(Reduce(ReduceOp.MEAN, (1,), True, Requant.TFLM), [x], "y", QuantParams.per_tensor(0.25, 0))
    graph = builder.build([y])
    frozen = freeze_graph(graph)
    assert freeze_graph(frozen).nodes == frozen.nodes
    held = frozen.nodes[1].op
    assert isinstance(held, Reduce) and held.frozen is not None
    nodes = (frozen.nodes[0], replace(frozen.nodes[1], op=replace(held, frozen=replace(held.frozen, shifts=(3,)))))
    with pytest.raises(UnsupportedError, match="its frozen integers are not those of its rule"):
        freeze_graph(replace(frozen, nodes=nodes))
