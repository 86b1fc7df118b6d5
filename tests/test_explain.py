"""Explanations: what each layer loses, what it would gain, how it is stored, shown and drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper
from onnx_models import make_model, random_array
from random_models import image_models

from rlx_edge.coverage import percent
from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError, ModelError, ToolError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.formats.rlx import load_rlx, save_rlx
from rlx_edge.ir import Graph
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import Calibration, calibrate, quality, quantize
from rlx_edge.quant.explain import Explanation, explain
from rlx_edge.quant.explain_json import KEY, ONLY_ERROR_DB, explanation_facts, read_explanation, with_explanation
from rlx_edge.quant.quality import Sums, quantized_inputs
from rlx_edge.quant.quantize import apply_recipe
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.widths import everywhere
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32
from rlx_edge.reference.run import evaluate, run_all
from rlx_edge.report.console import out
from rlx_edge.report.explain_tables import explanation_text, layers_table, sensitivity_table, show, tensors_table
from rlx_edge.report.plots import plot_quality
from rlx_edge.resources import digits_dir


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Graph, Calibration, Data]:
    graph = load_onnx(digits_dir() / "digits.onnx")
    data = load_data(digits_dir() / "digits_calibration.npz", graph, samples="0:48")
    calibration = calibrate(graph, data)
    return graph, quantize(graph, calibration), calibration, data


@pytest.fixture(scope="module")
def explanation(digits: tuple[Graph, Graph, Calibration, Data]) -> Explanation:
    return explain(*digits)


def test_the_figures_of_quality_are_kept(
    digits: tuple[Graph, Graph, Calibration, Data], explanation: Explanation
) -> None:
    graph, int8, calibration, data = digits
    found = quality(graph, int8, data)
    assert explanation.output_sqnr_db == found.output_sqnr_db
    assert (explanation.agreement, explanation.samples) == (found.agreement, 48)
    assert [(t.name, t.sqnr_db, t.scale, t.zero_point) for t in explanation.tensors] == [
        (t.name, t.sqnr_db, t.scale, t.zero_point) for t in found.tensors
    ]
    known = calibration.ranges["body_relu"]
    (body,) = (t for t in explanation.tensors if t.name == "body_relu")
    assert (body.low, body.high, body.method, body.clipped) == (known.low, known.high, known.method, 0)
    assert explanation.top1 is not None
    assert explanation.top1[0] >= 0.97
    assert explanation.warnings == ()


def test_methods_tell_where_parameters_come_from(explanation: Explanation) -> None:
    methods = {t.name: t.method for t in explanation.tensors}
    assert methods["probabilities"] == "fixed"
    assert methods["max_pool"] in ("minmax", "operand's")
    assert methods["logits"] == "minmax"


def test_functions_with_parameters_of_their_own_are_fixed() -> None:
    """Sigmoid and tanh, as softmax; what a concatenation sets is the reader's."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Add", ["s", "t"], ["y"]),
    ]
    graph = load_onnx(make_model(nodes, {"x": (1, 4)}, ["y"]).SerializeToString())
    data = Data({"x": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)})
    calibration = calibrate(graph, data)
    found = explain(graph, quantize(graph, calibration), calibration, data)
    assert {t.name: t.method for t in found.tensors} == {"x": "minmax", "s": "fixed", "t": "fixed", "y": "minmax"}


@pytest.mark.parametrize("samples", [33, 48])
def test_the_clipped_share_counts_each_value_once(digits: tuple[Graph, Graph, Calibration, Data], samples: int) -> None:
    """Also where the last batch is smaller than the others, and holds all that is clipped."""
    graph, int8, calibration, data = digits
    values = data.inputs["x"][:samples].copy()
    values[-1] *= 4
    few = Data({"x": values})
    (found,) = (t for t in explain(graph, int8, calibration, few).tensors if t.name == "x")
    assert 0 < found.clipped == np.mean(values > 1 + found.scale)


