"""Named cases of the passes that fold: constants, repeated work, clamps, scales and paddings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from double import check_within_rounding
from onnx_models import random_array

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Conv,
    Expand,
    Layout,
    Leaf,
    MatMul,
    Op,
    Pad,
    PadMode,
    Pool,
    ReduceOp,
    Reshape,
    Softmax,
)
from rlx_edge.passes import fold_constants as folding
from rlx_edge.passes.clamp_early import clamp_early
from rlx_edge.passes.fold_batchnorm import fold_batchnorm
from rlx_edge.passes.fold_constants import fold_constants
from rlx_edge.passes.fold_pad import fold_pad
from rlx_edge.passes.fold_scale_ahead import fold_scale_ahead
from rlx_edge.passes.fuse import find_fusions
from rlx_edge.passes.merge_clamps import merge_clamps
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.share_common import share_common
from rlx_edge.reference import run

IMAGE = (1, 6, 7, 4)
RELU, SIGMOID = Activation(ActivationFn.RELU), Activation(ActivationFn.SIGMOID)
ADD, SUB, MUL, DIV, MAX, MIN = (
    Binary(fn) for fn in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MAX, BinaryOp.MIN)
)


class Line:
    """A graph made of one op after the other on an image."""

    def __init__(self, shape: Shape = IMAGE) -> None:
        self.builder = GraphBuilder("line")
        self.last = self.builder.input("x", TensorType(shape, DType.F32))

    def __call__(self, op: Op, *constants: Array | float, name: str = "t") -> Line:
        params = [self.builder.param("c", np.asarray(c, np.float32)) for c in constants]
        self.last = self.builder.add(op, [self.last, *params], name, sources=(f"from {name}",))
        return self

    def conv(self, channels: int = 3, padding: int = 0, groups: int = 1) -> Line:
        inputs = self.builder[self.last].type.shape[3] // groups
        op = Conv((3, 3), (1, 1), (padding,) * 2, (1, 1), groups, Layout.NHWC)
        return self(op, random_array((channels, 3, 3, inputs), 3), name="conv")

    def done(self, *others: int) -> Graph:
        return self.builder.build([self.last, *others])


def ops(graph: Graph) -> list[Op]:
    return [node.op for node in graph.nodes if not isinstance(node.op, Leaf)]


def kinds(graph: Graph) -> list[str]:
    return [op.kind_name for op in ops(graph)]


def check(before: Graph, after: Graph) -> None:
    check_within_rounding(before, after, {n.name: random_array(n.type.shape, 5) for n in before.inputs})


# ---- Constants -------------------------------------------------------------------------------------------------------


def test_what_follows_from_constants_is_a_parameter_of_its_name() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 3), DType.F32))
    w, s = builder.param("w", random_array((3, 4), 1)), builder.param("s", random_array((4,), 2))
    scaled = builder.add(MUL, [w, s], "scaled", sources=("file/scaled",))
    turned = builder.add(Activation(ActivationFn.TANH), [scaled], "turned")
    before = builder.build([builder.add(MatMul(), [x, turned], "y")])
    after = fold_constants(before)
    assert kinds(after) == ["MatMul"] and list(after.params) == ["turned"]
    check(before, after)


def test_a_small_file_does_not_grow() -> None:
    """Each Expand alone would fit, all together would not."""
    builder = GraphBuilder("g")
    x = last = builder.input("x", TensorType((1 << 12, 32), DType.F32))
    for value in range(6):
        c = builder.param("c", np.full((1, 1), value, np.float32))
        last = builder.add(ADD, [last, builder.add(Expand((1 << 12, 32)), [c], "grown")], "t")
    after = fold_constants(builder.build([last]))
    assert sum(values.size for values in after.params.values()) <= folding.GROWTH + 6
    assert kinds(after).count("Expand") == 4
    assert after.nodes[x].name == "x"


def test_long_work_on_constants_is_left_to_the_model() -> None:
    builder = GraphBuilder("g")
    image = builder.param("image", np.zeros((1, 128, 128, 1), np.float32))
    pooled = builder.add(Pool(ReduceOp.MEAN, (64, 64), (1, 1), (0, 0), Layout.NHWC), [image], "pooled")
    x = builder.input("x", TensorType((1, 65, 65, 1), DType.F32))
    assert "Pool" not in kinds(fold_constants(builder.build([builder.add(ADD, [x, pooled], "y")])))
    image = builder.param("image", np.zeros((1, 512, 512, 1), np.float32))
    pooled = builder.add(Pool(ReduceOp.MEAN, (256, 256), (1, 1), (0, 0), Layout.NHWC), [image], "pooled")
    x = builder.input("z", TensorType((1, 257, 257, 1), DType.F32))
    assert "Pool" in kinds(fold_constants(builder.build([builder.add(ADD, [x, pooled], "y")])))


def test_an_output_that_is_constant_stays_computed() -> None:
    builder = GraphBuilder("g")
    builder.input("x", TensorType((1,), DType.F32))
    graph = builder.build([builder.add(RELU, [builder.param("c", np.ones(1, np.float32))], "y")])
    assert fold_constants(graph) is graph


# ---- Repeated work ---------------------------------------------------------------------------------------------------


def twice(a: Array, b: Array, outputs: str = "sum") -> Graph:
    builder = GraphBuilder("twice")
    x = builder.input("x", TensorType((4,), DType.F32))
    first = builder.add(MUL, [x, builder.param("a", a)], "first", sources=("file/first",))
    second = builder.add(MUL, [x, builder.param("b", b)], "second", sources=("file/second",))
    total = builder.add(ADD, [first, second], "sum")
    return builder.build([{"sum": total, "first": first, "second": second}[name] for name in outputs.split()])


def test_equal_work_is_done_once_and_bears_both_sources() -> None:
    values = random_array((4,), 1)
    before = twice(values, values.copy())
    after = share_common(before)
    assert [node.sources for node in after.nodes if node.name == "first"] == [("file/first", "file/second")]
    assert len(after.params) == 1 and kinds(after) == ["Binary", "Binary"]
    check(before, after)


@pytest.mark.parametrize(
    ("outputs", "names"),
    [("sum second", ["second", "sum"]), ("sum first second", ["first", "second", "sum"])],
)
def test_outputs_keep_their_names(outputs: str, names: list[str]) -> None:
    values = random_array((4,), 1)
    after = share_common(twice(values, values.copy(), outputs))
    assert [node.name for node in after.output_nodes] == outputs.split()
    assert sorted(node.name for node in after.nodes if not isinstance(node.op, Leaf)) == names


def test_constants_are_compared_to_the_last_bit() -> None:
    zero = np.zeros(4, np.float32)
    graph = twice(zero, -zero)
    assert share_common(graph) is graph
    one = random_array((4,), 1)
    graph = twice(one, np.nextafter(one, np.float32(9)))
    assert share_common(graph) is graph


# ---- Clamps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (Line()(MAX, 0.0), [RELU]),
        (Line()(MIN, 6.0), [Clamp(-math.inf, 6.0)]),
        (Line()(MAX, 0.0)(MIN, 6.0), [Clamp(0.0, 6.0)]),
        (Line()(RELU)(Clamp(-1.0, 1.0)), [Clamp(0.0, 1.0)]),
        (Line()(Clamp(-1.0, 1.0))(Clamp(2.0, 3.0)), [Clamp(2.0, 2.0)]),
        (Line()(SIGMOID)(RELU)(Clamp(-1.0, 1.0))(SIGMOID), [SIGMOID, SIGMOID]),
        (Line()(Softmax(3))(MIN, 1.0)(SIGMOID), [Softmax(3), SIGMOID]),
        (Line()(RELU)(Reshape((6, 28)))(RELU)(SIGMOID), [RELU, Reshape((6, 28)), SIGMOID]),
        (Line()(MAX, np.arange(4)), [MAX]),  # A bound a channel is no clamp.
        (Line()(MAX, np.nan), [MAX]),
    ],
)
def test_clamps_take_one_form_and_join(line: Line, wanted: list[Op]) -> None:
    before = line.done()
    after = merge_clamps(before)
    assert ops(after) == wanted
    if "nan" not in str(before.params):
        check(before, after)


def test_a_clamp_that_others_read_stays_with_its_convolution() -> None:
    line = Line().conv()(RELU, name="relu")
    first = line.last
    graph = line(Clamp(-1.0, 1.0)).done(first)
    assert merge_clamps(graph) is graph


def test_a_minimum_and_a_maximum_fuse_into_the_convolution() -> None:
    graph = prepare(Line().conv()(ADD, np.ones((1, 1, 3)))(MAX, 0.0)(MIN, 6.0).done())
    (fusion,) = find_fusions(graph).values()
    assert (fusion.low, fusion.high, fusion.last.id) == (0.0, 6.0, graph.outputs[0])


@pytest.mark.parametrize("clamp", [RELU, Clamp(-1.0, 2.0)])
def test_a_clamp_after_maximum_pooling_goes_to_the_convolution(clamp: Op) -> None:
    line = Line().conv()(ADD, np.ones((1, 1, 3)), name="biased")
    line(Pool(ReduceOp.MAX, (2, 2), (2, 2), (1, 1), Layout.NHWC), name="pool")(Reshape((1, 27)), name="flat")
    before = line(clamp, name="limited").done()
    after = clamp_early(before)
    assert kinds(after) == ["Conv", "Binary", clamp.kind_name, "Pool", "Reshape"]
    last = after.output_nodes[0]
    assert (last.name, last.sources) == ("limited", ("from limited",))
    assert not {"pool", "flat"} & {node.name for node in after.nodes}  # Their values are other ones now.
    assert len(find_fusions(after)) == 1
    x = {"x": random_array(IMAGE, 5)}
    np.testing.assert_array_equal(run(after, x)["limited"], run(before, x)["limited"])


def test_a_clamp_stays_where_it_would_not_be_taken_in() -> None:
    pooling = Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0), Layout.NHWC)
    graph = Line()(SIGMOID)(pooling)(RELU).done()
    assert clamp_early(graph) is graph
    line = Line().conv()(pooling)
    pooled = line.last
    graph = line(RELU).done(pooled)
    assert clamp_early(graph) is graph


# ---- Scales ----------------------------------------------------------------------------------------------------------


def test_a_division_folds_back_like_a_product() -> None:
    before = Line().conv()(DIV, np.array([2.0, -3.0, 0.7]))(SUB, np.ones(3)).done()
    after = fold_batchnorm(before)
    assert kinds(after) == ["Conv", "Binary"]
    check(before, after)
    zero = Line().conv()(DIV, np.array([2.0, 0.0, 1.0])).done()
    assert fold_batchnorm(zero) is zero


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_an_input_that_is_rescaled_goes_into_the_first_convolution(groups: int) -> None:
    """Keras' Rescaling and Normalization: x / 127.5 - 1, then one mean and deviation a channel."""
    line = Line()(DIV, 127.5)(SUB, 1.0)(SUB, random_array((4,), 1))(DIV, np.array([0.2, 0.3, 0.4, 0.5]))
    before = line.conv(4, groups=groups)(ADD, random_array((1, 1, 1, 4), 8)).done()
    after = prepare(before)
    assert kinds(after) == ["Conv", "Binary"]
    assert after.output_nodes[0].sources == before.output_nodes[0].sources
    check(before, after)


