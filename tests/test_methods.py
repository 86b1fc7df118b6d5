"""Each method beyond rounding to nearest does what it says, and what it makes runs bit for bit on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx_models import make_model, random_array
from random_models import image_models

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.data import Data, load_data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.formats.load import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import calibrate, quality, quantize
from rlx_edge.quant.assign import Assignment, assign
from rlx_edge.quant.batches import batches
from rlx_edge.quant.bias_correction import correct_bias
from rlx_edge.quant.equalize import choose_factors, equalize, find_groups
from rlx_edge.quant.headroom import bound, widen
from rlx_edge.quant.layerwise import LayerInputs, Walk, improve, live_bytes
from rlx_edge.quant.quantize import apply_recipe
from rlx_edge.quant.recipe import ADAPTIVE, EFFORTS, Recipe, effort
from rlx_edge.quant.rounding import as_matrices, damped, descend, from_matrices
from rlx_edge.quant.simulate import simulate
from rlx_edge.reference import fast, run, run_all
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Data, Data]:
    """The example's float model, its calibration data and its test data."""
    graph = load(DIGITS / "digits.onnx")
    names = ("digits_calibration.npz", "digits_test.npz")
    return graph, *(load_data(DIGITS / name, graph, samples="0:128") for name in names)


def made(model: onnx.ModelProto, count: int = 32) -> tuple[Graph, Data]:
    graph = prepare(load_onnx(model.SerializeToString()))
    return graph, Data({n.name: random_array((count, *n.type.shape[1:]), 5) for n in graph.inputs})


def outputs(graph: Graph, data: Data) -> list[Array]:
    """The first output for each batch."""
    return [next(iter(run(batch.graphs[0], batch.inputs).values())) for batch in batches(data, graph)]


def sqnr_db(expected: Array, found: Array) -> float:
    noise = float(np.sum((expected.astype(np.float64) - found) ** 2))
    return float("inf") if noise == 0 else float(10 * np.log10(np.sum(expected.astype(np.float64) ** 2) / noise))


def stored(graph: Graph, assignment: Assignment, data: Data, keep: frozenset[str] = frozenset()) -> dict[str, Array]:
    """Every stored tensor of the simulated model, over all data."""
    found: dict[str, list[Array]] = {}
    for batch in batches(data, graph):
        simulate(
            assignment, batch.graphs[0], batch.inputs, lambda n, v: found.setdefault(n.name, []).append(v.copy()), keep
        )
    return {name: np.concatenate(values) for name, values in found.items()}