def test_a_layer_alone_is_that_layer_on_rounded_float_inputs(
    digits: tuple[Graph, Graph, Calibration, Data], explanation: Explanation
) -> None:
    """The same by hand, by the references, one sample at a time."""
    graph, int8, _, data = digits
    prepared = prepare(graph)
    (layer,) = (n for n in int8.nodes if n.name == "body_relu")
    x, *weights = int8.operands(layer)
    assert x.type.quant is not None
    assert layer.type.quant is not None
    sums = Sums()
    for i in range(len(data)):
        expected = run_all(prepared, {"x": data.inputs["x"][i : i + 1]})
        operands = [quantize_f32(expected[x.name], x.type.quant), *(int8.params[w.name] for w in weights)]
        sums.add(expected["body_relu"], dequantize_f32(evaluate(int8, layer, operands), layer.type.quant))
    (found,) = (x for x in explanation.layers if x.name == "body_relu")
    assert found.isolated_db == pytest.approx(sums.db, abs=0.01)
    assert found.op == "QConv2d"
    assert found.isolated_db > found.sqnr_db


def test_anomaly_labels_are_no_classes() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = load_onnx(make_model([node], {"x": (1, 8)}, ["y"], {"w": np.eye(8, dtype=np.float32)}).SerializeToString())
    data = Data({"x": random_array((16, 8))}, np.arange(16) % 2)
    calibration = calibrate(graph, data)
    int8 = quantize(graph, calibration)
    assert explain(graph, int8, calibration, data).top1 is None
    assert explain(graph, int8, calibration, Data(data.inputs, np.arange(16) % 8)).top1 is not None


def test_the_first_layer_has_nothing_to_accumulate(explanation: Explanation) -> None:
    assert explanation.layers[0].sqnr_db == explanation.layers[0].isolated_db


def test_sensitivity_is_sorted_and_covers_every_layer(explanation: Explanation) -> None:
    gains = [s.gain_db for s in explanation.sensitivity]
    assert gains == sorted(gains, reverse=True)
    assert {s.name for s in explanation.sensitivity} == {x.name for x in explanation.layers}
    assert explanation.sensitivity_samples == 48


