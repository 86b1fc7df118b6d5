"""--check: the import beside the file's own runtime, with a planted difference found where it was planted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import good, refused, rlx_edge
from oracles.tflite_writer import OpSpec, TensorSpec, write_model
from ort_models import quantized_digits

from rlx_edge.check import check_exported, check_graph, check_model
from rlx_edge.data import load_data
from rlx_edge.formats.load import load
from rlx_edge.formats.save import save
from rlx_edge.formats.tflite_file import read_model
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Param, QMatMul
from rlx_edge.passes.freeze import freeze
from rlx_edge.resources import digits_dir
from rlx_edge.runtime_process import run_apart
from rlx_edge.runtimes import RUNTIMES, RuntimeRefusedError, installed_for, may_saturate, with_outputs

DIGITS = digits_dir() / "digits.onnx"
pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'rlx-edge[oracles]'")
pytest.importorskip("tflite_micro", reason="no tflite-micro: pip install 'rlx-edge[oracles]'")


def chain() -> bytes:
    """Two dense layers and a softmax in int8."""
    random = np.random.default_rng(3)
    weights = [random.integers(-127, 128, (8, 8)).astype(np.int8) for _ in range(2)]
    bias = np.zeros(8, np.int32)
    tensors = [
        TensorSpec("x", (1, 8), scales=(0.05,), zero_points=(3,)),
        TensorSpec("w1", (8, 8), scales=(0.01,), zero_points=(0,), data=weights[0]),
        TensorSpec("b1", (8,), "INT32", data=bias),
        TensorSpec("first", (1, 8), scales=(0.1,), zero_points=(-5,)),
        TensorSpec("w2", (8, 8), scales=(0.01,), zero_points=(0,), data=weights[1]),
        TensorSpec("second", (1, 8), scales=(0.1,), zero_points=(7,)),
        TensorSpec("y", (1, 8), scales=(1 / 256,), zero_points=(-128,)),
    ]
    dense = ("FullyConnectedOptions", {"FusedActivationFunction": 0})
    operators = [
        OpSpec("FULLY_CONNECTED", (0, 1, 2), (3,), *dense),
        OpSpec("FULLY_CONNECTED", (3, 4, 2), (5,), *dense),
        OpSpec("SOFTMAX", (5,), (6,), "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return write_model(tensors, operators, (0,), (6,))


def with_other_weights(graph: Graph, name: str) -> Graph:
    """The graph with the signs of one parameter's values turned."""
    assert any(isinstance(node.op, Param) and node.op.name == name for node in graph.nodes)
    return replace(graph, params={**graph.params, name: -graph.params[name]})


def test_int8_file_has_equal_bits(tmp_path: Path) -> None:
    path = tmp_path / "chain.tflite"
    path.write_bytes(chain())
    (check,) = (c for c in check_model(path) if c.runtime == "tflite-micro")
    assert check.same
    assert [(o.name, o.differing, o.sqnr_db) for o in check.outputs] == [("y", 0, None)]


def test_float_file_has_an_sqnr() -> None:
    data = load_data(digits_dir() / "digits_test.npz", load(DIGITS))
    (check,) = check_model(DIGITS, data)
    assert check.same
    assert check.samples == 8
    assert check.outputs[0].sqnr_db is not None and check.outputs[0].sqnr_db > 100


@pytest.mark.parametrize(("weights", "parts"), [("w1", "first"), ("w2", "second")])
def test_first_tensor_that_parts_is_found(tmp_path: Path, weights: str, parts: str) -> None:
    path = tmp_path / "chain.tflite"
    path.write_bytes(chain())
    tflm = next(r for r in RUNTIMES if r.name == "tflite-micro")
    check = check_graph(tflm, chain(), with_other_weights(load(path), weights))
    assert not check.same
    assert check.parted is not None and check.parted.name == parts


def test_first_tensor_that_parts_is_found_in_onnx() -> None:
    graph = load(DIGITS)
    names = [node.op.name for node in graph.nodes if isinstance(node.op, Param) and len(node.type.shape) == 4]
    (runtime,) = installed_for(DIGITS.read_bytes())
    check = check_graph(runtime, DIGITS.read_bytes(), with_other_weights(graph, names[1]))
    assert not check.same
    changed = next(n for n in graph.nodes if any(graph.nodes[i].name == names[1] for i in n.inputs))
    later = {name for node in graph.nodes[changed.id :] for name in node.sources}
    assert check.parted is not None and check.parted.name in later


