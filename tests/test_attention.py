"""Attention, rotary embeddings and the cache of keys and values, against onnxruntime and ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array
from rlx_edge.ir.ops.attention import Attention, AxialRope2d, KvAppend, Rope
from rlx_edge.ir.ops.attributes import MaskKind, RopeStyle

SEEDS = st.integers(0, 1 << 20)
BATCH, HEADS, WIDTH = 2, 3, 4


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def onnx_attention(q: Array, k: Array, v: Array, mask: Array | None, scale: float | None, cap: float | None) -> Array:
    """Of [B, H, S, D]; `mask` is added to the scores."""
    given = {"q": q, "k": k, "v": v} | ({} if mask is None else {"m": mask})
    attributes = {name: value for name, value in (("scale", scale), ("softcap", cap)) if value is not None}
    node = helper.make_node("Attention", list(given), ["y"], **attributes)
    model = make_model([node], {name: value.shape for name, value in given.items()}, ["y"], opset=23)
    model.ir_version = 10
    return run_oracle(model, given)[0]


def seen(kind: MaskKind, queries: int, keys: int, window: int) -> Array:
    """Whether each query sees each key, place by place, with the queries at the end of the keys."""
    result = np.zeros((queries, keys), np.bool_)
    for i in range(queries):
        here = keys - queries + i
        first = here - window if kind is MaskKind.SLIDING_WINDOW else 0
        for j in range(keys):
            result[i, j] = kind is MaskKind.NONE or first <= j <= here
    return result


@FEW
@given(
    kind=st.sampled_from(MaskKind),
    queries=st.integers(1, 5),
    more=st.integers(0, 3),
    width=st.sampled_from([None, 2, 6]),
    scale=st.sampled_from([None, 0.25]),
    cap=st.sampled_from([None, 1.5]),
    heads_second=st.booleans(),
    window=st.integers(0, 3),
    seed=SEEDS,
)
def test_attention_is_onnxruntimes(
    kind: MaskKind,
    queries: int,
    more: int,
    width: int | None,
    scale: float | None,
    cap: float | None,
    heads_second: bool,
    window: int,
    seed: int,
) -> None:
    keys = queries + more
    q, k, v = (
        normal(seed + i, BATCH, HEADS, length, size)
        for i, (length, size) in enumerate([(queries, WIDTH), (keys, WIDTH), (keys, width or WIDTH)])
    )
    operands: list[Array] = []
    if kind is MaskKind.BIAS:
        mask = normal(seed + 3, BATCH, HEADS, queries, keys)
        operands = [mask]
    elif kind is MaskKind.CUSTOM:
        valid = np.random.default_rng(seed).random((BATCH, keys)) < 0.6
        valid[:, -1] = True
        operands = [valid.astype(np.float32)]
        mask = np.where(valid, 0, -np.inf)[:, None, None, :].repeat(queries, 2).astype(np.float32)
    else:
        mask = np.where(seen(kind, queries, keys, window), 0, -np.inf).astype(np.float32)
    expected = onnx_attention(q, k, v, mask, scale, cap)
    op = Attention(HEADS, WIDTH, width, kind, scale, cap, window)
    swap = (lambda x: x) if heads_second and HEADS not in (queries, keys) else (lambda x: x.transpose(0, 2, 1, 3))
    found = swap(compute(op, *(np.ascontiguousarray(swap(x)) for x in (q, k, v)), *operands))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_one_head_needs_no_axis_and_equal_sizes_mean_places_first() -> None:
    q, k, v = (normal(i, 2, 3, 4) for i in range(3))
    one = compute(Attention(1, 4, None, MaskKind.CAUSAL), q, k, v)
    expected = onnx_attention(
        *(x[:, None] for x in (q, k, v)), np.where(np.tri(3), 0, -np.inf).astype(np.float32), None, None
    )
    np.testing.assert_allclose(one, expected[:, 0], rtol=1e-5, atol=1e-6)
    square = normal(5, 1, 3, 3, 4)
    places_first = onnx_attention(*[square.transpose(0, 2, 1, 3)] * 3, None, None, None).transpose(0, 2, 1, 3)
    found = compute(Attention(3, 4, None, MaskKind.NONE), square, square, square)
    np.testing.assert_allclose(found, places_first, rtol=1e-5, atol=1e-6)


def test_the_cap_comes_before_the_bias_and_no_key_gives_nan() -> None:
    """A bias of 50 on the first of two keys picks it alone; capped with it, it would get a share of both."""
    q, v = np.full((1, 1, 1), 100, np.float32), np.array([[[1], [-1]]], np.float32)
    bias = np.array([[[[50, 0]]]], np.float32)
    found = compute(Attention(1, 1, None, MaskKind.BIAS, None, 0.5), q, np.ones((1, 2, 1), np.float32), v, bias)
    assert found.item() == 1
    none = np.zeros((1, 2), np.float32)
    assert np.isnan(compute(Attention(1, 1, None, MaskKind.CUSTOM), q, v, v, none)).all()
    half = np.array([[0.5, 0.49]], np.float32)
    assert compute(Attention(1, 1, None, MaskKind.CUSTOM), q, v, v, half).item() == 1


def onnx_rope(x: Array, cos: Array, sin: Array, heads: int, n_rot: int, style: RopeStyle) -> ModelProto:
    node = helper.make_node(
        "RotaryEmbedding",
        ["x", "cos", "sin"],
        ["y"],
        num_heads=heads,
        rotary_embedding_dim=n_rot,
        interleaved=int(style is RopeStyle.GPT_J),
    )
    model = make_model([node], {"x": x.shape, "cos": cos.shape, "sin": sin.shape}, ["y"], opset=23)
    model.ir_version = 10
    return model


@FEW
@given(st.sampled_from(RopeStyle), st.sampled_from([2, 4, 8]), st.integers(1, 5), st.booleans(), SEEDS)
def test_rope_is_onnxs(style: RopeStyle, n_rot: int, length: int, per_batch: bool, seed: int) -> None:
    """Part of a head is rotated in ONNX's reference evaluator; onnxruntime is asked where a whole head is."""
    x, angles = normal(seed, BATCH, length, HEADS * 8), normal(seed + 1, BATCH, length, n_rot // 2)
    if not per_batch:
        angles[:] = angles[0]
    cos, sin = np.cos(angles), np.sin(angles)
    model = onnx_rope(x, cos, sin, HEADS, n_rot, style)
    inputs = {"x": x, "cos": cos, "sin": sin}
    expected = run_oracle(model, inputs)[0] if n_rot == 8 else ReferenceEvaluator(model).run(None, inputs)[0]
    tables = (cos, sin) if per_batch else (cos[0], sin[0])
    op = Rope(8, n_rot, style)
    found = compute(op, x, *tables)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        compute(op, x.reshape(BATCH, length, HEADS, 8), *tables).reshape(x.shape), found, "heads on an axis of theirs"
    )


