"""Passes keep the meaning, and do what they are for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from double import check_within_rounding
from hypothesis import given
from onnx import helper
from onnx_models import make_model, random_array
from random_models import ModelMaker, float_models

from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import DType, Graph, GraphBuilder, TensorType, to_text
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, Conv, Layout, MatMul, Pool, Reshape, Transpose
from rlx_edge.passes.clean_shapes import clean_shapes, moves_nothing
from rlx_edge.passes.fold_batchnorm import fold_batchnorm
from rlx_edge.passes.fuse import find_fusions, fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.passes.scale_to_depthwise import scale_to_depthwise
from rlx_edge.passes.to_nhwc import to_nhwc

PASSES = (remove_dead, clean_shapes, fold_batchnorm, to_nhwc, scale_to_depthwise, prepare)


def load(model: onnx.ModelProto) -> Graph:
    return load_onnx(model.SerializeToString())


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind_name for node in graph.nodes if node.inputs]


def check_same_meaning(before: Graph, *after: Graph) -> None:
    inputs = {node.name: random_array(node.type.shape, 5) for node in before.inputs}
    for graph in after:
        check_within_rounding(before, graph, inputs)


@given(model=float_models())
def test_random_models_keep_their_meaning(model: onnx.ModelProto) -> None:
    before = load(model)
    check_same_meaning(before, *(step(before) for step in PASSES))


@given(model=float_models())
def test_prepared_graphs_are_nhwc_and_stay_as_they_are(model: onnx.ModelProto) -> None:
    graph = prepare(load(model))
    assert all(n.op.layout is Layout.NHWC for n in graph.nodes if isinstance(n.op, Conv | Pool))
    assert to_text(prepare(graph)) == to_text(graph)


def chain(*bodies: str, head: str = "image", seed: int = 3) -> Graph:
    maker = ModelMaker(seed)
    for kind in bodies:
        maker.body(kind)
    maker.head(head)
    return load(maker.model())


def test_batchnorm_disappears_into_the_convolution() -> None:
    graph = fold_batchnorm(chain("conv", "batchnorm", "scale", "relu"))
    assert kinds(graph) == ["Conv", "Binary", "Activation"]
    assert graph.nodes[-2].sources == ("t2",)


def test_batchnorm_disappears_into_a_dense_layer() -> None:
    stats = {f"s{i}": np.abs(random_array((4,), i)) + np.float32(0.1) for i in range(4)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["dense"]),
        helper.make_node("BatchNormalization", ["dense", *stats], ["y"]),
    ]
    before = load(
        make_model(nodes, {"x": (2, 3)}, ["y"], {"w": random_array((3, 4)), "b": random_array((4,)), **stats})
    )
    after = fold_batchnorm(before)
    assert kinds(after) == ["MatMul", "Binary"]
    check_same_meaning(before, after)


def test_batchnorm_after_an_activation_becomes_a_depthwise_convolution() -> None:
    graph = prepare(chain("conv", "relu", "batchnorm", "scale", "relu", "conv"))
    assert "Mul" not in {node.op.display() for node in graph.nodes}
    depthwise = next(node for node in graph.nodes if isinstance(node.op, Conv) and node.op.kernel_size == (1, 1))
    assert isinstance(depthwise.op, Conv)
    assert depthwise.op.groups == depthwise.type.shape[-1]


def test_nothing_is_folded_over_a_second_reader() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("Mul", ["conv", "s"], ["scaled"]),
        helper.make_node("Add", ["conv", "scaled"], ["y"]),
    ]
    constants = {"w": random_array((2, 2, 1, 1)), "s": random_array((2, 1, 1))}
    before = load(make_model(nodes, {"x": (1, 2, 3, 3)}, ["y"], constants))
    assert kinds(fold_batchnorm(before)) == ["Conv", "Binary", "Binary"]


@pytest.mark.parametrize("position", [0, 1])
def test_subtraction_folds_on_either_side(position: int) -> None:
    operands = ["conv", "c"] if position else ["c", "conv"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"]),
        helper.make_node("Sub", operands, ["y"]),
    ]
    constants = {"w": random_array((2, 2, 1, 1)), "b": random_array((2,), 1), "c": random_array((2, 1, 1), 2)}
    before = load(make_model(nodes, {"x": (1, 2, 3, 3)}, ["y"], constants))
    after = fold_batchnorm(before)
    assert kinds(after) == ["Conv", "Binary"]
    check_same_meaning(before, after)


def test_transposes_stand_only_at_input_and_output() -> None:
    maker = ModelMaker(3)
    maker.shape = maker.input_shape = (1, 3, 6, 6)
    for kind in ("conv", "residual", "max", "concat", "pad", "mean", "there", "conv"):
        maker.body(kind)
    graph = prepare(load(maker.model()))
    transposes = [node for node in graph.nodes if isinstance(node.op, Transpose)]
    assert len(transposes) == 2
    assert transposes[0].inputs == (graph.inputs[0].id,)
    assert transposes[1].id == graph.outputs[0]


def test_a_flatten_before_a_dense_layer_needs_no_transpose() -> None:
    maker = ModelMaker(3)
    maker.shape = maker.input_shape = (1, 1, 6, 6)
    for kind in ("conv", "conv"):
        maker.body(kind)
    maker.head("relu_flatten_dense")
    before = load(maker.model())
    after = prepare(before)
    assert "Transpose" not in kinds(after)
    check_same_meaning(before, after)


def test_a_flatten_that_is_an_output_keeps_its_transpose() -> None:
    graph = prepare(chain("conv", "conv", head="flatten", seed=4))
    assert "Transpose" in kinds(graph)


def test_inputs_and_outputs_keep_names_and_layout() -> None:
    before = chain("conv", "max", "relu", seed=5)
    after = prepare(before)
    assert [(n.name, n.type.shape) for n in after.inputs] == [(n.name, n.type.shape) for n in before.inputs]
    assert [(n.name, n.type.shape) for n in after.output_nodes] == [(n.name, n.type.shape) for n in before.output_nodes]


def test_shape_ops_are_joined() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2, 3, 1), DType.F32))
    there = builder.add(Transpose((1, 0, 2)), [x], "there")
    back = builder.add(Transpose((1, 0, 2)), [there], "back")
    flat = builder.add(Reshape((6,)), [back], "flat")
    grown = builder.add(Reshape((3, 2)), [flat], "grown")
    same = builder.add(Transpose((0, 1)), [grown], "same")
    before = builder.build([builder.add(Activation(ActivationFn.RELU), [same], "y")])
    after = clean_shapes(before)
    assert kinds(after) == ["Reshape", "Activation"]
    check_same_meaning(before, after)


def test_transposes_of_single_elements_move_nothing() -> None:
    assert moves_nothing((1, 1, 8, 8), (0, 2, 3, 1))
    assert moves_nothing((1, 5, 1, 1), (0, 2, 3, 1))
    assert not moves_nothing((1, 2, 8, 8), (0, 2, 3, 1))


def test_dead_nodes_go_and_unused_inputs_stay() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), DType.F32))
    builder.input("unused", TensorType((3,), DType.F32))
    y = builder.add(Activation(ActivationFn.RELU), [x], "y")
    builder.add(Activation(ActivationFn.RELU), [y], "dead")
    graph = remove_dead(builder.build([y]))
    assert [node.name for node in graph.nodes] == ["x", "unused", "y"]


def test_fusions_take_bias_and_activations() -> None:
    graph = prepare(chain("conv", "relu", "clip", "residual"))
    fusions = find_fusions(graph)
    first = fusions[next(n.id for n in graph.nodes if n.name == "t2")]
    assert isinstance(first.anchor.op, Conv)
    assert (first.low, first.high) == (0.0, 2.0)
    residual = next(f for f in fusions.values() if isinstance(f.anchor.op, Binary))
    assert residual.low == 0.0
    stored = [n for n in graph.nodes if n.inputs and n.id not in fused_away(graph, fusions)]
    assert not any(isinstance(n.op, Conv | MatMul) and n.id not in fusions for n in stored)
