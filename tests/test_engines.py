"""Both engines give the same per-sample outputs for every shape of model, and metrics count samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import make_model, random_array, run_oracle

from rlx_edge.data import Data
from rlx_edge.engines import HOST, REFERENCE, predict
from rlx_edge.errors import DataError, EdgeError, UnsupportedError
from rlx_edge.evaluate import evaluate, mse
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, Graph
from rlx_edge.ir.batch import sample_shape
from rlx_edge.quant import Quality, calibrate, quality, quantize
from rlx_edge.reference.fixedpoint import quantize_f32

N = helper.make_node
IMAGE = (1, 4, 6, 5)
W = random_array((3, 4, 2, 2))
CONV = N("Conv", ["x", "w"], ["c"])

MODELS: dict[str, tuple[Sequence[onnx.NodeProto], Mapping[str, Sequence[int]], Mapping[str, Array]]] = {
    "plain": ([N("Relu", ["x"], ["y"])], {"x": IMAGE}, {}),
    "concat of samples": ([N("Concat", ["x", "x"], ["y"], axis=0)], {"x": IMAGE}, {}),
    "flatten axis 2": ([CONV, N("Flatten", ["c"], ["y"], axis=2)], {"x": IMAGE}, {"w": W}),
    "flatten axis 0": ([CONV, N("Flatten", ["c"], ["y"], axis=0)], {"x": IMAGE}, {"w": W}),
    "gemm of columns": ([N("Gemm", ["x", "w"], ["y"], transA=1)], {"x": (1, 7)}, {"w": random_array((1, 3))}),
    "constant of two rows": ([N("Add", ["x", "k"], ["y"])], {"x": (1, 4)}, {"k": random_array((2, 4))}),
    "operand of lower rank": ([N("Add", ["x", "z"], ["y"])], {"x": (1, 1, 5, 4), "z": (1, 5, 4)}, {}),
    "scalar output": ([CONV, N("ReduceMean", ["c"], ["y"], keepdims=0)], {"x": IMAGE}, {"w": W}),
    "output of one": ([CONV, N("ReduceMean", ["c"], ["y"])], {"x": IMAGE}, {"w": W}),
    "batch of two": ([N("Conv", ["x", "w"], ["y"])], {"x": (2, 4, 6, 5)}, {"w": W}),
    "rank 1": ([N("Mul", ["x", "x"], ["y"])], {"x": (5,)}, {}),
    "rank 1, one element": ([N("Mul", ["x", "x"], ["y"])], {"x": (1,)}, {}),
}


def made(name: str) -> tuple[onnx.ModelProto, Graph, Data]:
    nodes, inputs, constants = MODELS[name]
    model = make_model(nodes, inputs, ["y"], constants)
    graph = load_onnx(model.SerializeToString())
    inputs_of = {node.name: random_array((6, *sample_shape(node.type.shape)), i) for i, node in enumerate(graph.inputs)}
    return model, graph, Data(inputs_of)


def int8_data(graph: Graph, data: Data) -> Data:
    quant: dict[str, Any] = {node.name: node.type.quant for node in graph.inputs}
    return Data({name: quantize_f32(values, quant[name]) for name, values in data.inputs.items()})


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree_on_values_and_shapes(name: str) -> None:
    model, graph, data = made(name)
    found = predict(graph, data)["y"]
    shapes = {node.name: node.type.shape for node in graph.inputs}
    for i in range(len(data)):
        (expected,) = run_oracle(model, {n: values[i].reshape(shapes[n]) for n, values in data.inputs.items()})
        np.testing.assert_allclose(found[i].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    int8 = quantize(graph, calibrate(graph, data))
    codes = int8_data(int8, data)
    host, reference = (predict(int8, codes, engine)["y"] for engine in (HOST, REFERENCE))
    assert host.shape == reference.shape == (6, *sample_shape(graph.output_nodes[0].type.shape)) == found.shape
    np.testing.assert_array_equal(host, reference)
    judged: Quality = quality(graph, int8, data)
    assert judged.output_sqnr_db > 25
    assert (judged.agreement is None) == (graph.output_nodes[0].type.elements == 1)
    assert judged.agreement is None or 0.5 <= judged.agreement <= 1
    assert evaluate(graph, Data(data.inputs, found), "mse").value == 0
    assert evaluate(int8, Data(codes.inputs, found), "mse").value < 0.01


def test_labels_are_one_for_each_sample() -> None:
    _, graph, data = made("concat of samples")
    with pytest.raises(DataError, match="12 labels for the outputs of 6 samples"):
        evaluate(graph, Data(data.inputs, np.zeros(12, np.int64)))


@pytest.mark.parametrize("labels", [np.full((2, 3), 1j), np.full((2, 3), "a"), np.zeros((2, 3), "M8[s]")])
def test_a_squared_error_needs_real_labels(labels: Array) -> None:
    with pytest.raises(DataError, match="real numbers"):
        mse(np.zeros((2, 3), np.float32), labels)


@pytest.mark.parametrize("engine", [HOST, REFERENCE])
def test_samples_that_do_not_fit_are_refused(engine: str) -> None:
    _, graph, data = made("batch of two")
    int8 = quantize(graph, calibrate(graph, data))
    for values in (np.zeros((6, 4, 6, 5), np.int8), np.zeros((0, 2, 4, 6, 5), np.int8)):
        with pytest.raises(DataError):
            predict(int8, Data({"x": values}), engine)
    with pytest.raises(DataError):
        predict(int8, Data({}), engine)


ALIASES = {
    "output through identity": ([N("Relu", ["x"], ["y"]), N("Identity", ["y"], ["z"])], ["y", "z"]),
    "other order": ([N("Relu", ["x"], ["y"]), N("Dropout", ["y"], ["z"])], ["z", "y"]),
    "three names": (
        [N("Relu", ["x"], ["y"]), N("Identity", ["y"], ["a"]), N("Identity", ["a"], ["z"]), N("Relu", ["a"], ["b"])],
        ["z", "y", "a", "b"],
    ),
    "input through identity": ([N("Identity", ["x"], ["y"])], ["y"]),
    "input twice": ([N("Identity", ["x"], ["y"]), N("Identity", ["y"], ["z"])], ["y", "z"]),
    "convolution": ([CONV, N("Identity", ["c"], ["z"]), N("Relu", ["z"], ["y"])], ["c", "z", "y"]),
}


@pytest.mark.parametrize("name", ALIASES)
def test_every_output_keeps_its_name_and_values(name: str) -> None:
    nodes, outputs = ALIASES[name]
    model = make_model(nodes, {"x": IMAGE}, outputs, {"w": W})
    graph = load_onnx(model.SerializeToString())
    data = Data({"x": random_array((3, *IMAGE[1:]))})
    assert [node.name for node in graph.output_nodes] == outputs
    int8 = quantize(graph, calibrate(graph, data))
    assert [node.name for node in int8.output_nodes] == outputs
    found = predict(graph, data)
    for i, values in enumerate(data.inputs["x"]):
        for output, expected in zip(outputs, run_oracle(model, {"x": values[None]}), strict=True):
            np.testing.assert_allclose(found[output][i][None], expected, rtol=1e-4, atol=1e-5)
    codes = int8_data(int8, data)
    host, reference = (predict(int8, codes, engine) for engine in (HOST, REFERENCE))
    assert list(host) == list(reference) == outputs
    for output in outputs:
        np.testing.assert_array_equal(host[output], reference[output])


def test_an_output_that_is_listed_twice_is_one() -> None:
    _, graph, data = made("plain")
    graph = replace(graph, outputs=graph.outputs * 2)
    int8 = quantize(graph, calibrate(graph, data))
    found = [predict(graph, data), *(predict(int8, int8_data(int8, data), engine) for engine in (HOST, REFERENCE))]
    assert [outputs["y"].shape for outputs in found] == [(6, *IMAGE[1:])] * 3


def test_outputs_that_nothing_computes_are_refused() -> None:
    relu = N("Relu", ["x"], ["y"])
    k = {"k": random_array((2, 2))}
    for model in (
        make_model([relu], {"x": IMAGE}, ["y", "k"], k),
        make_model([relu, N("Dropout", ["k"], ["z"])], {"x": IMAGE}, ["y", "z"], k),
        make_model([N("Relu", ["k"], ["y"])], {}, ["y"], k),
    ):
        with pytest.raises(UnsupportedError, match="is a constant; take it out") as caught:
            load_onnx(model.SerializeToString())
        assert "\n" not in str(caught.value)
    with pytest.raises(EdgeError, match="output 'x' is also an input"):
        load_onnx(make_model([relu], {"x": IMAGE}, ["y", "x"]).SerializeToString())
