"""A graph for a batch computes each sample as the graph for one does, or there is no such graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import OPS, random_inputs

from rlx_edge.errors import ModelError
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, TensorType, with_batch
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    ArgMax,
    Binary,
    BinaryOp,
    Cast,
    Concat,
    Cumsum,
    Expand,
    Gather,
    GroupNorm,
    LayerNorm,
    MatMul,
    Narrow,
    Op,
    Pad,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    ShapeError,
    Slice,
    Softmax,
    Tile,
    TopK,
    Transpose,
    Trilu,
)
from rlx_edge.reference import run

Shape = tuple[int, ...]


def graph_of(op: Op, *shapes: Shape, constants: tuple[Shape, ...] = ()) -> Graph:
    builder = GraphBuilder("g")
    operands = [builder.input(f"x{i}", TensorType(shape, DType.F32)) for i, shape in enumerate(shapes)]
    operands += [builder.param(f"k{i}", np.ones(shape, np.float32)) for i, shape in enumerate(constants)]
    return builder.build([builder.add(op, operands, "y")])


def check(graph: Graph, samples: list[dict[str, Array]]) -> None:
    """The batch's outputs are those of the single runs, side by side."""
    together = {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}
    found = run(with_batch(graph, len(samples)), together)
    alone = [run(graph, sample) for sample in samples]
    for name, values in found.items():
        expected = np.concatenate([one[name] for one in alone])
        assert values.shape == expected.shape
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-3)


def normal_samples(graph: Graph, count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [{n.name: rng.normal(size=n.type.shape).astype(np.float32) for n in graph.inputs} for _ in range(count)]


def shape_of_a_tensor(draw: st.DrawFn) -> Shape:
    return (draw(st.sampled_from([1, 1, 1, 2])), *draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3)))


def some_op(draw: st.DrawFn, shapes: list[Shape]) -> Op:
    rank, shape = len(shapes[0]), shapes[0]
    axis = draw(st.integers(-rank, max(rank - 1, 0)))
    factors = [d for d in (1, 1, 2, 3) if math.prod(shape) % d == 0]
    return draw(
        st.sampled_from(
            [
                Activation(ActivationFn.RELU),
                Binary(draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB]))),
                Binary(BinaryOp.MUL),
                MatMul(),
                Concat(axis),
                Softmax(axis),
                Reduce(ReduceOp.MEAN, (axis,), draw(st.booleans())),
                Transpose(tuple(draw(st.permutations(range(rank))))),
                Pad(tuple(draw(st.sampled_from([(0, 0), (1, 0)])) for _ in range(rank))),
                Reshape((*draw(st.sampled_from([(), (1,)])), draw(st.sampled_from(factors)), -1)),
                Reshape((1, *shape)),
                Reshape(shape[1:]) if shape[:1] == (1,) else Reshape(shape),
                Narrow(axis, 0, 1),
                Slice(axis, 0, 1, -1),
                Expand((draw(st.sampled_from([1, 2])), *shape)),
                Expand(tuple(draw(st.sampled_from([1, 2])) if d == 1 else d for d in shape)),
                Tile(tuple(draw(st.sampled_from([1, 2])) for _ in range(rank))),
                Reverse((axis,)),
                Trilu(upper=True, diagonal=0),
                Cumsum(axis, exclusive=False),
                ArgMax(axis, draw(st.booleans())),
                TopK(1),
            ]
        )
    )


@st.composite
def float_graphs(draw: st.DrawFn) -> Graph:
    builder = GraphBuilder("g")
    tensors = [
        builder.input(f"x{i}", TensorType((1, *shape_of_a_tensor(draw)[1:]), DType.F32))
        for i in range(draw(st.integers(1, 2)))
    ]
    for i in range(draw(st.integers(1, 2))):
        tensors.append(builder.param(f"k{i}", np.full(shape_of_a_tensor(draw), 0.5 + i, np.float32)))
    made = []
    for i in range(draw(st.integers(1, 5))):
        operands = [draw(st.sampled_from(tensors)) for _ in range(2)]
        op = some_op(draw, [builder[o].type.shape for o in operands])
        try:
            made.append(builder.add(op, operands if isinstance(op, Concat) else operands[: op.arity.low], f"t{i}"))
        except ShapeError:
            continue
        tensors.append(made[-1])
    return builder.build(made[-2:] or [builder.add(Activation(ActivationFn.RELU), [tensors[0]], "y")])


@given(float_graphs(), st.integers(1, 4))
def test_random_float_graphs_keep_samples_apart_or_are_refused(graph: Graph, count: int) -> None:
    try:
        with_batch(graph, count)
    except ModelError:
        return
    check(graph, normal_samples(graph, count))


@pytest.mark.parametrize("op", sorted(OPS))
def test_random_int8_ops_keep_samples_apart_or_are_refused(op: str) -> None:
    @given(OPS[op](), st.integers(2, 4))
    def run_one(graph: Graph, count: int) -> None:
        try:
            with_batch(graph, count)
        except ModelError:
            return
        check(graph, [random_inputs(graph, seed) for seed in range(count)])

    run_one()


