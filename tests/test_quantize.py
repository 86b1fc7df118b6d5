"""Quantized models follow the scheme, are well formed, and stay close to the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper
from onnx_models import make_model, random_array
from random_models import image_models

from rlx_edge.data import Data, load_data
from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, Requant, TensorType, with_batch
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Concat,
    Input,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Softmax,
)
from rlx_edge.quant import Range, calibrate, quality, quantize
from rlx_edge.quant.schemes import BIAS_MAX, activation_params, quantize_weights
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import quantize_f32

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def load(model: onnx.ModelProto) -> Graph:
    return load_onnx(model.SerializeToString())


def data_for(graph: Graph, count: int = 24) -> Data:
    return Data({n.name: random_array((count, *n.type.shape[1:]), 9) for n in graph.inputs})


def quantized(model: onnx.ModelProto) -> tuple[Graph, Graph, Data]:
    graph = load(model)
    data = data_for(graph)
    return graph, quantize(graph, calibrate(graph, data)), data


def load_inputs(graph: Graph, data: Data) -> dict[str, Array]:
    """The data as an int8 graph takes it."""
    params = {node.name: node.type.quant for node in graph.inputs}
    return {name: quantize_f32(values, quant) for name, values in data.inputs.items() if (quant := params[name])}


def named(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind_name for node in graph.nodes if node.inputs]


finite = st.floats(-1e6, 1e6, width=32)


@given(finite, finite)
def test_activation_params_cover_the_range_and_hold_zero(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    params = activation_params(Range(low, high))
    assert params.scale == np.float32(params.scale)
    codes = [(value / params.scale) + params.zero_point for value in (min(low, 0), max(high, 0))]
    assert codes[0] >= -128.51
    assert codes[1] <= 127.51
    assert -128 <= params.zero_point <= 127


@given(
    hnp.arrays(np.float32, (3, 2, 2, 2), elements=st.floats(-1e3, 1e3, width=32)),
    hnp.arrays(np.float64, 3, elements=st.floats(-1e9, 1e9)),
    st.floats(1e-9, 1e3),
)
def test_weights_are_within_half_a_step_and_biases_fit(weights: Array, bias: Array, x_scale: float) -> None:
    made = quantize_weights(weights, 0, bias, x_scale)
    steps = np.array(made.weight_params.scales).reshape(3, 1, 1, 1)
    assert np.all(np.abs(made.weights.astype(np.int64)) <= 127)
    assert np.all(np.abs(made.weights * steps - weights) <= steps * 0.5001)
    bias_steps = np.array(made.bias_params.scales)
    assert np.all(np.abs(made.bias.astype(np.float64)) <= BIAS_MAX * 1.001)
    assert np.all(np.abs(made.bias * bias_steps - bias) <= bias_steps * 0.5001)
    assert all(s > 0 and s == np.float32(s) for s in made.weight_params.scales)


def test_channels_of_zeros_get_a_usable_scale() -> None:
    weights = np.zeros((3, 4), np.float32)
    weights[:, 0], weights[:, 1] = [1, -2, 3], 1e-40
    made = quantize_weights(weights, 1, np.array([0, 0, 5.0, 0]), 0.1)
    assert made.weights[:, 0].tolist() == [42, -85, 127]
    assert made.weight_params.scales[2] == made.weight_params.scales[0]
    assert made.bias[2] * made.bias_params.scales[2] == pytest.approx(5, rel=1e-3)
    assert not made.weights[:, 1:].any()


@given(image_models())
def test_random_models_quantize_to_close_int8_models(model: onnx.ModelProto) -> None:
    graph, int8, data = quantized(model)
    assert all(node.type.dtype is DType.I8 for node in (*int8.inputs, *int8.output_nodes))
    assert [(n.name, n.type.shape) for n in int8.inputs] == [(n.name, n.type.shape) for n in graph.inputs]
    assert [(n.name, n.type.shape) for n in int8.output_nodes] == [(n.name, n.type.shape) for n in graph.output_nodes]
    for node in int8.nodes:
        assert node.type.dtype in (DType.I8, DType.I32)
        assert getattr(node.op, "requant", Requant.TFLM) is Requant.TFLM
    found = quality(graph, int8, data)
    assume(not calibrate(graph, data).warnings)
    assert found.output_sqnr_db > 12
    assert found.tensors[0].sqnr_db > 30


def single(op: str, *shapes: tuple[int, ...], constants: dict[str, Array] | None = None, **attributes: Any) -> Graph:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, [*names, *(constants or {})], ["y"], **attributes)
    model = make_model([node], dict(zip(names, shapes, strict=True)), ["y"], constants)
    return quantized(model)[1]


def test_softmax_has_fixed_output_parameters() -> None:
    node = single("Softmax", (1, 5)).output_nodes[0]
    assert isinstance(node.op, Softmax)
    assert node.type.quant is not None
    assert (node.type.quant.scale, node.type.quant.zero_point) == (1 / 256, -128)


def test_softmax_runs_along_the_last_axis() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    graph, int8, data = quantized(make_model([node], {"x": (1, 5, 2, 3)}, ["y"]))
    assert kinds(int8) == ["Transpose", "Softmax", "Transpose"]
    assert int8.output_nodes[0].type.shape == (1, 5, 2, 3)
    expected = run(with_batch(graph, len(data)), data.inputs)["y"]
    codes = load_inputs(int8, data)
    found = (run(with_batch(int8, len(data)), codes)["y"].astype(np.float64) + 128) / 256
    assert np.abs(found - expected).max() < 0.02


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling_keeps_its_operands_parameters(op: str) -> None:
    graph = single(op, (1, 1, 4, 4), kernel_shape=[2, 2])
    assert graph.output_nodes[0].type.quant == graph.inputs[0].type.quant


def test_a_mean_over_padding_becomes_padding_and_a_mean() -> None:
    graph = single("AveragePool", (1, 1, 4, 4), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    ops = [node.op for node in graph.nodes]
    assert any(isinstance(op, Pad) for op in ops)
    assert all(op.padding == (0, 0, 0, 0) and not op.count_include_pad for op in ops if isinstance(op, Pool))


def test_a_concatenations_operands_share_its_parameters() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "three"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Concat", ["x", "b"], ["c"], axis=1),
        helper.make_node("Add", ["c", "three"], ["y"]),
    ]
    _, graph, _ = quantized(make_model(nodes, {"x": (1, 4)}, ["y"], {"three": np.float32(3)}))
    concat = next(node for node in graph.nodes if isinstance(node.op, Concat))
    assert all(operand.type.quant == concat.type.quant for operand in graph.operands(concat))
    assert named(graph, "b").type.quant == concat.type.quant
    assert kinds(graph).count("Quantize") == 1  # Of x, which has another reader; b takes the parameters straight away.


def test_an_operand_with_other_readers_is_requantized_for_a_concatenation() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["x", "a"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    _, graph, _ = quantized(make_model(nodes, {"x": (1, 4)}, ["y"]))
    assert isinstance(named(graph, "a.requantized").op, Quantize)
    assert named(graph, "b").type.quant == named(graph, "y").type.quant


@pytest.mark.parametrize(("op", "fn"), [("Add", BinaryOp.ADD), ("Sub", BinaryOp.SUB), ("Mul", BinaryOp.MUL)])
def test_binary_ops_take_in_an_activation(op: str, fn: BinaryOp) -> None:
    nodes = [helper.make_node(op, ["x", "z"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph, int8, data = quantized(make_model(nodes, {"x": (1, 8), "z": (1, 8)}, ["y"]))
    assert kinds(int8) == ["Binary"]
    node = int8.output_nodes[0]
    assert isinstance(node.op, Binary)
    assert node.op.fn is fn
    assert node.name == "y"
    assert quality(graph, int8, data).output_sqnr_db > 30


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_a_constant_added_or_subtracted_becomes_the_bias(op: str) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node(op, ["a", "b"], ["y"])]
    constants = {"w": random_array((4, 3)), "b": random_array((3,), 1)}
    graph, int8, data = quantized(make_model(nodes, {"x": (1, 4)}, ["y"], constants))
    assert kinds(int8) == ["QMatMul"]
    assert quality(graph, int8, data).output_sqnr_db > 30


def test_relu6_bounds_are_codes_of_the_output() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("Clip", ["conv", "low", "high"], ["y"]),
    ]
    constants = {"w": random_array((2, 1, 1, 1)), "low": np.float32(0), "high": np.float32(0.125)}
    _, graph, _ = quantized(make_model(nodes, {"x": (1, 1, 4, 4)}, ["y"], constants))
    conv = next(node for node in graph.nodes if isinstance(node.op, QConv2d))
    assert isinstance(conv.op, QConv2d)
    # The range is 0 to 0.125 exactly, so the bounds are all of int8 and no clamp is left.
    assert conv.type.quant is not None
    assert conv.type.quant.scale == np.float32(0.125 / 255)
    assert conv.op.clamp is None
    x, w, _ = (type.quant for type in graph.operand_types(conv))
    assert x is not None
    assert w is not None
    assert conv.op.mult == pytest.approx([x.scale * scale / conv.type.quant.scale for scale in w.scales])


def test_a_bound_inside_the_range_becomes_a_clamp() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["a"]),
        helper.make_node("Concat", ["a", "z"], ["y"], axis=1),
    ]
    constants = {"low": np.float32(-0.25), "high": np.float32(0.25)}
    graph, int8, data = quantized(make_model(nodes, {"x": (1, 8), "z": (1, 8)}, ["y"], constants))
    clip = named(int8, "a")
    assert isinstance(clip.op, Quantize)
    assert clip.op.clamp is not None
    assert quality(graph, int8, data).output_sqnr_db > 30


def test_dense_layers_of_higher_rank_become_one_matrix() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    constants = {"w": random_array((4, 3)), "b": random_array((3,), 1)}
    graph, int8, data = quantized(make_model(nodes, {"x": (1, 5, 4)}, ["y"], constants))
    assert kinds(int8) == ["Reshape", "QMatMul", "Reshape"]
    assert isinstance(int8.nodes[-2].op, QMatMul)
    assert int8.output_nodes[0].type.shape == (1, 5, 3)
    assert quality(graph, int8, data).output_sqnr_db > 30


def test_what_has_no_int8_form_is_listed() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "z"], ["a"]),
        helper.make_node("Conv", ["p", "q"], ["b"]),
    ]
    shapes = {"x": (1, 4, 4), "z": (1, 4, 3), "p": (1, 2, 4, 4), "q": (1, 2, 1, 1)}
    graph = load(make_model(nodes, shapes, ["a", "b"]))
    data = Data({name: random_array(shape) for name, shape in shapes.items()})
    with pytest.raises(UnsupportedError) as caught:
        quantize(graph, calibrate(graph, data))
    assert len(caught.value.problems) == 2
    assert "'a': its weights are computed" in caught.value.problems[0]


def test_constants_are_not_joined_to_computed_values() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Concat", ["a", "k"], ["y"], axis=1)]
    with pytest.raises(UnsupportedError, match=r"Concat 'y': it joins the constants \['k'\]"):
        quantized(make_model(nodes, {"x": (1, 4)}, ["y"], {"k": random_array((1, 2))}))


def test_a_constant_output_is_refused() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    y = builder.add(Activation(ActivationFn.RELU), [x], "y")
    graph = builder.build([y, builder.param("k", random_array((1, 4)))])
    with pytest.raises(UnsupportedError, match="'k': it is an output, but a constant"):
        quantize(graph, calibrate(graph, data_for(graph)))


def test_the_rule_is_a_parameter() -> None:
    graph = load_onnx(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:16")
    int8 = quantize(graph, calibrate(graph, data), Requant.RLX)
    rules = {node.op.requant for node in int8.nodes if hasattr(node.op, "requant")}
    assert rules == {Requant.RLX}
    assert quality(graph, int8, data).output_sqnr_db > 25


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Graph]:
    graph = load_onnx(DIGITS / "digits.onnx")
    return graph, quantize(graph, calibrate(graph, load_data(DIGITS / "digits_calibration.npz", graph)))


def accuracy(graph: Graph) -> float:
    data = load_data(DIGITS / "digits_test.npz", graph)
    outputs = run(with_batch(graph, len(data)), data.inputs)["probabilities"]
    assert data.labels is not None
    return float(np.mean(outputs.argmax(axis=1) == data.labels))


def test_digits_keep_their_accuracy(digits: tuple[Graph, Graph]) -> None:
    graph, int8 = digits
    assert accuracy(graph) >= 0.97
    assert accuracy(int8) >= accuracy(graph) - 0.01


def test_digits_quality(digits: tuple[Graph, Graph]) -> None:
    graph, int8 = digits
    found = quality(graph, int8, load_data(DIGITS / "digits_test.npz", graph))
    assert found.output_sqnr_db > 30
    assert found.agreement is not None
    assert found.agreement > 0.985
    assert found.samples == 500
    assert {"stem_relu", "logits", "probabilities"} <= {tensor.name for tensor in found.tensors}


def test_digits_lower_to_the_ops_of_the_kernels(digits: tuple[Graph, Graph]) -> None:
    _, int8 = digits
    assert "Transpose" not in kinds(int8)
    assert kinds(int8).count("QConv2d") == 4
    assert named(int8, "residual_relu").sources == ("residual_relu",)
    assert [n.name for n in int8.nodes if isinstance(n.op, Input)] == ["x"]