@FEW
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([4, 8, 12]), st.integers(1, 3), SEEDS)
def test_axial_rope_turns_complex_numbers_by_column_and_row(x: int, y: int, size: int, times: int, seed: int) -> None:
    """Place by place and pair by pair, in Python's complex numbers."""
    op = AxialRope2d(x, y, size, 2, 100.0, times)
    values = normal(seed, 1, x * y * times, 2 * size)
    found = compute(op, values).reshape(-1, 2, size // 2, 2)
    for place, head, pair in np.ndindex(*found.shape[:3]):
        row, column = divmod(place % (x * y), x)
        position, i = (column, pair) if pair < size // 4 else (row, pair - size // 4)
        before = complex(*values[0, place].reshape(2, -1, 2)[head, pair])
        after = before * np.exp(1j * position / 100.0 ** (4 * i / size))
        assert complex(*found[place, head, pair]) == pytest.approx(after, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_kv_append_writes_a_row_and_returns_all_up_to_it(dtype: type[np.generic]) -> None:
    cache, row = np.arange(24).reshape(2, 4, 3).astype(dtype), np.full((2, 1, 3), -7).astype(dtype)
    kept = cache.copy()
    for pos in range(4):
        expected = cache.copy()
        expected[:, pos] = -7
        np.testing.assert_array_equal(compute(KvAppend(1, pos), cache, row), expected[:, : pos + 1])
    np.testing.assert_array_equal(cache, kept)


def test_decoding_with_a_cache_is_causal_attention_of_the_whole() -> None:
    q, k, v = (normal(i, 1, 5, 2, 4) for i in range(3))
    op = Attention(2, 4, None, MaskKind.CAUSAL)
    whole, keys, values = compute(op, q, k, v), np.zeros_like(k), np.zeros_like(v)
    for t in range(5):
        append = KvAppend(1, t)
        keys[:, : t + 1] = compute(append, keys, k[:, t : t + 1])
        values[:, : t + 1] = compute(append, values, v[:, t : t + 1])
        step = compute(op, q[:, t : t + 1], keys[:, : t + 1], values[:, : t + 1])
        np.testing.assert_allclose(step[:, 0], whole[:, t], rtol=1e-6)