def test_quantized_onnx_has_equal_bits() -> None:
    """Its outputs are float in the file and int8 here. onnxruntime adds this file's float biases unrounded."""
    (check,) = check_model(Path(__file__).parent / "fixtures" / "digits_qat.onnx")
    assert check.same
    assert [(o.name, o.elements, str(o)) for o in check.outputs] == [("logits", 40, "equal bits")]


def test_first_tensor_that_parts_is_found_in_quantized_onnx() -> None:
    path = Path(__file__).parent / "fixtures" / "digits_qat.onnx"
    graph = load(path)
    last = next(node for node in reversed(graph.nodes) if isinstance(node.op, QMatMul))
    (runtime,) = installed_for(path.read_bytes())
    check = check_graph(runtime, path.read_bytes(), with_other_weights(graph, graph.nodes[last.inputs[1]].name))
    assert not check.same
    assert check.parted is not None and check.parted.node == last.name and check.parted.largest > 1


def test_saturating_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU without VNNI the runtime's own kernels may be why it differs."""
    monkeypatch.setattr("rlx_edge.runtimes.keeps_u8s8_exact", lambda: False)
    for weights, expected in (("QInt8", True), ("QUInt8", False)):
        data = quantized_digits("QOperator", "QUInt8", weights, False).SerializeToString()
        assert may_saturate(data) == expected


def test_outputs_of_a_file_are_replaced() -> None:
    changed = read_model(with_outputs(chain(), [3, 5]), "test")
    assert [changed.tensors[i].name for i in changed.outputs] == ["first", "second"]


def test_runtime_refuses_in_one_line() -> None:
    tflm = next(r for r in RUNTIMES if r.name == "tflite-micro")
    tensors = [TensorSpec("x", (1, 4), "FLOAT32"), TensorSpec("y", (1, 4), "FLOAT32")]
    model = write_model(tensors, [OpSpec("HASHTABLE", (0,), (1,))], (0,), (1,))
    with pytest.raises(RuntimeRefusedError, match=r"tflite-micro: .*HASHTABLE") as caught:
        list(run_apart(tflm, model, None, []))
    assert "\n" not in str(caught.value)


def test_runtime_ends_its_process(tmp_path: Path) -> None:
    """tflite-micro aborts on an addition whose scales lie too far apart."""
    path = tmp_path / "far.tflite"
    tensors = [TensorSpec(name, (1, 4), scales=(scale,), zero_points=(0,)) for name, scale in (("x", 3e38), ("y", 0.1))]
    path.write_bytes(write_model(tensors, [OpSpec("ADD", (0, 0), (1,), "AddOptions")], (0,), (1,)))
    if {runtime.name for runtime in installed_for(path.read_bytes())} != {"tflite-micro"}:
        pytest.skip("another TFLite runtime is installed, which may run it")
    assert "tflite-micro: it ended its process (SIGABRT)" in refused("inspect", path, "--check")


def test_names_may_repeat_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "same.tflite"
    tensors = [TensorSpec("t", (1, 4), scales=(scale,), zero_points=(0,)) for scale in (0.1, 0.2, 0.4)]
    operators = [OpSpec("ADD", (0, 0), (1,), "AddOptions"), OpSpec("MUL", (1, 0), (2,), "MulOptions")]
    path.write_bytes(write_model(tensors, operators, (0,), (2, 1)))
    (check,) = (c for c in check_model(path) if c.runtime == "tflite-micro")
    assert [output.differing for output in check.outputs] == [0, 0]


def test_file_that_no_runtime_runs(tmp_path: Path) -> None:
    """tflite-micro has no GELU."""
    path = tmp_path / "gelu.tflite"
    tensors = [TensorSpec(name, (1, 4), "FLOAT32") for name in ("x", "y")]
    operator = OpSpec("GELU", (0,), (1,), "GeluOptions", {"Approximate": 0})
    path.write_bytes(write_model(tensors, [operator], (0,), (1,)))
    if {runtime.name for runtime in installed_for(path.read_bytes())} != {"tflite-micro"}:
        pytest.skip("another TFLite runtime is installed, which runs it")
    line = refused("inspect", path, "--check")
    assert "no installed runtime runs it" in line
    assert "GELU" in line