def test_a_layer_that_ruins_the_output_is_found() -> None:
    """Two dense layers; the weights of the first have one large outlier a column, so that int8 keeps little of them."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((32, 16)).astype(np.float32)
    first[0] = 400
    constants = {"v": first, "w": rng.standard_normal((16, 8)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["bad"]), helper.make_node("MatMul", ["bad", "w"], ["good"])]
    graph = load_onnx(make_model(nodes, {"x": (1, 32)}, ["good"], constants).SerializeToString())
    values = random_array((64, 32))
    values[:, 0] = 0
    data = Data({"x": values})
    calibration = calibrate(graph, data)
    int8 = quantize(graph, calibration)
    found = explain(graph, int8, calibration, data)
    layers = {x.name: x for x in found.layers}
    assert layers["bad"].isolated_db < 10 < 30 < layers["good"].isolated_db
    assert found.sensitivity[0].name == "bad"
    assert found.sensitivity[0].gain_db > 20
    # By hand: the first layer in float, rounded to its parameters, then the second with its exact integers.
    (x, *_), (bad,) = int8.inputs, (n for n in int8.nodes if n.name == "bad")
    assert x.type.quant is not None
    assert bad.type.quant is not None
    codes = quantized_inputs(int8, data.inputs)["x"]
    product = (dequantize_f32(codes, x.type.quant).astype(np.float64) @ first).astype(np.float32)
    (good,) = int8.output_nodes
    rest = [int8.params[n.name] for n in int8.operands(good)[1:]]
    result = evaluate(int8, good, [quantize_f32(product, bad.type.quant), *rest])
    assert good.type.quant is not None
    sums = Sums()
    sums.add((values @ first) @ constants["w"], dequantize_f32(result, good.type.quant))
    assert found.sensitivity[0].gain_db == pytest.approx(sums.db - found.output_sqnr_db, abs=0.05)


def test_a_last_layer_kept_float_is_not_rounded_at_all() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = load_onnx(make_model([node], {"x": (1, 8)}, ["y"], {"w": np.eye(8, dtype=np.float32)}).SerializeToString())
    data = Data({"x": random_array((32, 8))})
    calibration = calibrate(graph, data)
    found = explain(graph, quantize(graph, calibration), calibration, data)
    assert found.sensitivity[0].gain_db == pytest.approx(found.tensors[0].sqnr_db - found.output_sqnr_db, abs=0.01)


def test_sensitivity_may_be_left_out(digits: tuple[Graph, Graph, Calibration, Data]) -> None:
    done: list[tuple[int, int]] = []
    found = explain(*digits, sensitivity_samples=0, progress=lambda i, n: done.append((i, n)))
    assert (found.sensitivity, found.sensitivity_samples) == ((), 0)
    assert done[-1][0] == done[-1][1]
    assert explain(*digits, sensitivity_samples=5).sensitivity_samples == 5


def test_weights_of_few_bits_have_no_sensitivity(
    digits: tuple[Graph, Graph, Calibration, Data], tmp_path: Path
) -> None:
    """Its gains would all be negative: such weights make up for the errors before them."""
    graph, _, _, data = digits
    made = apply_recipe(graph, data, Recipe(weights=everywhere(4)))
    found = explain(made.float_graph, made.graph, made.calibration, data)
    assert found.sensitivity == () and found.sensitivity_samples == 0
    with out.capture() as shown:
        show(found, out)
    assert "alone stays float" not in shown.get()
    pytest.importorskip("matplotlib")
    plot_quality(found, tmp_path / "q.svg")
    assert "if float" not in (tmp_path / "q.svg").read_text()


def test_clipping_on_purpose_is_no_surprise(digits: tuple[Graph, Graph, Calibration, Data]) -> None:
    """A range that leaves out a part of its own calibration data is told by its share, not by a warning."""
    graph, _, calibration, data = digits
    narrow = {**calibration.ranges}
    known = narrow["body_relu"]
    narrow["body_relu"] = replace(known, high=known.high / 4, method="percentile", clipped=0.1)
    changed = replace(calibration, ranges=narrow)
    found = explain(graph, quantize(graph, changed), changed, data, sensitivity_samples=0)
    (body,) = (t for t in found.tensors if t.name == "body_relu")
    assert body.clipped > 0.001
    assert body.method == "percentile"
    assert not any("'body_relu'" in w for w in found.warnings)


def test_nothing_but_error_is_not_read_back_as_exact(
    digits: tuple[Graph, Graph, Calibration, Data], explanation: Explanation
) -> None:
    bad = replace(explanation, output_sqnr_db=-math.inf)
    found = read_explanation(with_explanation(digits[1], bad))
    assert found is not None
    assert found.output_sqnr_db == explanation_facts(bad)["output_sqnr_db"] == ONLY_ERROR_DB


def test_it_is_stored_and_read_back(
    digits: tuple[Graph, Graph, Calibration, Data], explanation: Explanation, tmp_path: Path
) -> None:
    stored = with_explanation(digits[1], explanation, recipe="fast")
    save_rlx(stored, tmp_path / "d.rlx")
    loaded = load_rlx(tmp_path / "d.rlx")
    found = read_explanation(loaded)
    assert found is not None
    assert explanation_facts(found) == explanation_facts(explanation)
    text = json.loads(loaded.metadata[KEY])
    assert (text["schema"], text["recipe"]) == ("rlx-edge quantization 1", "fast")
    assert [t.scale for t in found.tensors] == [pytest.approx(t.scale, rel=1e-8) for t in explanation.tensors]
    assert all(
        np.float32(a.scale) == np.float32(b.scale) for a, b in zip(found.tensors, explanation.tensors, strict=True)
    )


def test_facts_are_json_and_keep_their_keys(explanation: Explanation) -> None:
    facts = explanation_facts(replace(explanation, output_sqnr_db=math.inf))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["output_sqnr_db"] is None
    assert {"output_sqnr_db", "agreement", "tensors", "layers", "sensitivity"} <= facts.keys()
    assert {"name", "sqnr_db", "scale", "zero_point", "low", "high", "method", "clipped"} == facts["tensors"][0].keys()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("tensors"),
        lambda s: s.update(tensors=[["name"], ["x"]]),
        lambda s: s.update(tensors=[s["tensors"][0], [1, 2]]),
        lambda s: s.update(layers=7),
        lambda s: s.update(top1=[]),
        lambda s: s.update(samples="many"),
        lambda s: s.update(samples=math.inf),
        lambda s: s.update(output_sqnr_db=10**400),
    ],
)
def test_damaged_explanations_give_one_line(
    digits: tuple[Graph, Graph, Calibration, Data], explanation: Explanation, change: Any
) -> None:
    stored = json.loads(with_explanation(digits[1], explanation).metadata[KEY])
    change(stored)
    with pytest.raises(ModelError, match="is damaged"):
        read_explanation(digits[1].with_metadata(**{KEY: json.dumps(stored)}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_other_text_is_no_explanation(digits: tuple[Graph, Graph, Calibration, Data], text: str) -> None:
    with pytest.raises(ModelError, match="is damaged"):
        read_explanation(digits[1].with_metadata(**{KEY: text}))


def test_none_or_another_version_is_none(digits: tuple[Graph, Graph, Calibration, Data]) -> None:
    assert read_explanation(digits[1]) is None
    assert read_explanation(digits[1].with_metadata(**{KEY: '{"schema": "rlx-edge quantization 9"}'})) is None


def test_tables_show_it(explanation: Explanation) -> None:
    with out.capture() as captured:
        for made in (tensors_table(explanation), layers_table(explanation), sensitivity_table(explanation)):
            out.print(made)
    text = captured.get()
    assert all(word in text for word in ("minmax", "body_relu", "alone", "on 48 samples"))
    assert "over 48 samples" in explanation_text(explanation)
    assert "exact" in explanation_text(replace(explanation, output_sqnr_db=math.inf))
    assert [percent(x) for x in (0, 1e-9, 0.00012, 0.5)] == ["0", "<0.0001 %", "0.012 %", "50 %"]
    assert [percent(x) for x in (0.994, 0.999, 1.0)] == ["99 %", "99.9 %", "100 %"]


def test_text_of_a_foreign_file_is_no_markup(explanation: Explanation) -> None:
    odd = "[/]\x1b[31m"
    layers = tuple(replace(layer, name=odd, op=odd) for layer in explanation.layers)
    tensors = tuple(replace(tensor, name=odd, method=odd) for tensor in explanation.tensors)
    with out.capture() as captured:
        out.print(layers_table(replace(explanation, layers=layers)))
        out.print(tensors_table(replace(explanation, tensors=tensors)))
    assert r"[/]\x1b[31m" in captured.get()
    assert "\x1b[31m" not in captured.get()


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_it_is_drawn(explanation: Explanation, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    odd = replace(explanation.layers[0], name="a$b_{;<x>$", sqnr_db=math.inf)
    plot_quality(replace(explanation, layers=(odd, *explanation.layers[1:])), tmp_path / f"q{suffix}")
    content = (tmp_path / f"q{suffix}").read_bytes()
    assert content.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")


def test_what_cannot_be_drawn(explanation: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EdgeError, match="give it such an ending"):
        plot_quality(explanation, tmp_path / "q.bmp")
    with pytest.raises(EdgeError, match="no layers to draw"):
        plot_quality(replace(explanation, layers=()), tmp_path / "q.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(EdgeError, match=r"folder.svg: cannot be written: it is a folder"):
        plot_quality(explanation, tmp_path / "folder.svg")
    monkeypatch.setattr("rlx_edge.report.plots.find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r"pip install 'rlx-edge\[plots\]'"):
        plot_quality(explanation, tmp_path / "q.svg")


@settings(max_examples=25)
@given(image_models())
def test_random_models_are_explained(model: onnx.ModelProto) -> None:
    graph = load_onnx(model.SerializeToString())
    data = Data({n.name: random_array((12, *n.type.shape[1:]), i) for i, n in enumerate(graph.inputs)})
    calibration = calibrate(graph, data)
    int8 = quantize(graph, calibration)
    found = explain(graph, int8, calibration, data)
    measured = quality(graph, int8, data)
    assert (found.output_sqnr_db, found.agreement) == (measured.output_sqnr_db, measured.agreement)
    assert len(found.sensitivity) == len(found.layers)
    again = read_explanation(with_explanation(int8, found))
    assert again is not None
    assert json.dumps(explanation_facts(again)) == json.dumps(explanation_facts(found))
    for layer in found.layers:
        assert layer.isolated_db > 0
