"""Weights of few bits: never worse than rounding to nearest, exact where that is possible, and good on a real model."""

from __future__ import annotations

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
from rlx_edge.formats.load import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.quant import quality
from rlx_edge.quant.batches import batches
from rlx_edge.quant.compensate import (
    FRACTIONS,
    Problem,
    best_weights,
    elimination,
    round_in_turn,
    solve,
)
from rlx_edge.quant.quantize import apply_recipe
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.rounding import damped
from rlx_edge.quant.schemes import WEIGHT_DTYPES, WEIGHT_MAX
from rlx_edge.quant.widths import MSE, NEAREST, LayerRule, everywhere
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import quantize_f32

DIGITS = Path(__file__).parents[1] / "examples" / "digits"

sizes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9))
seeds = st.integers(0, 2**32 - 1)


def moments_of(rng: np.random.Generator, groups: int, count: int) -> Array:
    """Second moments of correlated inputs, of which some hardly vary."""
    mixing = rng.standard_normal((groups, count, count)) * 10.0 ** rng.integers(-2, 1, (groups, count, 1))
    x = rng.standard_normal((groups, 40, count)) @ mixing
    return damped(np.matmul(x.transpose(0, 2, 1), x) / 40, 0.03)


@given(seeds, sizes, st.sampled_from([8, 4, 3, 2]))
def test_the_solution_is_no_worse_than_nearest_at_any_scale(seed: int, size: tuple[int, int, int], bits: int) -> None:
    groups, outputs, count = size
    rng, most = np.random.default_rng(seed), WEIGHT_MAX[bits]
    exact = rng.standard_normal(size)
    problem = Problem(exact, moments_of(rng, groups, count), np.full((groups, outputs), 1e-9), most)
    codes, scales = solve(problem, FRACTIONS[bits])
    assert np.array_equal(codes, np.rint(codes)) and np.abs(codes).max() <= most and (scales > 0).all()
    largest = np.abs(exact).max(axis=2) / most
    nearest = np.clip(np.rint(exact / largest[..., None]), -most, most)
    assert (problem.error(codes, scales) <= problem.error(nearest, largest)).all()


@given(seeds, sizes, st.sampled_from([8, 4, 3, 2]))
def test_weights_on_the_grid_are_found(seed: int, size: tuple[int, int, int], bits: int) -> None:
    rng, most = np.random.default_rng(seed), WEIGHT_MAX[bits]
    codes = rng.integers(-most, most + 1, size)
    codes[..., 0] = most
    scales = rng.uniform(0.1, 2.0, size[:2])
    problem = Problem(codes * scales[..., None], moments_of(rng, size[0], size[2]), np.full(size[:2], 1e-9), most)
    found, found_scales = solve(problem, FRACTIONS[bits])
    assert np.array_equal(found, codes) and np.allclose(found_scales, scales)


@given(seeds, sizes, st.sampled_from([4, 3, 2]))
def test_a_shared_scale_is_one(seed: int, size: tuple[int, int, int], bits: int) -> None:
    rng, most = np.random.default_rng(seed), WEIGHT_MAX[bits]
    exact, least = rng.standard_normal(size), np.full(size[:2], 1e-9)
    moments = moments_of(rng, size[0], size[2])
    codes, scales = solve(Problem(exact, moments, least, most, shared=True), FRACTIONS[bits])
    assert len(np.unique(scales)) == 1 and np.abs(codes).max() <= most
    own = Problem(exact, moments, least, most)
    free_codes, free = solve(own, FRACTIONS[bits])
    assert own.error(free_codes, free).sum() <= own.error(codes, scales).sum() * 1.3 + 1e-12


@pytest.mark.parametrize("bits", WEIGHT_MAX)
@pytest.mark.parametrize("method", [NEAREST, MSE, "adaptive", "gptq"])
def test_every_method_takes_every_width(method: str, bits: int) -> None:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:32")
    found = apply_recipe(graph, data, Recipe(bias_correction=True, weights=everywhere(bits, method))).graph
    assert quality(graph, found, data).output_sqnr_db > {8: 30, 4: 10, 3: 3, 2: -10}[bits]


@pytest.mark.parametrize("method", [NEAREST, MSE, "adaptive", "gptq"])
def test_layers_with_one_scale(method: str) -> None:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:32")
    rules = (LayerRule("*", 4), LayerRule(":dense", 4, method, "tensor"))
    found = apply_recipe(graph, data, Recipe(bias_correction=True, weights=rules)).graph
    for node in found.nodes:
        if isinstance(node.op, QConv2d | QMatMul):
            quant = found.operand_types(node)[1].quant
            assert quant is not None and (quant.axis is None) == isinstance(node.op, QMatMul)
    assert quality(graph, found, data).output_sqnr_db > 15