def test_hybrid_files_have_no_measure(tmp_path: Path) -> None:
    """tflite-runtime rounds their activations while it runs (26 to 41 dB on kws_float), tflite-micro refuses them."""
    x, y = (TensorSpec(name, (1, 4), "FLOAT32") for name in "xy")
    w = TensorSpec("w", (4, 4), scales=(0.1,), zero_points=(0,), data=np.eye(4, dtype=np.int8))
    operator = OpSpec("FULLY_CONNECTED", (0, 1, -1), (2,), "FullyConnectedOptions")
    (tmp_path / "hybrid.tflite").write_bytes(write_model([x, w, y], [operator], (0,), (2,)))
    assert "a hybrid file" in refused("inspect", tmp_path / "hybrid.tflite", "--check")


def test_command_checks(tmp_path: Path) -> None:
    (tmp_path / "chain.tflite").write_bytes(chain())
    found = json.loads(good("inspect", tmp_path / "chain.tflite", "--check", "--json"))
    assert {c["runtime"]: c["same"] for c in found["checks"]}["tflite-micro"] is True
    assert "equal bits" in good("inspect", tmp_path / "chain.tflite", "--check")
    said = rlx_edge("convert", DIGITS, "-o", tmp_path / "digits.rlx", "--check")
    assert said.returncode == 0
    assert "checked against onnxruntime on 4 samples: the same" in said.stdout


def test_given_samples_are_checked_too(tmp_path: Path) -> None:
    data = digits_dir() / "digits_test.npz"
    assert "on 8 samples: the same" in good("inspect", DIGITS, "--check", "--data", data)
    good("quantize", DIGITS, "--data", data, "--samples", "0:16", "-o", tmp_path / "q.rlx")
    said = good("convert", tmp_path / "q.rlx", "-o", tmp_path / "q.tflite", "--check", "--data", data)
    assert "checked against tflite-micro on 8 samples: the same" in said


def hard_sigmoid(rule: Requant) -> Graph:
    """A function without an int8 kernel of TFLite: it becomes a lookup, and such a file is not imported again."""
    builder = GraphBuilder("hard")
    x = builder.input("x", TensorType((1, 16), DType.I8, QuantParams.per_tensor(1 / 16, 3)))
    op = Activation(ActivationFn.HARD_SIGMOID, requant=rule)
    return builder.build([builder.add(op, [x], "y", QuantParams.per_tensor(1 / 256, -128))])


@pytest.mark.parametrize("ending", ["tflite", "onnx"])
def test_written_files_are_checked_against_the_graph(tmp_path: Path, ending: str) -> None:
    save(freeze(hard_sigmoid(Requant.TFLM)), tmp_path / "hard.rlx")
    said = good("convert", tmp_path / "hard.rlx", "-o", tmp_path / f"hard.{ending}", "--check")
    assert f"export to hard.{ending}" in said and "on 4 samples: the same" in said


def test_a_wrong_export_is_found(tmp_path: Path) -> None:
    (tmp_path / "chain.tflite").write_bytes(chain())
    graph = with_other_weights(load(tmp_path / "chain.tflite"), "w2")
    check, *_ = check_exported(tmp_path / "chain.tflite", graph)
    assert check.parted is not None and check.parted.name == "second"


def test_a_tie_of_weights_of_few_bits_is_explained(tmp_path: Path) -> None:
    """Whether one occurs depends on the order in which this computer's onnxruntime sums."""
    data = digits_dir() / "digits_calibration.npz"
    said = good("quantize", DIGITS, "--data", data, "--weights", "4", "-o", tmp_path / "d.rlx")
    assert "which layers need more bits: --weights auto" in said
    done = rlx_edge("convert", tmp_path / "d.rlx", "-o", tmp_path / "d.onnx", "--requant", "onnx", "--check")
    assert done.returncode == 0 or (done.returncode == 1 and "--int8-weights" in done.stderr)
    args = ("--requant", "onnx", "--int8-weights", "--check")
    assert "4 samples: the same" in good("convert", tmp_path / "d.rlx", "-o", tmp_path / "d.onnx", *args)


def test_command_refuses_to_check_rlx(tmp_path: Path) -> None:
    good("convert", DIGITS, "-o", tmp_path / "digits.rlx")
    assert "has no runtime of its own" in refused("inspect", tmp_path / "digits.rlx", "--check")
