"""The search for bits against brute force, and the noise of widths against whole models."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.data import load_data
from rlx_edge.formats.load import load
from rlx_edge.quant.allocate import Choice, Option, curve, pareto
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.simulate import Simulation
from rlx_edge.quant.width_noise import FULL, batches, judged, measure_noise, spread, values_of

DIGITS = Path(__file__).parents[1] / "examples" / "digits"

options = st.builds(Option, st.sampled_from([8, 4, 2]), *(st.integers(0, 9) for _ in range(2)), st.integers(0, 9))
layers = st.lists(st.lists(options, min_size=1, max_size=3), min_size=1, max_size=5)


def costs(choice: Choice) -> tuple[int, int, float]:
    return choice.flash, choice.instructions, choice.noise


@given(layers)
def test_the_front_is_that_of_all_choices(layers: list[list[Option]]) -> None:
    every = {
        (sum(o.flash for o in picks), sum(o.instructions for o in picks), sum(o.noise for o in picks))
        for picks in product(*layers)
    }
    best = {a for a in every if not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in every)}
    front = pareto(layers)
    assert [costs(choice) for choice in front] == sorted(costs(choice) for choice in front)
    assert {costs(choice) for choice in front} == best and len(front) == len(best)
    for choice in front:
        assert len(choice.bits) == len(layers)
        assert all(bits in {o.bits for o in options} for bits, options in zip(choice.bits, layers, strict=True))


@given(layers)
def test_the_curve_falls(layers: list[list[Option]]) -> None:
    front = pareto(layers)
    found = curve(front)
    assert [c.flash for c in found] == sorted({c.flash for c in found})
    assert all(a.noise > b.noise for a, b in pairwise(found))
    assert min(c.noise for c in front) == found[-1].noise and front[0].flash == found[0].flash


def test_a_long_front_is_thinned_evenly() -> None:
    rng = np.random.default_rng(1)
    sizes, noises = rng.integers(10, 1000, 14), rng.uniform(0.1, 1, 14)
    many = [
        [Option(8, 2 * int(f), 0, 0.0), Option(4, int(f), 1, n * f), Option(2, int(f) // 2, 0, 3 * n * f)]
        for f, n in zip(sizes, noises, strict=True)
    ]
    exact, thinned = pareto(many, most=1 << 20), pareto(many, most=200)
    assert thinned[0].flash == exact[0].flash and thinned[-1].noise == exact[-1].noise
    assert len(thinned) <= 800 < len(exact)
    for choice in exact[:: len(exact) // 10]:  # within 5% of flash there is one that is no worse
        near = min(c.noise for c in thinned if c.flash <= choice.flash * 1.05)
        assert near <= choice.noise * 1.1 + 1


def test_noise_is_that_of_the_model_with_one_layer_changed() -> None:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph, samples="0:40")
    found = measure_noise(graph, calibrate(graph, data), data, Recipe(bias_correction=True), (2, 4))
    output = judged(found.assignment.graph)
    reference = Simulation(found.assignment, frozenset(node.name for node in found.assignment.graph.nodes))
    for node in found.layers:
        assert found.noise[node.id][2] > found.noise[node.id][4] > 0
        changed = Simulation(found.assignment.with_layers({node.id: found.forms[node.id][2]}))
        wanted = 0.0
        for batch in batches(spread(data, 64), found.assignment.graph):
            error = values_of(changed, batch)[output].astype(np.float64) - values_of(reference, batch)[output]
            wanted += float(np.sum(error**2))
        assert found.noise[node.id][2] == pytest.approx(wanted)
    assert found.base > 0 and found.signal > 100 * found.base
    assert all(layer.bits == FULL for layer in found.assignment.layers.values())
    assert {layer.bits for layer in found.with_bits(4).layers.values()} == {4}