def test_the_simulation_is_the_int8_model_up_to_its_rounding(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, test = digits
    prepared = prepare(graph)
    assignment = assign(prepared, calibrate(graph, calibration).ranges)
    int8 = quantize(graph, calibrate(graph, calibration))
    simulated = stored(prepared, assignment, test)
    (batch,) = batches(replace(test, inputs={k: v[:32] for k, v in test.inputs.items()}), int8)
    quant = {node.name: node.type.quant for node in int8.nodes}
    codes = {name: quantize_f32(v, q) for name, v in batch.inputs.items() if (q := quant[name]) is not None}
    logits = prepared.nodes[prepared.output_nodes[0].inputs[0]].name
    for name, value in run_all(batch.graphs[0], codes).items():
        if name in simulated and (q := quant[name]) is not None:
            real = dequantize_f32(value, q)
            assert sqnr_db(real, simulated[name][:32]) > 38, name
            assert np.abs(real - simulated[name][:32]).max() <= 2.01 * q.scale, name
            if name == logits:
                assert np.array_equal(real.argmax(-1), simulated[name][:32].argmax(-1))


def test_a_simulation_that_keeps_everything_float_is_the_float_model(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, test = digits
    prepared = prepare(graph)
    assignment = assign(prepared, calibrate(graph, calibration).ranges)
    everything = frozenset(node.name for node in prepared.nodes)
    found = stored(prepared, assignment, test, everything)[prepared.output_nodes[0].name]
    expected = np.concatenate(outputs(prepared, test))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_layer_kept_float_has_less_noise(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, test = digits
    prepared = prepare(graph)
    assignment = assign(prepared, calibrate(graph, calibration).ranges)
    first = next(node for node in prepared.nodes if node.id in assignment.layers).name
    exact: list[Array] = []
    for batch in batches(test, prepared):
        fast.observe(batch.graphs[0], batch.inputs, lambda n, v: exact.append(v.copy()) if n.name == first else None)
    expected = np.concatenate(exact)
    kept = stored(prepared, assignment, test, frozenset({first}))[first]
    assert sqnr_db(expected, kept) > 3 + sqnr_db(expected, stored(prepared, assignment, test)[first])


@given(image_models())
def test_equalization_keeps_the_float_function(model: onnx.ModelProto) -> None:
    graph, data = made(model, 4)
    changed = equalize(graph, data)
    for a, b in zip(outputs(graph, data), outputs(changed, data), strict=True):
        assert np.abs(a - b).max() <= 2e-5 * max(1.0, float(np.abs(a).max()))
    assert [n.name for n in changed.output_nodes] == [n.name for n in graph.output_nodes]
    named = {node.name for node in graph.nodes if node.inputs}
    assert {node.name for node in changed.nodes if node.inputs} <= named


def conv(x: str, name: str, channels: tuple[int, int], constants: dict[str, Array], groups: int = 1) -> onnx.NodeProto:
    """A 1x1 convolution whose output channels have very different ranges."""
    w = random_array((channels[1], channels[0] // groups, 1, 1), len(constants))
    constants[f"{name}.w"] = w * (10.0 ** -np.arange(channels[1], dtype=np.float32)).reshape(-1, 1, 1, 1)
    constants[f"{name}.b"] = random_array((channels[1],), 7) * 10.0 ** -np.arange(channels[1], dtype=np.float32)
    return helper.make_node("Conv", [x, f"{name}.w", f"{name}.b"], [name], group=groups)


def chain(*middle: onnx.NodeProto, last: str = "a", groups: int = 1, width: int = 3) -> tuple[Graph, Data]:
    """conv a -> the nodes given -> conv y."""
    constants: dict[str, Array] = {"six": np.float32(6), "zero": np.float32(0)}
    first = conv("x", "a", (2, 3), constants)
    nodes = [first, *middle, conv(last, "y", (3, width), constants, groups)]
    return made(make_model(nodes, {"x": (1, 2, 4, 4)}, ["y"], constants))


@pytest.mark.parametrize(
    ("middle", "last", "groups", "width"),
    [
        ((), "a", 1, 3),
        ((helper.make_node("Relu", ["a"], ["r"]),), "r", 3, 3),
        ((helper.make_node("Relu", ["a"], ["r"]),), "r", 3, 6),
        ((helper.make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2]),), "p", 1, 2),
        ((helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Add", ["a", "r"], ["s"])), "s", 1, 2),
    ],
    ids=["nothing", "relu, depthwise", "relu, depthwise twice as wide", "pool", "residual"],
)
def test_factors_move_through_what_is_homogeneous(
    middle: tuple[onnx.NodeProto, ...], last: str, groups: int, width: int
) -> None:
    graph, data = chain(*middle, last=last, groups=groups, width=width)
    assert len(find_groups(graph)) == 1
    before, after = (calibrate(g, data).seen["a"] for g in (graph, equalize(graph, data)))
    spread = [float((widths := s.channel_high - s.channel_low).max() / widths.min()) for s in (before, after)]
    assert spread[1] < spread[0] / 4
    for a, b in zip(outputs(graph, data), outputs(equalize(graph, data), data), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("middle", "last"),
    [
        ((helper.make_node("Clip", ["a", "zero", "six"], ["c"]),), "c"),
        ((helper.make_node("Sigmoid", ["a"], ["s"]),), "s"),
        ((helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Mul", ["a", "r"], ["m"])), "m"),
        ((helper.make_node("Softmax", ["a"], ["s"], axis=1),), "s"),
    ],
    ids=["clamp", "sigmoid", "product", "softmax"],
)
def test_factors_stop_at_what_is_not_homogeneous(middle: tuple[onnx.NodeProto, ...], last: str) -> None:
    graph, _ = chain(*middle, last=last)
    assert find_groups(graph) == []


@pytest.mark.parametrize("level", EFFORTS)
def test_bad_data_are_told_alike_by_every_effort(digits: tuple[Graph, Data, Data], level: str) -> None:
    """Equalization runs on the data before calibration: it may not spread what is wrong with them into weights."""
    graph, data, _ = digits
    bad = data.inputs["x"][:8].copy()
    bad[5, 0, 2, 3] = np.nan
    with pytest.raises(DataError, match=r"input 'x' holds NaN in sample 5 at \[0, 2, 3\]"):
        apply_recipe(graph, Data({"x": bad}), effort(level))
    large = make_model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "v"], ["y"]),
        ],
        {"x": (1, 4)},
        ["y"],
        {"w": np.full((4, 4), 3e38, np.float32), "v": np.eye(4, dtype=np.float32)},
    )
    given = Data({"x": np.array([[0.1, 0, 0, 0], [9, 9, 9, 9]], np.float32)})
    with pytest.raises(DataError, match="'a' is infinite for sample 1, whose inputs are finite"):
        apply_recipe(load_onnx(large.SerializeToString()), given, effort(level))


def test_inputs_and_outputs_are_not_scaled() -> None:
    constants: dict[str, Array] = {}
    nodes = [conv("x", "a", (3, 3), constants), conv("a", "y", (3, 3), constants)]
    graph, _ = made(make_model(nodes, {"x": (1, 3, 2, 2)}, ["y", "a"], constants))
    assert find_groups(graph) == []


def test_a_silent_channel_is_not_blown_up() -> None:
    factors = choose_factors([np.array([1.0, 1e-9, 0.25])], 3)
    assert factors.tolist() == [1.0, 1 / 32, 0.5]
    assert choose_factors([np.zeros(2)], 2).tolist() == [1.0, 1.0]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6))
def test_descent_never_loses_to_nearest(seed: int, groups: int, rows: int, inputs: int) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.uniform(-127, 127, (groups, rows, inputs))
    x = rng.standard_normal((groups, 8, inputs)) @ rng.standard_normal((groups, inputs, inputs))
    moments = damped(np.matmul(x.transpose(0, 2, 1), x) / 8)
    nearest = np.rint(exact)
    codes = descend(exact, nearest, moments, 127)

    def cost(codes: Array) -> Array:
        return np.einsum("gok,gkl,gol->go", exact - codes, moments, exact - codes)

    assert np.array_equal(codes, np.rint(codes)) and np.abs(codes).max() <= 127
    assert np.all(cost(codes) <= cost(nearest) * (1 + 1e-9) + 1e-12)
    step = np.zeros(inputs)
    step[seed % inputs] = 1
    for moved in (codes + step, codes - step):  # No single weight can be improved.
        inside = np.abs(moved).max(axis=2) <= 127
        assert np.all((cost(moved) >= cost(codes) * (1 - 1e-6) - 1e-9) | ~inside)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_weights_become_matrices_and_back(groups: int) -> None:
    constants: dict[str, Array] = {}
    graph, _ = made(make_model([conv("x", "y", (6, 6), constants, groups)], {"x": (1, 6, 2, 2)}, ["y"], constants))
    (anchor,) = (node for node in graph.nodes if node.op.kind_name == "Conv")
    weights = random_array((6, 1, 1, 6 // groups))
    matrices = as_matrices(anchor, weights)
    assert matrices.shape == (groups, 6 // groups, 6 // groups)
    assert np.array_equal(from_matrices(anchor, matrices, weights.shape), weights)


@pytest.mark.parametrize("size", [1e-8, 1e19])
def test_adaptive_rounding_does_not_depend_on_the_size_of_values(size: float) -> None:
    """Squares of 1e20 are no float32 numbers, nor are those of 1e-23."""
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 8)}, ["y"], {"w": random_array((8, 4), 1)}
    )
    graph, values = load_onnx(model.SerializeToString()), random_array((64, 8), 2)
    codes = []
    for factor in (1.0, size):
        int8 = apply_recipe(graph, Data({"x": values * np.float32(factor)}), Recipe(rounding=ADAPTIVE)).graph
        codes.append(next(int8.params[name] for name in int8.params if name == "w"))
    assert np.count_nonzero(codes[0] != codes[1]) <= 1  # Ties.


def test_a_corrected_layer_has_no_mean_error(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    prepared = prepare(graph)
    assignment = assign(prepared, calibrate(graph, calibration).ranges)
    walk = Walk(improve(assignment, calibration, [correct_bias]), calibration)
    for node in walk.nodes:
        if node.id in assignment.layers:
            inputs = LayerInputs(walk, node)
            steps = np.array(inputs.layer.bias_params.scales)
            assert np.all(np.abs(inputs.mean_error()) <= 0.51 * steps + 1e-5)
        walk.step(node)
    assert set(walk.quantized) == set(walk.exact) == set()  # Nothing is held longer than it is read.


def test_a_walk_holds_what_its_memory_allows(digits: tuple[Graph, Data, Data], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, calibration, _ = digits
    prepared = prepare(graph)
    monkeypatch.setattr("rlx_edge.quant.layerwise.MEMORY_BYTES", 20 * live_bytes(prepared))
    walk = Walk(assign(prepared, calibrate(graph, calibration).ranges), calibration)
    assert sum(batch.count for batch in walk.chunks) == 10


@given(st.integers(0, 2**32 - 1), st.sampled_from(["normal", "exponential", "laplace"]), st.integers(1, 2000))
def test_headroom_only_widens_and_stays_near(seed: int, kind: str, count: int) -> None:
    values = getattr(np.random.default_rng(seed), kind)(size=count).astype(np.float32)
    chosen = bound(values, 0.0)
    assert values.max() <= chosen <= values.max() + 8 * np.ptp(values)


def test_headroom_covers_what_is_to_come() -> None:
    values = np.random.default_rng(0).exponential(size=40_000).astype(np.float32)
    seen, to_come = values[:1000], values[1000:]
    chosen = bound(seen, 0.0)
    cut = [float(np.mean(np.maximum(to_come - high, 0) ** 2)) for high in (float(seen.max()), chosen)]
    steps = [high / 255 for high in (float(seen.max()), chosen)]
    assert cut[1] + steps[1] ** 2 / 12 < 0.75 * (cut[0] + steps[0] ** 2 / 12)
    assert bound(np.zeros(1000, np.float32), 0.0) == 0
    assert bound(np.arange(8, dtype=np.float32), 0.0) == 7


def test_headroom_is_told_in_the_range(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    before = calibrate(graph, calibration)
    after = widen(graph, before, calibration)
    changed = [name for name in before.ranges if before.ranges[name] != after.ranges[name]]
    assert changed
    for name in changed:
        assert after.ranges[name].method == "minmax + headroom"
        assert after.ranges[name].low <= before.ranges[name].low
        assert after.ranges[name].high >= before.ranges[name].high


@pytest.mark.parametrize("name", EFFORTS)
def test_every_effort_runs_on_the_host_bit_for_bit(digits: tuple[Graph, Data, Data], name: str, tmp_path: Path) -> None:
    graph, calibration, test = digits
    seen: list[tuple[str, int, int]] = []
    found = apply_recipe(graph, calibration, effort(name), progress=lambda *step: seen.append(step))
    assert {stage for stage, _, _ in seen} >= {"calibrating"}
    assert all(0 < done <= total for _, done, total in seen)
    assert all(node.type.dtype in (DType.I8, DType.I32) for node in found.graph.nodes)
    few = Data({k: v[:16] for k, v in test.inputs.items()})
    codes = {n.name: quantize_f32(few.inputs[n.name], q) for n in found.graph.inputs if (q := n.type.quant)}
    (model,) = generate({"m": found.graph}, tmp_path / "bundle")
    host = next(iter(HostModel(model).run(codes).values()))
    (batch,) = batches(Data(codes), found.graph)
    assert np.array_equal(host.reshape(-1), next(iter(run(batch.graphs[0], batch.inputs).values())).reshape(-1))


def test_more_effort_loses_less(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, test = digits
    found = {n: quality(graph, apply_recipe(graph, calibration, r).graph, test) for n, r in EFFORTS.items()}
    assert found["balanced"].output_sqnr_db > found["fast"].output_sqnr_db + 1
    assert found["best"].output_sqnr_db > found["balanced"].output_sqnr_db


@given(image_models())
def test_random_models_take_the_best_recipe(model: onnx.ModelProto) -> None:
    graph, data = made(model, 8)
    found = apply_recipe(graph, data, EFFORTS["best"])
    assert [n.name for n in found.graph.output_nodes] == [n.name for n in graph.output_nodes]
    for name, values in found.graph.params.items():
        if name in graph.params and values.dtype == np.int8 and values.ndim in (2, 4):
            assert values.min() >= -128


def test_a_recipe_without_its_data_is_refused(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    ranges = calibrate(graph, calibration)
    for recipe in (Recipe(bias_correction=True), Recipe(rounding=ADAPTIVE)):
        assert recipe.needs_data
        with pytest.raises(EdgeError, match="give the calibration's too"):
            quantize(graph, ranges, recipe=recipe)
    with pytest.raises(EdgeError, match=r"equalizes, but .* was not"):
        quantize(graph, ranges, recipe=Recipe(equalize=True), data=calibration)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(EdgeError, match="no effort 'most'; there are fast, balanced, best"):
        effort("most")
    with pytest.raises(EdgeError, match="no rounding 'up'; there are nearest, mse, adaptive, gptq"):
        Recipe(rounding="up")


def test_quantize_by_hand_is_the_recipe(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    recipe = EFFORTS["best"]
    changed = equalize(graph, calibration)
    ranges = widen(changed, calibrate(changed, calibration), calibration)
    by_hand = quantize(changed, ranges, recipe=recipe, data=calibration)
    found = apply_recipe(graph, calibration, recipe).graph
    assert [n.type for n in by_hand.nodes] == [n.type for n in found.nodes]
    assert all(np.array_equal(v, found.params[k]) for k, v in by_hand.params.items())
