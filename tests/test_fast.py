"""The float ops by BLAS give what the reference gives, up to the rounding of float32 sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx_models import random_array

from rlx_edge.formats import load
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, TensorType, with_batch
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, Layout, MatMul, Op, Pool, ReduceOp, ShapeError
from rlx_edge.passes.pipeline import prepare
from rlx_edge.reference import fast, run
from rlx_edge.reference import observe as observe_reference

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.onnx"
Draw = Callable[[st.SearchStrategy], object]
EPSILON = 2.0**-23


def one_op(op: Op, shapes: list[tuple[int, ...]]) -> Graph:
    builder = GraphBuilder("one")
    inputs = [builder.input(f"x{i}", TensorType(shape, DType.F32)) for i, shape in enumerate(shapes)]
    return builder.build([builder.add(op, inputs, "y")])


def compute(graph: Graph, values: list[Array], evaluate: Callable = fast.evaluate) -> Array:
    return evaluate(graph, graph.output_nodes[0], values)


def check(graph: Graph, seed: int, terms: int) -> None:
    """Within the rounding of a float32 sum of `terms` products, in whatever order: terms * 2^-24 of the sum of their
    magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and a rounding of each result."""
    values = [random_array(node.type.shape, seed + i) for i, node in enumerate(graph.inputs)]
    found = compute(graph, values)
    exact = run(graph, {f"x{i}": v for i, v in enumerate(values)})["y"].astype(np.float64)
    sizes = run(graph, {f"x{i}": np.abs(v) for i, v in enumerate(values)})["y"].astype(np.float64)
    assert found.dtype == np.float32
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= (terms + 2) * EPSILON * np.abs(sizes) + 1e-38)
    assert np.array_equal(found, compute(graph, values))


def image(n: int, h: int, w: int, c: int, layout: Layout) -> tuple[int, ...]:
    return (n, c, h, w) if layout is Layout.NCHW else (n, h, w, c)


@st.composite
def conv_graphs(draw: Draw) -> Graph:
    kind = draw(st.sampled_from(["plain", "grouped", "depthwise", "pointwise"]))
    layout = draw(st.sampled_from(Layout))
    groups = draw(st.integers(2, 4)) if kind in ("grouped", "depthwise") else 1
    in_group = 1 if kind == "depthwise" else draw(st.integers(1, 4))
    out_group = draw(st.integers(1, 3))
    kernel = (1, 1) if kind == "pointwise" else (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = draw(st.one_of(st.just((0, 0)), st.tuples(*[st.integers(0, 3)] * 4)))
    n, h, w = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    op = Conv(kernel, stride, padding, dilation, groups, layout)
    shapes = [image(n, h, w, groups * in_group, layout), image(groups * out_group, *kernel, in_group, layout)]
    try:
        return one_op(op, shapes)
    except ShapeError:
        assume(False)
        raise


@given(conv_graphs(), st.integers(0, 1000), st.sampled_from([1, 300, fast.BLOCK_BYTES]))
def test_convolutions(graph: Graph, seed: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "BLOCK_BYTES", block)
        shape = graph.inputs[1].type.shape
        check(graph, seed, math.prod(shape[1:]))


@st.composite
def pool_graphs(draw: Draw) -> Graph:
    layout = draw(st.sampled_from(Layout))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    n, h, w, c = (draw(st.integers(1, size)) for size in (4, 10, 10, 5))
    kind = draw(st.sampled_from([ReduceOp.MAX, ReduceOp.MEAN]))
    try:
        return one_op(Pool(kind, kernel, stride, padding, layout, draw(st.booleans())), [image(n, h, w, c, layout)])
    except ShapeError:
        assume(False)
        raise


@given(pool_graphs(), st.integers(0, 1000), st.sampled_from([1, fast.BLOCK_BYTES]))
def test_pools(graph: Graph, seed: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "BLOCK_BYTES", block)
        check(graph, seed, 16)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=3), st.booleans(), st.integers(0, 1000))
def test_matrix_products(sizes: list[int], batched: bool, seed: int) -> None:
    m, k, n = sizes
    check(one_op(MatMul(), [(2, m, k) if batched else (m, k), (k, n)]), seed, k)


@given(
    st.sampled_from([(), (5,), (1, 5), (1, 1, 5), (1, 1, 1, 5), (3, 4, 5), (1,), (2, 3, 4, 5), (4, 1), (2, 1, 1, 5)]),
    st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]),
    st.booleans(),
)
def test_binary_ops_give_the_same_bits(shape: tuple[int, ...], fn: BinaryOp, swapped: bool) -> None:
    shapes = [shape, (2, 3, 4, 5)] if swapped else [(2, 3, 4, 5), shape]
    graph = one_op(Binary(fn), shapes)
    values = [random_array(s, i) for i, s in enumerate(shapes)]
    expected = run(graph, {f"x{i}": v for i, v in enumerate(values)})["y"]
    assert np.array_equal(compute(graph, values), expected)


def test_operands_that_are_views_are_taken() -> None:
    graph = one_op(Conv((3, 3), (1, 1), (1, 1), (1, 1), 1, Layout.NHWC), [(2, 6, 6, 4), (3, 3, 3, 4)])
    x, w = random_array((2, 12, 6, 4))[:, ::2], random_array((3, 3, 3, 4))
    assert np.array_equal(compute(graph, [x, w]), compute(graph, [x.copy(), w]))


def test_a_whole_model_stays_by_the_reference() -> None:
    graph = with_batch(prepare(load(DIGITS)), 7)
    inputs = {node.name: random_array(node.type.shape) for node in graph.inputs}
    expected: dict[str, Array] = {}
    observe_reference(graph, inputs, lambda node, value: expected.update({node.name: value}))
    largest = {name: float(np.abs(value).max()) for name, value in expected.items() if value.size}
    found: list[str] = []

    def compare(node: Node, value: Array) -> None:
        found.append(node.name)
        assert np.abs(value - expected[node.name]).max() <= 1e-5 * largest[node.name]

    fast.observe(graph, inputs, compare)
    assert found == [node.name for node in graph.nodes]


def test_observe_shows_every_node_in_order() -> None:
    graph = one_op(MatMul(), [(2, 3), (3, 4)])
    inputs = {"x0": random_array((2, 3)), "x1": random_array((3, 4))}
    seen: list[str] = []
    expected: list[str] = []
    fast.observe(graph, inputs, lambda node, value: seen.append(f"{node} {value.shape}"))
    observe_reference(graph, inputs, lambda node, value: expected.append(f"{node} {value.shape}"))
    assert seen == expected
