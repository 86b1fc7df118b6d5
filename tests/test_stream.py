"""Depth-first stages: rows made once, in rings just large enough, and the same bits as without."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from models import ModelMaker, random_model, samples
from test_memory import run_guarded, simulate

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.cgen.options import Options
from rlx_edge.cgen.plan import Plan, Step, View
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.simulate_memory import UnsafePlanError
from rlx_edge.cgen.target import TARGETS
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, Requant
from rlx_edge.ir.ops import Layout, Pool, ReduceOp
from rlx_edge.reference import run_all

PORTABLE = TARGETS["portable"]
SMALLEST = Options(ram_budget=0)
BUDGETS = 6 if os.environ.get("RLX_EDGE_TESTS") == "long" else 3
"""So many between the smallest and enough for everything, about."""


def chain(seed: int) -> Graph:
    """Convolutions and depthwise ones with strides, then the mean of the image and a classifier."""
    maker = ModelMaker("chain", seed)
    rng = maker.rng
    x = maker.input((1, int(rng.integers(12, 20)), int(rng.integers(6, 12)), 1))
    width = int(rng.integers(8, 13))
    x = maker.conv(x, width, int(rng.integers(1, 5)), name="stem")
    for i, stride in enumerate((1, int(rng.integers(1, 3)), 1)):
        x = maker.conv(x, width, groups=width, stride=stride, name=f"depthwise{i}")
        width = int(rng.integers(8, 13))
        x = maker.conv(x, width, 1, name=f"pointwise{i}")
    return maker.builder.build([maker.softmax(maker.dense(maker.flatten(_image_mean(maker, x)), 4))])


def residual(seed: int) -> Graph:
    """Two residual blocks, the second with a stride and a convolution beside it."""
    maker = ModelMaker("residual", seed)
    x = maker.conv(maker.input((1, 16, 12, 3)), 6, name="stem")
    x = maker.add(x, maker.conv(maker.conv(x, 6, name="a"), 6, name="b"), "sum")
    beside = maker.conv(x, 8, 1, 2, name="beside")
    x = maker.add(beside, maker.conv(maker.conv(x, 8, stride=2, name="c"), 8, name="d"), "sum2")
    return maker.builder.build([_image_mean(maker, x)])


def _image_mean(maker: ModelMaker, x: int) -> int:
    _, height, width, _ = maker.builder[x].type.shape
    op = Pool(ReduceOp.MEAN, (height, width), (height, width), (0, 0), Layout.NHWC, requant=Requant.TFLM)
    return maker.builder.add(op, [x], "mean", maker.quant_of(x))


MODELS = [(chain, 0), (chain, 1), (residual, 0)]
ids = [f"{make.__name__}{seed}" for make, seed in MODELS]


@cache
def smallest_plan(make: Callable[[int], Graph], seed: int) -> Plan:
    return make_plan(make(seed), PORTABLE, SMALLEST)


def stages(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.lines]


@pytest.mark.parametrize(("make", "seed"), MODELS, ids=ids)
def test_smallest_plan_gives_the_same_bits(make: Callable[[int], Graph], seed: int, tmp_path: Path) -> None:
    graph = make(seed)
    plain = make_plan(graph, PORTABLE)
    (model,) = generate({"model": graph}, tmp_path / "bundle", options=SMALLEST)
    assert stages(model.plan)
    assert model.plan.arena_bytes < plain.arena_bytes
    simulate(model.plan)
    _same_bits(model.plan, HostModel(model))


@pytest.mark.parametrize("seed", range(2))
def test_random_models(seed: int, tmp_path: Path) -> None:
    """Concatenations, paddings, several images and outputs: some cannot be streamed, and none may go wrong."""
    (model,) = generate({"model": random_model(seed)}, tmp_path / "bundle", options=SMALLEST)
    simulate(model.plan)
    _same_bits(model.plan, HostModel(model))


def _same_bits(plan: Plan, host: HostModel) -> None:
    inputs = samples(plan.graph, 3, seed=7)
    made = host.run_tapped(inputs)
    assert {plan.graph.nodes[i].name for i in plan.graph.outputs} <= made.keys()
    for sample in range(3):
        values = run_all(plan.graph, {name: array[sample] for name, array in inputs.items()})
        for name, array in made.items():
            np.testing.assert_array_equal(array[sample], values[name], name)


def test_stages_touch_nothing_outside_of_their_lines(tmp_path: Path) -> None:
    for make, seed in MODELS[1:]:
        folder = tmp_path / make.__name__
        folder.mkdir()
        plan = smallest_plan(make, seed)
        assert stages(plan)
        run_guarded(plan, folder)


@pytest.mark.parametrize(("make", "seed"), MODELS, ids=ids)
def test_every_row_is_made_once(make: Callable[[int], Graph], seed: int) -> None:
    for step in stages(smallest_plan(make, seed)):
        made: dict[object, list[int]] = {}
        for call in step.calls:
            assert call.rows == call.first_row + 1
            made.setdefault(call.output.base, []).append(call.first_row)
        assert all(rows == list(range(len(rows))) for rows in made.values())


@pytest.mark.parametrize(("make", "seed"), MODELS, ids=ids)
def test_rings_are_just_large_enough(make: Callable[[int], Graph], seed: int) -> None:
    """A line buffer with a row less is found by the simulator."""
    plan = smallest_plan(make, seed)
    found = 0
    for index, step in enumerate(plan.steps):
        for tensor, line in step.lines.items():
            if line.rows > 1:
                found += 1
                steps = (*plan.steps[:index], _short_of(step, tensor), *plan.steps[index + 1 :])
                with pytest.raises(UnsafePlanError, match="needs byte"):
                    simulate(replace(plan, steps=steps))
    assert found


def _short_of(step: Step, tensor: int) -> Step:
    """A stage whose ring of a tensor holds a row less."""

    def shorter(view: View) -> View:
        return replace(view, ring=view.ring - 1) if view.base == tensor else view

    calls = tuple(
        replace(call, inputs=tuple(map(shorter, call.inputs)), output=shorter(call.output)) for call in step.calls
    )
    return replace(step, calls=calls)


def test_the_budget_decides_how_much_is_streamed() -> None:
    graph = residual(0)
    plain, smallest = make_plan(graph, PORTABLE), smallest_plan(residual, 0)
    between = (2 * plain.arena_bytes + smallest.arena_bytes) // 3
    some = make_plan(graph, PORTABLE, Options(ram_budget=between))
    assert make_plan(graph, PORTABLE, Options(ram_budget=plain.arena_bytes)).steps[0].lines == {}
    assert smallest.arena_bytes < some.arena_bytes <= between
    rows = [sum(len(step.calls) for step in stages(plan)) for plan in (some, smallest)]
    assert 0 < rows[0] < rows[1]
    with pytest.raises(EdgeError, match="smallest budget"):
        make_plan(graph, PORTABLE, Options(ram_budget=16))


def test_layers_of_which_nobody_needs_a_row_are_in_no_stage() -> None:
    """b's first row is padding, and c needs only that: no row of a is ever needed."""
    maker = ModelMaker("padding", 1)
    x = maker.conv(maker.input((1, 4, 4, 4)), 8, 1, name="a")
    x = maker.conv(x, 8, 1, name="b", top=1)
    x = maker.conv(x, 8, 1, 5, name="c")
    for budget in (0, 150):
        simulate(make_plan(maker.builder.build([x]), PORTABLE, Options(ram_budget=budget)))


@pytest.mark.parametrize("target", ["portable", "cortex-m4"])
@pytest.mark.parametrize(("make", "seed"), MODELS, ids=ids)
def test_any_budget_above_the_smallest_is_met(make: Callable[[int], Graph], seed: int, target: str) -> None:
    graph = make(seed)
    smallest = make_plan(graph, TARGETS[target], SMALLEST).arena_bytes
    plain = make_plan(graph, TARGETS[target]).arena_bytes
    for budget in range(smallest, plain, max(16, (plain - smallest) // BUDGETS // 16 * 16)):
        assert make_plan(graph, TARGETS[target], Options(ram_budget=budget)).arena_bytes <= budget