def test_an_offset_stays_before_padding_and_a_factor_does_not() -> None:
    offset = Line()(ADD, 0.5).conv(padding=1).done()
    assert fold_scale_ahead(offset) is offset
    both = Line()(MUL, 3.0)(ADD, 0.5)(MUL, 2.0).conv(padding=1).done()
    after = fold_scale_ahead(both)
    assert kinds(after) == ["Binary", "Binary", "Conv"]
    check(both, after)


def test_scales_before_a_flatten_go_into_the_dense_layer() -> None:
    """A batch normalization after an activation, flattened: [1, 6, 7, 4] -> [1, 168] times [168, 5]."""
    line = Line()(RELU)(MUL, random_array((4,), 1))(ADD, random_array((1, 1, 1, 4), 2))
    before = line(Reshape((1, 168)))(MUL, random_array((168,), 4))(MatMul(), random_array((168, 5), 3)).done()
    after = fold_scale_ahead(before)
    assert kinds(after) == ["Activation", "Reshape", "MatMul", "Binary"]
    check(before, after)


def test_a_bias_stays_with_its_own_layer() -> None:
    graph = Line().conv()(ADD, np.ones(3)).conv().done()
    assert fold_scale_ahead(graph) is graph


def test_a_scaled_tensor_with_another_reader_stays() -> None:
    line = Line()(MUL, 2.0)
    scaled = line.last
    graph = line.conv().done(scaled)
    assert fold_scale_ahead(graph) is graph


