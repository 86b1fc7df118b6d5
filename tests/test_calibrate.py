"""Calibration sees every tensor, and refuses data that would give a wrong model."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model, random_array

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, Graph
from rlx_edge.quant import calibrate, quantize


def two_layers(bias: float = 0.0) -> Graph:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["y"]),
    ]
    constants = {"w": random_array((3, 2, 1, 1)), "b": np.full(3, bias, np.float32)}
    return load_onnx(make_model(nodes, {"x": ("n", 2, 4, 4)}, ["y"], constants).SerializeToString())


def samples(count: int, seed: int = 0) -> Data:
    return Data({"x": random_array((count, 2, 4, 4), seed)})


def test_ranges_are_those_of_all_samples() -> None:
    data = samples(70)
    done: list[tuple[int, int]] = []
    found = calibrate(two_layers(), data, progress=lambda i, n: done.append((i, n)))
    x = data.inputs["x"]
    assert (found.ranges["x"].low, found.ranges["x"].high) == (x.min(), x.max())
    w = random_array((3, 2, 1, 1))[:, :, 0, 0]
    relu = np.maximum(np.einsum("nchw,oc->nohw", x, w), 0)
    assert found.ranges["relu"].high == pytest.approx(relu.max(), rel=1e-5)
    assert found.ranges["relu"].low == 0
    assert found.samples == 70
    assert done == [(32, 70), (64, 70), (70, 70)]
    assert found.warnings == ()


def test_batches_do_not_change_the_result() -> None:
    data = samples(40)
    whole = calibrate(two_layers(), data)
    parts = [calibrate(two_layers(), Data({"x": data.inputs["x"][i : i + 1]})) for i in range(40)]
    for name, found in whole.ranges.items():
        assert found.low == pytest.approx(min(part.ranges[name].low for part in parts), rel=1e-6)
        assert found.high == pytest.approx(max(part.ranges[name].high for part in parts), rel=1e-6)


def test_models_that_mix_samples_run_one_at_a_time() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), helper.make_node("Relu", ["t"], ["y"])]
    graph = load_onnx(make_model(nodes, {"x": (1, 3)}, ["y"]).SerializeToString())
    values = random_array((5, 3))
    assert calibrate(graph, Data({"x": values})).ranges["y"].high == values.max()


def test_a_first_axis_that_is_no_batch_of_one_belongs_to_the_sample() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph = load_onnx(make_model(nodes, {"x": (4, 3)}, ["y"]).SerializeToString())
    values = random_array((2, 4, 3))
    assert calibrate(graph, Data({"x": values})).ranges["y"].high == values.max()
    with pytest.raises(DataError, match=r"takes samples of shape \[4, 3\]"):
        calibrate(graph, Data({"x": values.reshape(8, 3)}))


def test_data_without_samples_is_refused() -> None:
    with pytest.raises(DataError, match="at least one sample"):
        calibrate(two_layers(), samples(0))


def test_an_input_that_never_varies_is_refused() -> None:
    with pytest.raises(DataError, match=r"input 'x' is 3 in all of the 4 samples"):
        calibrate(two_layers(), Data({"x": np.full((4, 2, 4, 4), 3, np.float32)}))


def test_a_tensor_that_never_varies_is_named_and_gets_a_safe_scale() -> None:
    graph = two_layers(bias=-100.0)
    found = calibrate(graph, samples(4))
    assert len(found.warnings) == 2
    assert "'relu' is 0 in every sample" in found.warnings[0]
    quantized = quantize(graph, found)
    relu = next(node for node in quantized.nodes if node.name == "relu")
    assert relu.type.quant is not None
    assert (relu.type.quant.scale, relu.type.quant.zero_point) == (1.0, 0)


def dense(weights: Array, bias: Array) -> Graph:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    return load_onnx(make_model(nodes, {"x": (1, 4)}, ["y"], {"w": weights, "b": bias}).SerializeToString())


def test_weights_too_small_for_any_scale_are_named() -> None:
    data = Data({"x": random_array((4, 4))})
    weights, bias = random_array((4, 3)), random_array((3,))
    assert calibrate(dense(weights, bias), data).warnings == ()
    weights[:, 1:] *= 1e-30
    (warning,) = calibrate(dense(weights, bias), data).warnings
    assert "'a': the weights of 2 of 3 output channels (1, 2) become 0" in warning
    weights[:, :] = random_array((4, 3)) * np.float32(1e-4)
    beside_bias = calibrate(dense(weights, np.array([0, 1e9, 0], np.float32)), data).warnings
    assert any("the weights of 1 of 3 output channels" in warning for warning in beside_bias)
    lost = calibrate(dense(weights * np.float32(1e-26), bias * 0), data).warnings
    assert len(lost) == 2
    assert "'y' reaches" in lost[0]
    assert "it becomes 0 throughout" in lost[0]
    assert "3 of 3 output channels" in lost[1]


def test_a_constant_operand_too_small_for_any_scale_is_named() -> None:
    nodes = [helper.make_node("Add", ["x", "k"], ["y"])]
    graph = load_onnx(make_model(nodes, {"x": (1, 4)}, ["y"], {"k": np.full(4, 1e-30, np.float32)}).SerializeToString())
    (warning,) = calibrate(graph, Data({"x": random_array((4, 4))})).warnings
    assert "'k' reaches 1e-30 only" in warning


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_values_are_found_and_named(value: float) -> None:
    data: Array = random_array((40, 2, 4, 4))
    data[35, 0, 0, 0] = value
    with pytest.raises(DataError, match=r"input 'x' holds (NaN|infinity) in sample 35 at \[0, 0, 0\]; "):
        calibrate(two_layers(), Data({"x": data}))


def test_values_that_overflow_within_the_model_are_named() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["square"]), helper.make_node("Relu", ["square"], ["y"])]
    graph = load_onnx(make_model(nodes, {"x": (1, 3)}, ["y"]).SerializeToString())
    values = random_array((50, 3))
    values[37, 1] = 3e30
    with pytest.raises(DataError, match="'square' is infinite for sample 37, whose inputs are finite"):
        calibrate(graph, Data({"x": values}))


def test_an_int8_model_is_refused() -> None:
    graph = two_layers()
    quantized = quantize(graph, calibrate(graph, samples(4)))
    with pytest.raises(ModelError, match="quantized already"):
        calibrate(quantized, samples(4))


def test_the_calibration_of_another_model_is_refused() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["other"])]
    other = load_onnx(make_model(nodes, {"x": (1, 2, 4, 4)}, ["other"]).SerializeToString())
    with pytest.raises(ModelError, match="calibrate this very model"):
        quantize(two_layers(), calibrate(other, samples(4)))
