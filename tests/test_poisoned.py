"""Every planted fault is found, and docs/data-hygiene.md quotes what is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx_models import random_array
from poisoned import FAULTS, Fault, attention, digits, document, padded_pool, pixels

from rlx_edge.data import Data
from rlx_edge.formats.load import load
from rlx_edge.ir import Array, QuantParams, with_batch
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import calibrate, quality, quantize
from rlx_edge.quant.check_samples import check_samples
from rlx_edge.quant.observers import Range
from rlx_edge.quant.quality import quantized_inputs
from rlx_edge.quant.schemes import activation_params, quantize_weights
from rlx_edge.reference.run import run, run_all

PAGE = Path(__file__).resolve().parent.parent / "docs" / "data-hygiene.md"
TINY = float(np.finfo(np.float32).tiny)


@pytest.fixture(scope="module")
def messages() -> dict[str, str]:
    return {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_found(fault: Fault, tmp_path: Path, messages: dict[str, str]) -> None:
    found = [text for text in fault.say(tmp_path) if fault.words in text]
    assert found, f"nothing said {fault.words!r}"
    assert "\n" not in found[0]
    messages[fault.name] = found[0]


def test_the_docs_quote_the_messages(messages: dict[str, str], request: pytest.FixtureRequest) -> None:
    if len(messages) < len(FAULTS):
        pytest.skip("needs the messages of all faults: run the whole file")
    text = document(messages)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "run pytest tests/test_poisoned.py --update-golden"


def test_clean_data_are_not_complained_of() -> None:
    assert calibrate(digits(), Data({"x": pixels()})).warnings == ()


@pytest.mark.parametrize("hidden", [-3.4e38, -1e9, -1e4, -np.inf])
def test_a_masked_softmax_stays_good_and_hides_what_it_should(hidden: float) -> None:
    graph, data = attention(hidden), Data({"x": 2 * random_array((64, 6, 6))})
    int8 = quantize(graph, calibrate(graph, data))
    found = quality(graph, int8, data)
    assert found.output_sqnr_db > 30
    assert {t.name: t.sqnr_db for t in found.tensors}["y"] > 35
    probabilities = run_all(with_batch(int8, 64), quantized_inputs(int8, data.inputs))["y"]
    assert np.all(probabilities[:, *np.triu_indices(6, 1)] == -128)


def test_infinite_masks_become_finite_and_mean_the_same() -> None:
    graph, x = attention(-np.inf), {"x": 5 * random_array((1, 6, 6))}
    prepared = prepare(graph)
    assert all(np.isfinite(values).all() for values in prepared.params.values())
    np.testing.assert_array_equal(run(prepared, x)["y"], run(graph, x)["y"])


def test_pooling_over_a_mask_is_as_good_as_without() -> None:
    graph, data = padded_pool(), Data({"x": pixels()})
    assert quality(graph, quantize(graph, calibrate(graph, data)), data).output_sqnr_db > 40


SIZES = [float(np.float32(size)) for size in (0.0, 1e-45, 1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e30, 3e38)]
HOSTILE = st.sampled_from(SIZES).flatmap(lambda size: st.floats(-size, size, width=32))


def assert_normal(params: QuantParams) -> None:
    for scale in params.scales:
        assert np.isfinite(np.float32(scale))
        assert np.float32(scale) >= TINY
    assert all(-128 <= zero <= 127 for zero in params.zero_points)


@given(st.lists(HOSTILE, min_size=2, max_size=2))
def test_no_activation_scale_is_ever_abnormal(bounds: list[float]) -> None:
    assert_normal(activation_params(Range(min(bounds), max(bounds))))


@given(
    hnp.arrays(np.float32, (3, 4), elements=HOSTILE),
    hnp.arrays(np.float64, 3, elements=HOSTILE),
    st.lists(HOSTILE, min_size=2, max_size=2),
)
def test_no_weight_or_bias_scale_is_ever_abnormal(weights: Array, bias: Array, bounds: list[float]) -> None:
    x = activation_params(Range(min(bounds), max(bounds)))
    made = quantize_weights(weights, 0, bias, x.scale)
    assert_normal(made.weight_params)
    assert_normal(made.bias_params)
    assert np.all(np.abs(made.weights.astype(int)) <= 127)


SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
@pytest.mark.parametrize(("name", "raw"), [("ic", False), ("vww", True), ("mnist_dw", True), ("mnist_resnet", True)])
def test_pixels_are_told_from_what_a_model_was_made_for(name: str, raw: bool) -> None:
    """ic takes 0..255, the others 0..1."""
    graph = load(SHARED / f"{name}_float.tflite")
    values = np.random.default_rng(0).integers(0, 256, (4, *graph.inputs[0].type.shape[1:])).astype(np.float32)
    prepared = prepare(graph)
    (node,) = graph.inputs
    assert any("raw pixels" in text for text in check_samples(prepared, Data({node.name: values}))) == raw
    assert check_samples(prepared, Data({node.name: values / 255})) == ()
