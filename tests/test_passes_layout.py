"""Named cases of the passes that move elements: transposes cancel, reshapes join, what does nothing goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_models import random_array

from rlx_edge.ir import DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    Concat,
    Conv,
    ConvTranspose2d,
    Expand,
    LayerNorm,
    Layout,
    Leaf,
    MatMul,
    Narrow,
    Op,
    Pad,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    Slice,
    Tile,
    Transpose,
)
from rlx_edge.passes.clean_shapes import clean_shapes
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.reshape_axes import axis_groups, regroup
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.reference import run

TO_NCHW, TO_NHWC = Transpose((0, 3, 1, 2)), Transpose((0, 2, 3, 1))
RELU, TANH = Activation(ActivationFn.RELU), Activation(ActivationFn.TANH)
ADD, MUL = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL)


class Model:
    """A graph in the making: `last` is the newest node."""

    def __init__(self, shape: Shape) -> None:
        self.builder = GraphBuilder("model")
        self.last = self.builder.input("x", TensorType(shape, DType.F32))

    def __call__(self, op: Op, *more: int, of: int | None = None) -> int:
        self.last = self.builder.add(op, [self.last if of is None else of, *more], "t")
        return self.last

    def param(self, *shape: int) -> int:
        return self.builder.param("w", random_array(shape, len(self.builder.params)))

    def conv(self, c_out: int, k: int = 1) -> int:
        c_in = self.builder[self.last].type.shape[1]
        op = Conv((k, k), (1, 1), (k // 2,) * 2, (1, 1), 1, Layout.NCHW)
        return self(op, self.param(c_out, c_in, k, k))

    def done(self, *others: int) -> Graph:
        return self.builder.build([self.last, *others])


def ops(graph: Graph) -> list[Op]:
    return [node.op for node in graph.nodes if not isinstance(node.op, Leaf)]


def transposes(graph: Graph) -> int:
    return sum(isinstance(op, Transpose) for op in ops(graph))


def check_equal(before: Graph, after: Graph) -> None:
    inputs = {n.name: random_array(n.type.shape, 5) for n in before.inputs}
    expected, found = run(before, inputs), run(after, inputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


# ---- Transposes ------------------------------------------------------------------------------------------------------


def keras_model(rescaled: bool) -> Graph:
    """As tf2onnx writes Keras models: NHWC in and out, one Transpose to NCHW first, one back before each dense part."""
    model = Model((1, 8, 8, 3))
    model(TO_NCHW)
    if rescaled:
        model(MUL, model.builder.param("s", random_array((1, 3, 1, 1), 1)))
        model(ADD, model.builder.param("o", random_array((1, 3, 1, 1), 2)))
    model.conv(4, 3)
    model(RELU)
    first = model(Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0), Layout.NCHW))
    model.conv(4)
    model(ADD, first)
    model(TO_NHWC)
    model(TANH)
    model(Reshape((1, 64)))
    model(MatMul(), model.param(64, 3))
    return model.done()


@pytest.mark.parametrize("rescaled", [False, True])
def test_a_model_from_keras_has_no_transposes(rescaled: bool) -> None:
    before = keras_model(rescaled)
    check_equal(before, to_nhwc(before))
    assert transposes(prepare(before)) == 0


def test_transposes_cancel_around_anything_elementwise() -> None:
    model = Model((1, 4, 5, 3))
    a = model(TO_NCHW)
    b = model(TANH)
    model(ADD, a)
    model(MUL, model.builder.param("c", random_array((1, 3, 1, 1), 1)))
    model(Concat(1), b)
    model(Pad(((0, 0), (0, 0), (1, 0), (0, 2))))
    model(Narrow(2, 1, 3))
    model(Slice(3, 4, 3, -1))
    model(Tile((1, 2, 1, 1)))
    model(Reverse((1, 3)))
    model(LayerNorm(1, 1e-3), model.param(12), model.param(12))
    model(TO_NHWC)
    before = model.done()
    after = clean_shapes(to_nhwc(before))
    assert transposes(after) == 0
    check_equal(before, after)


def test_an_output_keeps_its_name_whatever_is_made_beside_it() -> None:
    """Names of what passes add are made unique by a number; this output has the first such name."""
    for name in ("conv_2", "conv.nhwc", "conv.moved", "x.nhwc"):
        builder = GraphBuilder("g")
        x = builder.input("x", TensorType((1, 2, 3, 4), DType.F32))
        op = Conv((1, 1), (1, 1), (0, 0), (1, 1), 1, Layout.NCHW)
        conv = builder.add(op, [x, builder.param("w", random_array((3, 2, 1, 1)))], "conv")
        before = builder.build([builder.add(Reshape((1, 36)), [conv], name)])
        assert [node.name for node in prepare(before).output_nodes] == [name]
        check_equal(before, to_nhwc(before))


def test_one_transpose_is_not_made_two() -> None:
    """Two outputs need the transposed tensor: held back, the transpose would be made for each."""
    model = Model((2, 3, 4))
    moved = model(Transpose((0, 2, 1)))
    first = model(RELU, of=moved)
    model(TANH, of=moved)
    other = model(Transpose((2, 0, 1)))
    graph = model.done(first, moved)
    after = to_nhwc(graph)
    assert transposes(after) <= 2 and after.nodes[other].name
    check_equal(graph, after)


def test_a_transposed_convolution_moves_too() -> None:
    model = Model((1, 4, 5, 6))
    op = ConvTranspose2d((3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 2, Layout.NCHW)
    model(op, model.param(4, 3, 3, 3))
    before = model.done()
    after = to_nhwc(before)
    assert any(isinstance(op, ConvTranspose2d) and op.layout is Layout.NHWC for op in ops(after))
    check_equal(before, after)


def test_dense_layers_take_rows_in_any_order() -> None:
    """Tokens of a vision model: [N, C, H, W] -> [N, C, HW] -> [N, HW, C], then dense layers on each token."""
    model = Model((1, 4, 4, 3))
    model(TO_NCHW)
    model.conv(8)
    model(Reshape((1, 8, 16)))
    model(Transpose((0, 2, 1)))
    model(MatMul(), model.param(8, 5))
    before = model.done()
    after = prepare(before)
    assert transposes(after) == 0
    check_equal(before, to_nhwc(before))


def test_a_channel_shuffle_is_one_transpose_of_three_axes() -> None:
    model = Model((1, 4, 4, 3))
    model(TO_NCHW)
    model.conv(6)
    model(Reshape((1, 2, 3, 4, 4)))
    model(Transpose((0, 2, 1, 3, 4)))
    model(Reshape((1, 6, 4, 4)))
    model.conv(2)
    model(TO_NHWC)
    before = model.done()
    after = prepare(before)
    assert [op for op in ops(after) if isinstance(op, Transpose)] == [Transpose((0, 2, 1))]
    check_equal(before, after)


# ---- Reshapes of tensors that are held in another order --------------------------------------------------------------


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, Shape, Sequence[int]]:
    """Two shapes of equal elements, and an order of the first one's axes."""
    primes = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=6))

    def joined() -> Shape:
        cuts = [draw(st.booleans()) for _ in primes]
        sizes = [1]
        for prime, cut in zip(primes, cuts, strict=True):
            sizes = [*sizes, prime] if cut else [*sizes[:-1], sizes[-1] * prime]
        return tuple(sizes)

    old = joined()
    return old, joined(), draw(st.permutations(range(len(old))))