MIXED: list[tuple[Op, tuple[Shape, ...], tuple[Shape, ...]]] = [
    (Binary(BinaryOp.ADD), ((1, 1, 5, 4), (1, 5, 4)), ()),
    (Binary(BinaryOp.ADD), ((1, 4),), ((2, 4),)),
    (Binary(BinaryOp.ADD), ((1, 4),), ((1, 1, 4),)),
    (MatMul(), ((1, 1), (1, 3)), ()),
    (MatMul(), ((1, 2), (1, 2, 3)), ()),
    (MatMul(), ((1, 4),), ((5, 4, 3),)),
    (Concat(0), ((1, 4), (1, 4)), ()),
    (Concat(-1), ((1, 4),), ((1, 2),)),
    (Reshape((2, 2)), ((1, 4),), ()),
    (Reshape((4,)), ((1, 4),), ()),
    (Transpose((1, 0)), ((1, 1),), ()),
    (Softmax(-2), ((1, 4),), ()),
    (Reduce(ReduceOp.MEAN, (-2,), True), ((1, 4),), ()),
    (Reduce(ReduceOp.MEAN, (0, 1), False), ((1, 4),), ()),
    (Pad(((1, 0), (0, 0))), ((1, 4),), ()),
    (LayerNorm(0, 1e-5), ((1, 4),), ((1,), (1,))),
    (Trilu(upper=True, diagonal=0), ((1, 4),), ()),
    (Activation(ActivationFn.RELU), ((2, 4),), ()),
    (Activation(ActivationFn.RELU), ((),), ()),
]


@pytest.mark.parametrize(
    ("op", "shapes", "constants"), MIXED, ids=[f"{i}-{m[0].kind_name}" for i, m in enumerate(MIXED)]
)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ops_across_samples_are_refused(
    op: Op, shapes: tuple[Shape, ...], constants: tuple[Shape, ...], count: int
) -> None:
    with pytest.raises(ModelError, match="batch"):
        with_batch(graph_of(op, *shapes, constants=constants), count)


KEPT: list[tuple[Op, tuple[Shape, ...], tuple[Shape, ...]]] = [
    (Binary(BinaryOp.ADD), ((1, 3, 4), (1, 1, 4)), ()),
    (Binary(BinaryOp.ADD), ((1, 3, 4),), ((1, 3, 1),)),
    (Binary(BinaryOp.ADD), ((1, 3, 4),), ((4,),)),
    (MatMul(), ((1, 4),), ((4, 3),)),
    (MatMul(), ((1, 2, 4), (1, 4, 3)), ()),
    (MatMul(), ((1, 2, 4),), ((4, 3),)),
    (Concat(1), ((1, 4), (1, 2)), ()),
    (Reshape((1, 2, 2)), ((1, 4),), ()),
    (Transpose((0, 2, 1)), ((1, 3, 4),), ()),
    (Softmax(-1), ((1, 4),), ()),
    (Reduce(ReduceOp.MEAN, (1,), False), ((1, 4),), ()),
    (Pad(((0, 0), (0, 1))), ((1, 4),), ()),
    (LayerNorm(-1, 1e-5), ((1, 3, 4),), ((4,), (4,))),
    (GroupNorm(2, 1e-5), ((1, 4, 3),), ((4,), (4,))),
    (Expand((1, 3, 4)), ((1, 1, 4),), ()),
]


@pytest.mark.parametrize(("op", "shapes", "constants"), KEPT, ids=[f"{i}-{m[0].kind_name}" for i, m in enumerate(KEPT)])
def test_ops_within_samples_run_in_batches(op: Op, shapes: tuple[Shape, ...], constants: tuple[Shape, ...]) -> None:
    graph = graph_of(op, *shapes, constants=constants)
    check(graph, normal_samples(graph, 3))


def test_lookups_keep_samples_apart() -> None:
    """Of each sample by constant indices, and of a constant table by each sample's own indices."""
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    indices = builder.param("i", np.array([2, 0], np.int64))
    table = builder.param("t", np.arange(6, dtype=np.float32).reshape(3, 2))
    picked = builder.add(Gather(1), [x, indices], "picked")
    order = builder.add(Cast(DType.I32), [builder.add(TopK(2), [picked], "best")], "order")
    graph = builder.build([picked, builder.add(Gather(0), [table, order], "looked_up")])
    check(graph, normal_samples(graph, 3))
    with pytest.raises(ModelError, match="across samples"):
        with_batch(_first_axis(), 3)


def _first_axis() -> Graph:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    return builder.build([builder.add(Gather(0), [x, builder.param("i", np.array([0], np.int64))], "y")])


def test_an_output_that_follows_from_no_input_is_refused() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    k = builder.param("k", np.ones((1, 4), np.float32))
    outputs = [builder.add(Activation(ActivationFn.RELU), [i], "y") for i in (x, k)]
    with pytest.raises(ModelError, match="follows from no input"):
        with_batch(builder.build(outputs), 3)
