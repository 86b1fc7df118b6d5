"""Ops that shift, order, count and collect, against numpy's and onnxruntime's functions of the same meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.errors import DataError
from rlx_edge.ir import Array, DType, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops.ordering import CumMax, Histogram, Roll, ScatterAdd, Sort
from rlx_edge.reference import run

SEEDS = st.integers(0, 1 << 20)


def few_values(seed: int, *shape: int) -> Array:
    """Many equal ones."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@FEW
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 2)), max_size=4), SEEDS)
def test_roll_is_numpys(pairs: list[tuple[int, int]], seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(2, 3, 5)).astype(np.float32)
    shifts, dims = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    np.testing.assert_array_equal(compute(Roll(shifts, dims), x), np.roll(x, shifts, dims))


def test_codes_roll_and_sort_as_what_they_stand_for() -> None:
    codes, quant = np.array([[3, -128, 127, 0]], np.int8), QuantParams.per_tensor(0.5, -7)
    builder = GraphBuilder("codes")
    x = builder.input("x", TensorType((1, 4), DType.I8, quant))
    outputs = [builder.add(op, [x], name, quant) for op, name in ((Roll((1,), (1,)), "r"), (Sort(1, True), "s"))]
    found = run(builder.build(outputs), {"x": codes})
    assert (found["r"].tolist(), found["s"].tolist()) == ([[0, 3, -128, 127]], [[127, 3, 0, -128]])


@FEW
@given(st.integers(-3, 2), st.booleans(), SEEDS)
def test_sort_is_onnxruntimes(axis: int, descending: bool, seed: int) -> None:
    """Its TopK of all elements sorts them."""
    x = np.random.default_rng(seed).normal(size=(2, 4, 5)).astype(np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=axis, largest=int(descending))
    model = make_model([node], {"x": x.shape}, ["y"], {"k": np.array([x.shape[axis]])})
    (expected,) = run_oracle(model, {"x": x})
    np.testing.assert_array_equal(compute(Sort(axis, descending), x), expected)


def test_sort_puts_nan_above_all_and_keeps_signs_of_zeros_in_place() -> None:
    x = np.array([np.nan, 1.0, -np.inf, 0.0, -0.0, np.inf], np.float32)
    assert list(map(str, compute(Sort(0, False), x))) == ["-inf", "0.0", "-0.0", "1.0", "inf", "nan"]
    assert list(map(str, compute(Sort(0, True), x))) == ["nan", "inf", "1.0", "0.0", "-0.0", "-inf"]
    assert compute(Sort(0, True), np.array([2, -1, 5], np.int32)).tolist() == [5, 2, -1]


@FEW
@given(st.integers(-3, 2), st.booleans(), SEEDS)
def test_cum_max_is_the_maximum_of_each_beginning(axis: int, exclusive: bool, seed: int) -> None:
    x = few_values(seed, 2, 3, 5)
    along = np.moveaxis(x, axis, 0)
    expected = np.stack([along[: k + (not exclusive)].max(axis=0, initial=-np.inf) for k in range(len(along))])
    np.testing.assert_array_equal(compute(CumMax(axis, exclusive), x), np.moveaxis(expected, 0, axis))


def test_cum_max_of_integers_and_nan() -> None:
    assert compute(CumMax(0, True), np.array([3, 1, 9], np.int16)).tolist() == [-32768, 3, 3]
    found = compute(CumMax(0, False), np.array([1.0, np.nan, 2.0], np.float32))
    np.testing.assert_array_equal(found, np.float32([1.0, np.nan, np.nan]))


@FEW
@given(st.integers(1, 12), st.floats(-8, 4, width=32), st.floats(0.125, 8, width=32), SEEDS)
def test_histogram_is_numpys(bins: int, low: float, width: float, seed: int) -> None:
    """With elements on the edges, next to them, outside and NaN."""
    high = float(np.float32(low + width))
    edges = np.histogram_bin_edges(np.float32([low, high]), bins, (low, high)).astype(np.float32)
    random = np.random.default_rng(seed).normal((low + high) / 2, width, 50).astype(np.float32)
    beside = [np.nextafter(edges, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([random, edges, *beside, np.float32([np.nan, np.inf, low, high])])
    found = compute(Histogram(bins, low, high), x.reshape(1, -1))
    np.testing.assert_array_equal(found, np.histogram(x, bins, (low, high))[0])


@FEW
@given(st.integers(0, 2), st.integers(1, 6), st.sampled_from([np.int64, np.int32, np.float32]), SEEDS)
def test_scatter_add_is_onnxruntimes(axis: int, places: int, index_dtype: type, seed: int) -> None:
    random = np.random.default_rng(seed)
    updates = random.normal(size=(3, 4, 5)).astype(np.float32)
    indices = random.integers(0, places, updates.shape[axis])
    first = np.ascontiguousarray(np.moveaxis(updates, axis, 0))
    data = np.zeros((places, *first.shape[1:]), np.float32)
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["y"], reduction="add")
    constants = {"indices": indices.reshape(-1, 1), "updates": first}
    (expected,) = run_oracle(make_model([node], {"data": data.shape}, ["y"], constants, opset=18), {"data": data})
    moved = np.moveaxis(expected, 0, axis)
    out = TensorType(moved.shape, DType.F32)
    found = compute(ScatterAdd(axis), updates, indices.astype(index_dtype), out=out)
    np.testing.assert_allclose(found, moved, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [-1, 3, 0.5, float("nan")])
def test_scatter_add_names_an_index_of_no_place(index: float) -> None:
    indices = np.array([0, index], np.float32)
    with pytest.raises(DataError, match=r"index .* of an axis of 3"):
        compute(ScatterAdd(0), np.ones((2, 2), np.float32), indices, out=TensorType((3, 2), DType.F32))