@given(reshapes())
def test_a_regrouped_reshape_is_the_reshape(case: tuple[Shape, Shape, Sequence[int]]) -> None:
    old, new, order = case
    perm = tuple(order)
    x = np.arange(np.prod(old)).reshape(old)
    found = regroup(old, new, perm)
    held = x.transpose(np.argsort(found.before))
    wanted = [new[i] for i in np.argsort(found.after)]
    np.testing.assert_array_equal(held.reshape(wanted).transpose(found.after), x.reshape(new))
    for a, b in axis_groups(old, new):
        assert np.prod([old[i] for i in a]) == np.prod([new[i] for i in b])


def test_groups_that_are_whole_stay_where_they_are() -> None:
    # NCHW held as NHWC: channels split in two move nothing; rows and columns joined neither.
    assert regroup((1, 6, 4, 5), (1, 2, 3, 4, 5), (0, 3, 1, 2)).before == (0, 3, 1, 2)
    assert regroup((1, 6, 4, 5), (1, 6, 20), (0, 3, 1, 2)).before == (0, 3, 1, 2)
    # Channels joined with rows do: the tensor goes back to NCHW.
    assert regroup((1, 6, 4, 5), (1, 24, 5), (0, 3, 1, 2)).before == (0, 1, 2, 3)


# ---- Ops that do nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        Reshape((1, 3, 4)),
        Reshape((1, -1, 4)),
        Transpose((0, 1, 2)),
        Cast(DType.F32),
        Expand((1, 3, 4)),
        Tile((1, 1, 1)),
        Pad(((0, 0),) * 3),
        Narrow(1, 0, 3),
        Slice(2, 0, 4, 1),
        Concat(1),
        Reverse((0,)),
        Reduce(ReduceOp.MEAN, (0,), True),
    ],
)
def test_what_does_nothing_goes(op: Op) -> None:
    model = Model((1, 3, 4))
    model(op)
    model(TANH)
    assert ops(clean_shapes(model.done())) == [TANH]


@pytest.mark.parametrize("op", [Slice(1, 2, 3, -1), Reverse((1,)), Transpose((0, 2, 1)), Expand((2, 3, 4))])
def test_what_does_something_stays(op: Op) -> None:
    model = Model((1, 3, 4))
    model(op)
    model(TANH)
    assert ops(clean_shapes(model.done())) == [op, TANH]


def test_elementwise_ops_broadcast_by_themselves() -> None:
    model = Model((2, 3, 4))
    x = model.last
    model(Reduce(ReduceOp.MAX, (1, 2), True))
    model(Expand((2, 3, 4)))
    model(MUL, x)
    before = model.done()
    after = clean_shapes(before)
    assert not any(isinstance(op, Expand) for op in ops(after))
    check_equal(before, after)
    alone = Model((2, 1, 4))
    alone(Expand((2, 3, 4)))
    alone(MUL, alone.last)
    graph = alone.done()
    assert clean_shapes(graph) is graph
