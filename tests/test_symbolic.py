"""Shapes for a batch of N, against the same model built for other batches."""

from __future__ import annotations

import numpy as np
import pytest
from any_graphs import any_graphs
from hypothesis import given
from random_graphs import float_graphs

from rlx_edge.errors import ModelError
from rlx_edge.ir import (
    DType,
    Graph,
    GraphBuilder,
    Shape,
    TensorType,
    batch_shapes,
    from_text,
    same_graph,
    to_text,
    with_batch,
)
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Concat,
    Conv,
    Expand,
    MatMul,
    Narrow,
    Op,
    Reduce,
    ReduceOp,
    Reshape,
    Slice,
    Tile,
    Transpose,
)
from rlx_edge.ir.ops.control import Custom, If, Scan
from rlx_edge.ir.symbolic import Linear


def shapes_of(op: Op, *shapes: Shape, out: TensorType | None = None) -> list[str]:
    """The sizes of what an op makes of inputs of these shapes."""
    builder = GraphBuilder("g")
    inputs = [builder.input(f"x{i}", TensorType(shape, DType.F32)) for i, shape in enumerate(shapes)]
    graph = builder.build([builder.add(op, inputs, "y", type=out)])
    return list(map(str, batch_shapes(graph)[graph.outputs[0]]))


@pytest.mark.parametrize(
    ("op", "shapes", "sizes"),
    [
        (Activation(ActivationFn.RELU), [(1, 3)], "N 3"),
        (Activation(ActivationFn.RELU), [(4, 3)], "N 3"),
        (Concat(0), [(1, 3), (1, 3)], "2N 3"),
        (Tile((3, 2)), [(1, 3)], "3N 6"),
        (Transpose((1, 0)), [(2, 3)], "3 N"),
        (MatMul(), [(1, 3, 1), (1, 1, 3)], "N 3 3"),
        (MatMul(), [(5, 5), (5, 5)], "? ?"),  # The second one's rows must be the first one's columns.
        (Reduce(ReduceOp.SUM, (0,), False), [(1, 3)], "3"),
        (Reshape((1, 12)), [(1, 3, 4)], "N 12"),
        (Reshape((1, -1)), [(1, 3, 4)], "N 12"),
        (Reshape((-1, 4)), [(1, 3, 4)], "3N 4"),
        (Reshape((3, 4)), [(1, 3, 4)], "3N 4"),
        (Reshape((4, -1)), [(1, 3, 4)], "4 3N"),
        (Reshape((2, 6)), [(2, 3, 2)], "N 6"),
        (Expand((1, 5, 3)), [(1, 1, 3)], "N 5 3"),
        (Narrow(0, 0, 1), [(1, 3)], "1 3"),
        (Slice(0, 2, 3, -1), [(3, 2)], "3 2"),
    ],
)
def test_sizes_follow_the_batch(op: Op, shapes: list[Shape], sizes: str) -> None:
    assert " ".join(shapes_of(op, *shapes)) == sizes


def test_windows_over_the_batch_are_a_line_or_unknown() -> None:
    """A transposed image has the batch where a convolution's rows are."""
    for stride, rows in ((1, "N-2"), (2, "?")):
        builder = GraphBuilder("g")
        x = builder.add(Transpose((2, 1, 0, 3)), [builder.input("x", TensorType((8, 2, 1, 5), DType.F32))], "t")
        w = builder.param("w", np.zeros((4, 2, 3, 3), np.float32))
        op = Conv((3, 3), (stride, 1), (0, 0), (1, 1), 1)
        graph = builder.build([builder.add(op, [x, w], "y")])
        assert list(map(str, batch_shapes(graph)[graph.outputs[0]])) == ["1", "4", rows, "3"]


def test_what_is_declared_for_one_batch_is_not_known_for_others() -> None:
    assert shapes_of(Custom("unknown.op", 1, b""), (1, 3), out=TensorType((1, 7), DType.F32)) == ["?", "?"]


def relu_body() -> Graph:
    builder = GraphBuilder("body")
    x = builder.input("x", TensorType((1, 3), DType.F32))
    flat = builder.add(Reshape((3,)), [builder.add(Activation(ActivationFn.RELU), [x], "relu")], "flat")
    return builder.build([builder.add(Reshape((1, 3)), [flat], "y")])


def test_nested_graphs_follow() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 3), DType.F32))
    flag = builder.input("flag", TensorType((), DType.BOOL))
    chosen = builder.add(If(relu_body(), relu_body()), [flag, x], "y")
    graph = builder.build([builder.add(Scan(relu_body(), 3, True, 0, 0, 0), [chosen], "rows")])
    found = batch_shapes(graph)
    assert [list(map(str, found[node.id])) for node in graph.nodes] == [["N", "3"], [], ["N", "3"], ["3", "N", "3"]]


def test_inputs_must_agree() -> None:
    with pytest.raises(ModelError, match=r"no one batch: its inputs are 'x0' f32\[1, 3\], 'x1' f32\[2, 3\]"):
        shapes_of(Concat(0), (1, 3), (2, 3))
    builder = GraphBuilder("none")
    graph = builder.build([builder.param("w", np.zeros(3, np.float32))])
    with pytest.raises(ModelError, match="none with an axis"):
        batch_shapes(graph)


@given(float_graphs())
def test_models_are_what_they_are_for_that_batch(graph: Graph) -> None:
    """Where the model can be made for another batch, the shapes say what it has then."""
    try:
        other = with_batch(graph, 6)
    except ModelError:
        return
    found = batch_shapes(graph)
    for node in graph.nodes:
        sizes = [size.at(6) if isinstance(size, Linear) else size for size in found[node.id]]
        assert sizes == list(next(n for n in other.nodes if n.name == node.name).type.shape), node


@given(any_graphs())
def test_any_graph_has_an_answer(graph: Graph) -> None:
    if len({node.type.shape[0] for node in graph.inputs if node.type.shape}) != 1:
        with pytest.raises(ModelError, match="no one batch"):
            batch_shapes(graph)
        return
    found = batch_shapes(graph)
    batch = next(node.type.shape[0] for node in graph.inputs if node.type.shape)
    for node in graph.nodes:
        known = [size.at(batch) if isinstance(size, Linear) else size for size in found[node.id]]
        assert all(size == declared or str(size) == "?" for size, declared in zip(known, node.type.shape, strict=True))


def test_text_shows_the_batch_and_is_read_for_one() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 2, 2), DType.F32))
    flat = builder.add(Reshape((1, 4)), [x], "flat")
    both = builder.add(Concat(0), [flat, flat], "both")
    graph = builder.build([builder.add(Binary(BinaryOp.ADD), [both, both], "y")])
    text = to_text(graph, batch=True)
    assert "x = Input() : f32[N, 2, 2]" in text and "flat = Reshape(%0) : f32[N, 4]" in text
    assert "y = Binary(%2, %2, fn=Add) : f32[2N, 4]" in text
    assert same_graph(from_text(text, {}, batch=1), graph)
    assert from_text(text, {}, batch=5).output_nodes[0].type.shape == (10, 4)
