"""Quality: the figures are those of their definition, whatever the engine and the batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model, random_array

from rlx_edge.coverage import coverage
from rlx_edge.data import Data, load_data
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import MatMul, Reshape
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import calibrate, quality, quantize
from rlx_edge.quant.batches import BATCH, batches, samples_within
from rlx_edge.quant.explain import explain
from rlx_edge.quant.quality import Sums, judged, pairs, quantized_inputs, real_values
from rlx_edge.reference.run import run_all

WEIGHTS = {"w": random_array((3, 2, 3, 3)), "b": random_array((3,), 1), "d": random_array((108, 5), 2)}


def model() -> Graph:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("MatMul", ["flat", "d"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"]),
    ]
    return load_onnx(make_model(nodes, {"x": (1, 2, 6, 6)}, ["y"], WEIGHTS).SerializeToString())


def made(count: int = 40) -> tuple[Graph, Graph, Data]:
    graph, data = model(), Data({"x": random_array((count, 2, 6, 6), 3)})
    return graph, quantize(graph, calibrate(graph, data)), data


def by_definition(graph: Graph, int8: Graph, data: Data) -> dict[str, float]:
    """SQNR by tensor, one sample at a time, by the references, in float64."""
    prepared = prepare(graph)
    sums: dict[str, list[float]] = {}
    for i in range(len(data)):
        inputs = {"x": data.inputs["x"][i : i + 1]}
        expected = run_all(prepared, inputs)
        found = real_values(int8, run_all(int8, quantized_inputs(int8, inputs)))
        for a, b in pairs(prepared, int8):
            signal = expected[a.name].astype(np.float64)
            total = sums.setdefault(b.name, [0.0, 0.0])
            total[0] += float(np.sum(signal**2))
            total[1] += float(np.sum((found[b.name].astype(np.float64) - signal) ** 2))
    return {name: 10 * math.log10(signal / noise) for name, (signal, noise) in sums.items()}


def test_figures_are_those_of_the_definition() -> None:
    graph, int8, data = made()
    found, expected = quality(graph, int8, data), by_definition(graph, int8, data)
    assert {t.name for t in found.tensors} == set(expected)
    for tensor in found.tensors:
        assert tensor.sqnr_db == pytest.approx(expected[tensor.name], abs=0.02), tensor.name
    assert found.output_sqnr_db == pytest.approx(expected["logits"], abs=0.02)
    assert found.samples == 40


def test_the_output_is_judged_before_its_softmax() -> None:
    graph, int8, _ = made()
    assert [(a.name, b.name) for a, b in judged(prepare(graph), int8)] == [("logits", "logits")]


def node_of(quant: QuantParams) -> Graph:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 4), DType.I8, quant))
    return builder.build([builder.add(Reshape((4,)), [x], "y", quant)])


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e20, 3e38])
def test_sums_hold_for_values_of_any_size(size: float) -> None:
    expected = (np.array([[1.0, -0.5, 0.25, 0.0]]) * size).astype(np.float32)
    sums = Sums()
    sums.add(expected, expected - np.float32(size) * np.float32(1 / 128))
    assert sums.db == pytest.approx(10 * math.log10(1.3125 / (4 / 128**2)), abs=1e-3)


def test_no_error_is_infinite_and_no_signal_is_minus_infinity() -> None:
    values: Array = np.ones((1, 4), np.float32)
    exact, noise = Sums(), Sums()
    exact.add(values, values)
    noise.add(0 * values, values)
    assert (exact.db, noise.db) == (math.inf, -math.inf)


def test_large_values_are_no_masks_unless_the_model_holds_one() -> None:
    """What a range clips counts, however far out it lies."""
    builder = GraphBuilder("outliers")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    w = builder.param("w", np.eye(4, dtype=np.float32))
    graph = builder.build([builder.add(MatMul(), [x, w], "y")])
    values = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    values[7] *= 1e6
    data = Data({"x": values})
    calibration = calibrate(graph, data)
    narrow = {name: replace(known, low=-3.0, high=3.0) for name, known in calibration.ranges.items()}
    int8 = quantize(graph, replace(calibration, ranges=narrow))
    for found in (quality(graph, int8, data), explain(graph, int8, calibration, data)):
        assert abs(found.output_sqnr_db) < 0.01


def test_memory_bounds_the_batch() -> None:
    graph, int8, data = made(10)
    assert samples_within(1 << 30, graph, int8) == BATCH
    assert samples_within(1, graph, int8) == 1
    assert [b.count for b in batches(data, graph, int8, most=4)] == [4, 4, 2]


def test_coverage_counts_what_the_codes_clip() -> None:
    quant = QuantParams.per_tensor(0.1, -128)  # 0 to 25.5
    found = coverage(np.array([0.0, 10, 25.55, 30], np.float32), quant)
    assert (found.clipped, found.low, found.high) == (0.25, 0, 30)
    assert found.reach == pytest.approx(30 / 25.5)
    assert found.hardly
    assert not coverage(np.array([-0.05, 25.55], np.float32), quant).hardly
    assert coverage(np.append(np.zeros(999), 40.0), quant).hardly  # A single value, far out.
    assert not coverage(np.append(np.zeros(999), 36.0), quant).hardly


def test_data_beyond_an_int8_input_are_told(tmp_path: object) -> None:
    graph = node_of(QuantParams.per_tensor(0.01, 0))
    np.savez(f"{tmp_path}/d.npz", x=random_array((20, 4)))
    (warning,) = load_data(f"{tmp_path}/d.npz", graph).warnings
    assert "goes beyond what the input 'x' was calibrated for" in warning
    np.savez(f"{tmp_path}/d.npz", x=random_array((20, 4)) * np.float32(0.1))
    assert load_data(f"{tmp_path}/d.npz", graph).warnings == ()
