"""`clean` on int8 graphs: every output keeps its bits under every rounding rule, and there is less to compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import ModelMaker, float_edges_model, random_model, samples

from rlx_edge.ir import Graph, QuantParams, Requant
from rlx_edge.ir.ops import Layout, Leaf, Pad, Pool, QConv2d, ReduceOp, Reshape
from rlx_edge.passes.pipeline import clean
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.reference import run

SIDES = ((0, 0), (0, 1), (0, 1), (0, 0))


def check_equal(before: Graph, after: Graph) -> None:
    assert [(n.name, n.type) for n in after.output_nodes] == [(n.name, n.type) for n in before.output_nodes]
    inputs = {name: values[0] for name, values in samples(before, 1).items()}
    expected, found = run(before, inputs), run(after, inputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def computed(graph: Graph) -> int:
    return sum(not isinstance(node.op, Leaf) for node in graph.nodes)


def under(graph: Graph, rule: Requant) -> Graph:
    """The graph with every op under another rounding rule."""
    ops = [replace(n.op, requant=rule) if hasattr(n.op, "requant") else n.op for n in graph.nodes]
    return replace(graph, nodes=tuple(replace(n, op=op) for n, op in zip(graph.nodes, ops, strict=True)))


@pytest.mark.parametrize("rule", [Requant.TFLM, Requant.TFLITE_REF, Requant.RLX])
@given(seed=st.integers(0, 1 << 20))
def test_random_models_keep_their_bits(rule: Requant, seed: int) -> None:
    before = under(random_model(seed), rule)
    after = clean(before)
    check_equal(before, after)
    assert computed(after) <= computed(before) and clean(after) is after


def test_float_edges_stay() -> None:
    graph = float_edges_model()
    check_equal(graph, clean(graph))


@pytest.mark.parametrize("groups", [1, 4])
def test_padding_goes_into_an_int8_convolution(groups: int) -> None:
    """Keras pads before a strided convolution (MobileNet): the file has PAD, then CONV_2D without padding."""
    maker = ModelMaker("padded", 3)
    x = maker.input((1, 6, 6, 4))
    padded = maker.builder.add(Pad(SIDES), [x], "pad", maker.quant_of(x))
    conv = maker.conv(padded, 4, groups=groups, stride=2, name="conv")
    before = maker.builder.build([conv])
    after = clean(before)
    (op,) = [node.op for node in after.nodes if not isinstance(node.op, Leaf)]
    assert isinstance(op, QConv2d) and op.padding == (1, 1, 2, 2)
    check_equal(before, after)


@pytest.mark.parametrize(("zero_point", "stays"), [(-128, False), (-127, True), (0, True)])
def test_padding_goes_into_a_maximum_where_no_code_is_lower(zero_point: int, stays: bool) -> None:
    maker = ModelMaker("padded", 3)
    quant = QuantParams.per_tensor(0.05, zero_point)
    x = maker.conv(maker.input((1, 5, 5, 2)), 3, out=quant)
    padded = maker.builder.add(Pad(SIDES), [x], "pad", quant)
    op = Pool(ReduceOp.MAX, (3, 3), (2, 2), (0, 0), Layout.NHWC, requant=Requant.TFLM)
    before = maker.builder.build([maker.builder.add(op, [padded], "pool", quant)])
    after = clean(before)
    assert any(isinstance(node.op, Pad) for node in after.nodes) is stays
    check_equal(before, after)


def test_repeated_branches_and_reshapes_go() -> None:
    maker = ModelMaker("branches", 5)
    x = maker.input((1, 4, 4, 2))
    first = maker.pool(x, 2, name="first")
    second = maker.pool(x, 2, name="second")
    flat = maker.builder.add(Reshape((2, 4)), [first], "flat", maker.quant_of(first))
    back = maker.builder.add(Reshape((1, 2, 2, 2)), [flat], "back", maker.quant_of(first))
    before = maker.builder.build([maker.add(back, second)])
    after = clean(before)
    assert [node.name for node in after.nodes if not isinstance(node.op, Leaf)] == ["first", "add"]
    check_equal(before, after)


def test_int8_convolutions_move_to_nhwc() -> None:
    """An int8 graph from ONNX is NCHW."""
    maker = ModelMaker("nchw", 7)
    x = maker.input((1, 5, 6, 3))
    conv = maker.conv(x, 4)
    graph = maker.builder.build([conv])
    node = graph.output_nodes[0]
    assert isinstance(node.op, QConv2d)
    turned = ModelMaker("nchw", 7)
    y = turned.input((1, 3, 5, 6))
    weights = np.ascontiguousarray(graph.params["conv/w"].transpose(0, 3, 1, 2))
    w = turned.builder.param("conv/w", weights, graph.operand_types(node)[1].quant)
    b = turned.builder.param("conv/b", graph.params["conv/b"])
    turned.builder.add(replace(node.op, layout=Layout.NCHW), [y, w, b], "conv", node.type.quant)
    before = turned.builder.build([3])
    after = to_nhwc(before)
    assert [n.op.layout for n in after.nodes if isinstance(n.op, QConv2d)] == [Layout.NHWC]
    check_equal(before, after)
