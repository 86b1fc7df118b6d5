"""Fake quantization: the formulas of the vocabulary, and gradients against finite differences of their meaning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir import Array, DType, GraphBuilder, TensorType
from rlx_edge.ir.codec import decode, encode
from rlx_edge.ir.ops import (
    EMA,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    Op,
    PerBatch,
    ScaleMode,
    SteKind,
)
from rlx_edge.reference import run
from rlx_edge.reference.fake_quant import scales_of

MOST = {8: 127, 4: 7, 3: 3, 2: 1}
X = np.array([[0.0, 0.5, -1.0], [2.0, -3.5, 7.0]], np.float32)


def compute(op: Op, *operands: Array) -> Array:
    """The op in a graph of its own, as the reference runs it."""
    builder = GraphBuilder("one")
    names = [f"x{i}" for i in range(len(operands))]
    inputs = [builder.input(n, TensorType(v.shape, DType.F32)) for n, v in zip(names, operands, strict=True)]
    graph = builder.build([builder.add(op, inputs, "y")])
    return run(graph, dict(zip(names, operands, strict=True)))["y"]


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_per_batch_by_hand() -> None:
    """Scale 7 / 7 = 1 for the tensor, ties away from zero; for the columns 2 / 7, 3.5 / 7 and 7 / 7."""
    assert compute(FakeQuantize(4, None), X).tolist() == [[0, 1, -1], [2, -4, 7]]
    assert compute(FakeQuantize(4, 1), X).tolist() == [[0, 0.5, -1], [2, -3.5, 7]]
    assert compute(FakeQuantize(2, None), X).tolist() == [[0, 0, 0], [0, -7, 7]]
    assert compute(FakeQuantize(4, 0), np.zeros((2, 2), np.float32)).tolist() == [[0, 0], [0, 0]]


def test_fixed_scales_clip() -> None:
    op = FakeQuantize(4, None, scale_mode=Fixed())
    assert compute(op, X, np.array([0.25], np.float32)).tolist() == [[0, 0.5, -1], [1.75, -1.75, 1.75]]


def test_ema_blends_and_starts_from_nothing() -> None:
    op = FakeQuantize(4, 1, scale_mode=EMA(0.75))
    state = np.array([0.0, 0.5, 2.0], np.float32)
    blended = scales_of(op, X, state)
    np.testing.assert_allclose(blended, [2 / 7, 0.5, 0.75 * 2 + 0.25], rtol=1e-6)
    np.testing.assert_array_equal(compute(op, X, state), compute(FakeQuantize(4, 1, scale_mode=Fixed()), X, blended))


@given(st.integers(0, 1 << 20), st.sampled_from([2, 3, 4, 8]), st.sampled_from([None, 0, 1, -1]))
def test_lsq_is_the_nearest_multiple_within_reach(seed: int, bits: int, axis: int | None) -> None:
    x, most = random(seed, 3, 4, 5), MOST[bits]
    scale = np.exp(random(seed + 1, 1 if axis is None else x.shape[axis]))
    found = compute(FakeQuantizeLSQ(bits, axis), x, scale)
    wide = scale if axis is None else scale.reshape([-1 if i == axis % 3 else 1 for i in range(3)])
    every = np.arange(-most, most + 1).reshape(-1, 1, 1, 1) * wide.astype(np.float64)
    distances = np.abs(every - x)
    np.testing.assert_allclose(np.abs(found - x), distances.min(axis=0), rtol=1e-4, atol=1e-6)


SURROGATES: dict[SteKind, Callable[[Array, float, float], Array]] = {
    SteKind.IDENTITY: lambda x, s, m: x,
    SteKind.CLIPPED_IDENTITY: lambda x, s, m: np.clip(x, -m * s, m * s),
    SteKind.TANH: lambda x, s, m: s * np.tanh(x / s),
    SteKind.HARD_TANH: lambda x, s, m: np.where(
        np.abs(x) < m * s, x - x * np.abs(x) / (2 * m * s), np.sign(x) * m * s / 2
    ),
}
"""A function of x, the scale and the largest magnitude, whose derivative the estimator is."""


@pytest.mark.parametrize("ste", SteKind, ids=lambda ste: ste.value)
@pytest.mark.parametrize("bits", [2, 4])
def test_estimators_are_derivatives(ste: SteKind, bits: int) -> None:
    x, dy = random(3, 50), random(4, 50)
    found = compute(FakeQuantizeBackward(bits, None, ste), x, dy)
    scale = float(np.abs(x).max()) / MOST[bits]
    wide, step = x.astype(np.float64), 1e-6
    rise, fall = (SURROGATES[ste](wide + d, scale, MOST[bits]) for d in (step, -step))
    inside = np.abs(x) < 0.999 * MOST[bits] * scale  # max|x| lies on the edge itself.
    np.testing.assert_allclose(found[inside], (dy * (rise - fall) / (2 * step))[inside], rtol=1e-3, atol=1e-4)
    assert inside.sum() > 40


def test_estimators_per_axis_use_each_channels_own_scale() -> None:
    x, dy = random(5, 4, 6) * np.array([[1], [10], [100], [1000]], np.float32), random(6, 4, 6)
    for ste in SteKind:
        rows = [compute(FakeQuantizeBackward(3, None, ste), a, b) for a, b in zip(x, dy, strict=True)]
        np.testing.assert_array_equal(compute(FakeQuantizeBackward(3, 0, ste), x, dy), np.stack(rows))


@given(st.integers(0, 1 << 20), st.sampled_from([2, 3, 4, 8]))
def test_lsq_gradients_are_those_of_the_rounding_error_held_still(seed: int, bits: int) -> None:
    """With r = round(z) - z held still, clamp(z + r) s has these derivatives by x and by s."""
    x, dy, most = random(seed, 40).astype(np.float64), random(seed + 1, 40), MOST[bits]
    scale = np.array([0.5 * np.abs(x).max() / most], np.float32)
    z = x / scale[0].astype(np.float64)
    still = np.round(z) - z

    def surrogate(x: Array, s: float) -> Array:
        within = (x / s + still) * s
        return np.where(np.abs(z) <= most, within, np.sign(z) * most * s)

    step = 1e-5
    by_x = (surrogate(x + step, float(scale[0])) - surrogate(x - step, float(scale[0]))) / (2 * step)
    by_s = (surrogate(x, float(scale[0]) + step) - surrogate(x, float(scale[0]) - step)) / (2 * step)
    operands = (x.astype(np.float32), scale, dy)
    np.testing.assert_allclose(compute(FakeQuantizeLSQBackwardX(bits, None), *operands), dy * by_x, atol=1e-4)
    (found,) = compute(FakeQuantizeLSQBackwardScale(bits, None), *operands)
    np.testing.assert_allclose(found, (dy * by_s).sum(), rtol=1e-3, atol=2e-2)


def test_lsq_scale_gradient_sums_over_all_other_axes() -> None:
    x, dy, scale = random(1, 2, 3, 4), random(2, 2, 3, 4), np.array([0.1, 0.5, 2.0], np.float32)
    found = compute(FakeQuantizeLSQBackwardScale(4, 1), x, scale, dy)
    for c in range(3):
        alone = compute(FakeQuantizeLSQBackwardScale(4, None), x[:, c], scale[c : c + 1], dy[:, c])
        np.testing.assert_allclose(found[c], alone[0], rtol=1e-6)


OPS: list[tuple[Op, str]] = [
    (FakeQuantize(8, None), "fake_quant(bits=8,ste=Identity,scale=PerBatch)"),
    (
        FakeQuantize(4, 0, SteKind.HARD_TANH, EMA(0.99)),
        "fake_quant(bits=4,axis=0,ste=HardTanh,scale=EMA { decay: 0.99 })",
    ),
    (FakeQuantize(2, 1, SteKind.TANH, Fixed()), "fake_quant(bits=2,axis=1,ste=Tanh,scale=Fixed)"),
    (FakeQuantizeBackward(4, 0, SteKind.CLIPPED_IDENTITY), "fake_quant_backward(bits=4,ste=ClippedIdentity)"),
    (FakeQuantizeLSQ(4, None), "fake_quant_lsq(bits=4)"),
    (FakeQuantizeLSQ(4, 3), "fake_quant_lsq(bits=4,axis=3)"),
    (FakeQuantizeLSQBackwardX(4, 3), "fake_quant_lsq_bwd_x(bits=4)"),
    (FakeQuantizeLSQBackwardScale(4, 3), "fake_quant_lsq_bwd_s(bits=4)"),
]


@pytest.mark.parametrize(("op", "text"), OPS, ids=lambda v: v if isinstance(v, str) else "")
def test_text_and_storage(op: Op, text: str) -> None:
    assert op.display() == text
    assert decode(Op, encode(op), "op") == op


@pytest.mark.parametrize("mode", [PerBatch(), EMA(0.5), Fixed()], ids=str)
def test_scale_modes_are_stored_by_name(mode: ScaleMode) -> None:
    stored = encode(FakeQuantize(4, None, scale_mode=mode))
    assert isinstance(stored, dict)
    assert stored["scale_mode"]["class"] == type(mode).__name__