# ---- Paddings --------------------------------------------------------------------------------------------------------

SIDES = ((0, 0), (1, 0), (0, 2), (0, 0))


def pool(kind: ReduceOp, padding: Shape = (0, 0), counted: bool = False) -> Pool:
    return Pool(kind, (3, 3), (1, 1), padding, Layout.NHWC, counted)


@pytest.mark.parametrize(
    ("line", "padding"),
    [
        (Line()(Pad(SIDES)).conv(padding=1), (2, 1, 1, 3)),
        (Line()(Pad(SIDES)).conv(4, groups=4), (1, 0, 0, 2)),
        (Line()(Pad(SIDES, value=-math.inf))(pool(ReduceOp.MAX)), (1, 0, 0, 2)),
        (Line()(RELU)(Pad(SIDES))(pool(ReduceOp.MAX)), (1, 0, 0, 2)),
        (Line()(SIGMOID)(Pad(SIDES, value=-1.0))(pool(ReduceOp.MAX)), (1, 0, 0, 2)),
        (Line()(Pad(SIDES))(pool(ReduceOp.MEAN)), (1, 0, 0, 2)),
        (Line()(Pad(((0, 0), (1, 0), (0, 1), (0, 0))))(pool(ReduceOp.MEAN, (1, 1), True)), (2, 1, 1, 2)),
    ],
)
def test_padding_goes_into_what_reads_it(line: Line, padding: Shape) -> None:
    before = line.done()
    after = fold_pad(before)
    op = after.output_nodes[0].op
    assert "Pad" not in kinds(after) and isinstance(op, Conv | Pool) and op.padding == padding
    assert after.output_nodes[0].sources == before.output_nodes[0].sources
    x = {"x": random_array(IMAGE, 5)}
    np.testing.assert_array_equal(*(run(graph, x)[before.output_nodes[0].name] for graph in (before, after)))


@pytest.mark.parametrize(
    "line",
    [
        Line()(Pad(SIDES, value=1.0)).conv(),
        Line()(Pad(SIDES, PadMode.REFLECT)).conv(),
        Line()(Pad(((0, 0), (0, 0), (0, 0), (1, 0)))).conv(),
        Line()(Pad(((1, 0), (0, 0), (0, 0), (0, 0)))).conv(),
        Line()(Pad(SIDES))(pool(ReduceOp.MAX)),  # 0 wins over negative values.
        Line()(RELU)(Pad(SIDES, value=0.5))(pool(ReduceOp.MAX)),
        Line()(Pad(SIDES))(pool(ReduceOp.MEAN, (1, 1))),  # Some of the padding would count, some not.
        Line()(Pad(SIDES, value=-1.0))(pool(ReduceOp.MEAN)),
        Line()(RELU)(Pad(((0, 0), (3, 0), (0, 0), (0, 0))))(pool(ReduceOp.MAX)),  # A window of padding alone.
    ],
)
def test_padding_that_would_change_a_value_stays(line: Line) -> None:
    graph = line.done()
    assert fold_pad(graph) is graph
