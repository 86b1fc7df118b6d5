"""The calibration methods on whole models: what they keep of the outputs, that calls repeat, and what they may take."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model, random_array

from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError
from rlx_edge.formats import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Graph
from rlx_edge.passes.fuse import find_fusions, fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import batches as batches_module
from rlx_edge.quant import calibrate, quality, quantize
from rlx_edge.quant.observers_methods import OBSERVERS

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
SHARED = Path(__file__).resolve().parents[2] / "shared"
needs_shared = pytest.mark.skipif(
    not (SHARED / "models" / "mnist_dw_float.tflite").is_file(), reason="no ../shared/models beside the repository"
)

LEAST_DB = {"minmax": 24.5, "ema": 25.0, "percentile": 28.5, "mse": 28.5, "entropy": 28.0, "auto": 28.0}
"""On mnist_dw; what ONNX Runtime reaches by min-max is 24.6 dB, by percentile 29.3."""


@cache
def digits() -> tuple[Graph, Data, Data]:
    graph = load(DIGITS / "digits.onnx")
    return graph, *(load_data(DIGITS / f"digits_{name}.npz", graph) for name in ("calibration", "test"))


@cache
def mnist_dw() -> tuple[Graph, Data, Data]:
    """The first 128 samples with an even index to calibrate on, 1000 with an odd one to test on."""
    graph = load(SHARED / "models" / "mnist_dw_float.tflite")
    with np.load(SHARED / "data" / "mnist.npz") as file:
        x = file["x"].astype(np.float32) / 255
    name = graph.inputs[0].name
    return graph, Data({name: x[:256:2]}), Data({name: x[1:2001:2]})


@pytest.mark.parametrize("observer", OBSERVERS)
def test_every_method_keeps_the_digits(observer: str) -> None:
    graph, data, test = digits()
    found = quality(graph, quantize(graph, calibrate(graph, data, observer)), test)
    assert found.output_sqnr_db > 30
    assert found.agreement is not None and found.agreement > 0.99


@needs_shared
@pytest.mark.parametrize("observer", OBSERVERS)
def test_no_method_breaks_a_depthwise_net(observer: str) -> None:
    graph, data, test = mnist_dw()
    found = quality(graph, quantize(graph, calibrate(graph, data, observer)), test)
    assert found.output_sqnr_db > LEAST_DB[observer]
    assert found.agreement is not None and found.agreement >= 0.98


@needs_shared
def test_search_serves_the_outputs() -> None:
    graph, data, test = mnist_dw()
    done: list[tuple[int, int]] = []
    found = calibrate(graph, data, "auto", progress=lambda i, n: done.append((i, n)), search=True)
    searched = quality(graph, quantize(graph, found), test).output_sqnr_db
    assert searched > quality(graph, quantize(graph, calibrate(graph, data, "auto")), test).output_sqnr_db
    assert found.ranges == calibrate(graph, data, "auto", search=True).ranges
    assert done[-1][0] == done[-1][1]


def test_ranges_tell_how_they_were_made() -> None:
    graph, data, _ = digits()
    found = calibrate(graph, data, "mse")
    prepared = prepare(graph)
    inside = fused_away(prepared, find_fusions(prepared))
    for node in prepared.nodes:
        if node.name in found.ranges:
            known, seen = found.ranges[node.name], found.seen[node.name]
            assert seen.count == len(data) * node.type.elements
            assert min(seen.low, 0) <= known.low <= known.high <= max(seen.high, 0)
            if node.id in inside:
                assert (known.method, known.sqnr_db) == ("minmax", None)
    methods = {known.method for known in found.ranges.values()}
    assert methods == {"minmax", "mse"}


@pytest.mark.parametrize("observer", OBSERVERS)
def test_a_call_repeats_bit_for_bit_and_batches_hardly_matter(observer: str) -> None:
    graph, data, _ = digits()
    whole = calibrate(graph, data, observer)
    assert calibrate(graph, data, observer).ranges == whole.ranges
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "BATCH", 5)
        other = calibrate(graph, data, observer)
    for name, known in whole.ranges.items():
        assert other.seen[name].low == pytest.approx(whole.seen[name].low, rel=1e-6)
        assert other.seen[name].high == pytest.approx(whole.seen[name].high, rel=1e-6)
        assert other.ranges[name].low == pytest.approx(known.low, rel=1e-3, abs=1e-6)
        assert other.ranges[name].high == pytest.approx(known.high, rel=1e-3, abs=1e-6)


def test_a_tensor_that_no_input_reaches_counts_once() -> None:
    """What follows from constants alone has no batch; its range is its values' whatever the method."""
    nodes = [
        helper.make_node("Relu", ["k"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    constant = random_array((1, 3, 4))
    graph = load_onnx(make_model(nodes, {"x": (1, 3, 4)}, ["y"], {"k": constant}).SerializeToString())
    found = calibrate(graph, Data({"x": random_array((40, 3, 4))}), "percentile:99")
    assert found.ranges["y"].clipped > 0
    if "r" in found.ranges:
        assert found.ranges["r"].high == constant.max()


@pytest.mark.parametrize("shape", [(1, 4, 3), (4, 3)])
def test_a_moving_average_is_over_samples_whatever_their_shape(shape: tuple[int, ...]) -> None:
    """A first axis that is no batch belongs to the sample; samples then run one at a time."""
    graph = load_onnx(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"]).SerializeToString())
    values = random_array((64, 4, 3))
    first, second = values[:32].max(), values[32:].max()
    found = calibrate(graph, Data({"x": values}), "ema").ranges["y"]
    assert found.high == pytest.approx((0.9 * first + second) / 1.9, rel=1e-6)


def test_observers_that_do_not_exist_are_refused_before_the_model_runs() -> None:
    graph, data, _ = digits()
    with pytest.raises(EdgeError, match=r"no observer 'median'; there are minmax, ema, percentile, mse, entropy, auto"):
        calibrate(graph, data, "median")


MEASURE = """
import resource, sys
import numpy as np
from rlx_edge.data import Data
from rlx_edge.formats import load
from rlx_edge.quant import calibrate
graph = load(sys.argv[1])
one = np.random.default_rng(0).random((1, *graph.inputs[0].type.shape[1:]), np.float32)
samples = Data({graph.inputs[0].name: np.broadcast_to(one, (int(sys.argv[2]), *one.shape[1:]))})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
calibrate(graph, samples, sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("observer", ["minmax", "auto"])
def test_memory_does_not_grow_with_the_samples(observer: str) -> None:
    """Peak memory, in KiB, of calibrations on samples that are one array seen many times."""
    taken = []
    for count in (64, 4096):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(DIGITS / "digits.onnx"), str(count), observer],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        taken.append(int(done.stdout))
    assert taken[1] < taken[0] + 8 * 1024
