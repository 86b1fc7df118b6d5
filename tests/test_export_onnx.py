"""int8 graphs to ONNX QDQ: onnxruntime runs the file, and it is read back to the same function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from models import random_model, samples, tiny_model
from onnx_models import run_oracle
from op_graphs import OPS, random_inputs, seeds

from rlx_edge.api import load_data
from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_onnx import onnx_bytes, save_onnx
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Reduce, ReduceOp
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"

EXACT = ("dense_onnx", "conv_onnx", "binary_onnx", "pool_onnx", "requantize_onnx", "softmax_onnx", "mean_onnx")
MOVES = ("pad", "concat", "transpose", "clamp", "narrow", "slice", "expand", "reverse")


def under_onnx(graph: Graph) -> Graph:
    nodes = [replace(n, op=replace(n.op, requant=Requant.ONNX)) if hasattr(n.op, "requant") else n for n in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


@pytest.mark.parametrize("op", [*EXACT, *MOVES])
def test_read_back_to_the_same_function(op: str) -> None:
    @settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = data.draw(OPS[op]())
        assume(all(getattr(node.op, "beta", 1.0) == 1.0 for node in graph.nodes))
        again = load_onnx(onnx_bytes(graph))
        inputs = random_inputs(graph, data.draw(seeds))
        found, expected = run(again, inputs), run(graph, inputs)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)

    check()


@pytest.mark.parametrize("seed", range(6))
def test_whole_models(seed: int) -> None:
    """Branches, NHWC images, several outputs: read back, the reference gives the same bits; so does a second trip."""
    graph = under_onnx(random_model(seed))
    again = load_onnx(onnx_bytes(graph))
    inputs = {name: values[0] for name, values in samples(graph, 1, seed).items()}
    expected, found = run(graph, inputs), run(again, inputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    twice = run(load_onnx(onnx_bytes(again)), inputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(twice[name], values)


@pytest.mark.parametrize("seed", range(3))
def test_onnxruntime_runs_it(seed: int) -> None:
    """Within a code of the reference: onnxruntime sums convolutions in float32."""
    graph = under_onnx(random_model(seed))
    inputs = {name: values[0] for name, values in samples(graph, 1, seed).items()}
    expected = run(graph, inputs)
    found = run_oracle(onnx.load_model_from_string(onnx_bytes(graph)), inputs)
    for values, name in zip(found, (node.name for node in graph.output_nodes), strict=True):
        assert np.abs(values.astype(int) - expected[name]).max() <= 1


def test_how_far_the_rules_part() -> None:
    """Digits under tflm: exported, the file computes by ONNX's rounding. Few outputs differ, no top-1."""
    graph = load_onnx(DIGITS / "digits.onnx")
    int8 = quantize(graph, calibrate(graph, load_data(DIGITS / "digits_calibration.npz", graph)))
    again = load_onnx(onnx_bytes(int8))
    differing = []
    for sample in load_data(DIGITS / "digits_test.npz", int8).inputs["x"][:100]:
        fed = {"x": sample.reshape(int8.inputs[0].type.shape)}
        ours, theirs = run(int8, fed)["probabilities"], run(again, fed)["probabilities"]
        differing.append(np.mean(ours != theirs))
        assert ours.argmax() == theirs.argmax()
    assert 0.0 < np.mean(differing) < 0.05


def test_refused_by_name() -> None:
    builder = GraphBuilder("refused")
    x = builder.input("x", TensorType((1, 4), DType.I8, QuantParams.per_tensor(0.1, 0)))
    total = builder.add(Reduce(ReduceOp.SUM, (1,), True), [x], "sum", QuantParams.per_tensor(0.4, 0))
    gelu = builder.add(Activation(ActivationFn.GELU), [total], "gelu", QuantParams.per_tensor(0.4, 0))
    with pytest.raises(UnsupportedError) as found:
        onnx_bytes(builder.build([gelu]))
    assert len(found.value.problems) == 2
    assert "'sum'" in found.value.problems[0] and "Gelu" in found.value.problems[1]


def test_a_float_graph_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Conv has no form in ONNX's QDQ"):
        onnx_bytes(load_onnx(DIGITS / "digits.onnx"))


def test_saved_whole(tmp_path: Path) -> None:
    graph = under_onnx(tiny_model())
    save_onnx(graph, tmp_path / "tiny.onnx")
    assert (tmp_path / "tiny.onnx").read_bytes() == onnx_bytes(graph)
    onnx.checker.check_model(onnx.load_model(tmp_path / "tiny.onnx"), full_check=True)