@given(seeds, sizes)
def test_blocks_change_nothing(seed: int, size: tuple[int, int, int]) -> None:
    """Rounding in turn, written plainly: after each weight, the rest moves to its least-squares best given those."""
    rng, most = np.random.default_rng(seed), 7
    exact, scales = rng.standard_normal(size), rng.uniform(0.1, 0.5, size[:2])
    moments = moments_of(rng, size[0], size[2])
    order, factor = elimination(moments)
    found = round_in_turn(exact, scales, order, factor, most)
    for group in range(size[0]):
        for output in range(size[1]):
            wanted, target = np.zeros(size[2]), exact[group, output].copy()
            left = list(order[group])
            while left:
                k = left.pop(0)
                wanted[k] = np.clip(np.rint(target[k] / scales[group, output]), -most, most)
                error = target[k] - wanted[k] * scales[group, output]
                if left:
                    target[left] += error * np.linalg.solve(moments[group][np.ix_(left, left)], moments[group][left, k])
            assert np.abs(found[group, output] - wanted).max() <= 1  # a tie may fall the other way
            assert np.count_nonzero(found[group, output] != wanted) <= 1


@given(seeds, sizes)
def test_inputs_that_lost_half_want_weights_of_twice_the_size(seed: int, size: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(seed)
    exact, moments = rng.standard_normal(size), moments_of(rng, size[0], size[2])
    alike = best_weights(exact, moments, moments)
    assert np.allclose(alike, exact)
    lost = best_weights(exact, moments / 4, moments / 2)
    assert np.linalg.norm(lost) > np.linalg.norm(exact) * 1.01


def test_layers_that_see_nothing_are_still_quantized() -> None:
    zero = np.zeros((1, 3, 3))
    exact = np.ones((1, 2, 3))
    assert np.allclose(best_weights(exact, zero, zero), exact)


def test_inputs_that_hardly_vary_are_quantized() -> None:
    """Squares of their values would leave nothing of their variance in float32."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((16, 8)).astype(np.float32)}
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 16)}, ["y"], weights)
    values = (100 + rng.standard_normal((64, 16)) * 1e-2).astype(np.float32)
    graph = load_onnx(model.SerializeToString())
    found = apply_recipe(graph, Data({"x": values}), Recipe(bias_correction=True, weights=everywhere(4))).graph
    assert quality(graph, found, Data({"x": values})).output_sqnr_db > 30


def sqnr(weights: int, method: str | None, level: dict[str, bool]) -> float:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:128")
    test = load_data(DIGITS / "digits_test.npz", graph, samples="0:200")
    made = apply_recipe(graph, data, Recipe(weights=everywhere(weights, method), **level))
    return quality(made.float_graph, made.graph, test).output_sqnr_db


def test_each_method_gains_on_a_real_model() -> None:
    corrected = {"bias_correction": True}
    nearest, mse, gptq = sqnr(4, NEAREST, {}), sqnr(4, MSE, corrected), sqnr(4, None, corrected)
    assert nearest + 1 < mse and mse + 2 < gptq and gptq > 20
    assert sqnr(3, None, corrected) < gptq


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_few_bits_run_on_the_host_bit_for_bit(bits: int, tmp_path: Path) -> None:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:32")
    found = apply_recipe(graph, data, Recipe(weights=everywhere(bits))).graph
    (first,) = found.inputs
    assert first.type.quant is not None
    codes = {first.name: quantize_f32(data.inputs[first.name], first.type.quant)}
    (model,) = generate({"m": found}, tmp_path / "bundle")
    host = next(iter(HostModel(model).run(codes).values()))
    (batch,) = batches(Data(codes), found)
    assert np.array_equal(host.reshape(-1), next(iter(run(batch.graphs[0], batch.inputs).values())).reshape(-1))


@given(image_models(), st.sampled_from([8, 4, 3, 2]))
def test_random_models_of_few_bits(model: onnx.ModelProto, bits: int) -> None:
    graph = load_onnx(model.SerializeToString())
    data = Data({n.name: random_array((8, *n.type.shape[1:]), 5) for n in graph.inputs})
    found = apply_recipe(graph, data, Recipe(bias_correction=True, weights=everywhere(bits))).graph
    for node in found.nodes:
        if isinstance(node.op, QConv2d | QMatMul):
            weights = found.operands(node)[1]
            values = found.constant(weights)
            assert weights.type.dtype is WEIGHT_DTYPES[bits]
            assert values is not None and np.abs(values).max() <= WEIGHT_MAX[bits]
