"""Bits of weights layer by layer, under a budget of flash or of loss: noise as measured, costs as the cost model says.

1. Each layer is made with 8, 4 and 2 bits, and what it does to the output alone is measured (quant/width_noise.py).
2. What it takes in flash and instructions comes from plans of the model with these bits everywhere, for the target.
3. All choices that nothing beats are found (quant/allocate.py).
4. Points of that curve are quantized as a whole and measured, until one keeps to the limits.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from rlx_edge.cgen.costs import CoreCosts, costs_of
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import Prediction, predict
from rlx_edge.cgen.target import get_target
from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, Requant
from rlx_edge.quant.allocate import Choice, Option, curve, pareto, undominated
from rlx_edge.quant.quality import quality
from rlx_edge.quant.quantize import Progress, Quantized, build_int8, calibrated, quantize, stage
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.width_noise import FULL, WidthNoise, measure_noise
from rlx_edge.quant.widths import LayerRule

WIDTHS = (2, 4)
"""Beside 8. Three bits are stored as four: they would cost the same and lose more."""

POINTS = 24
"""Choices of the curve that are looked at, evenly by flash."""

DEFAULT_MAX_LOSS = 0.5
DEFAULT_TARGET = "cortex-m4"


@dataclass(frozen=True)
class Limits:
    """flash_budget: predicted bytes of the model, its kernels and its code, as `generate --flash-budget` counts them.
    max_loss: points of top-1 below float's where there are labels, else points of agreement with float below 100."""

    target: str = DEFAULT_TARGET
    flash_budget: int | None = None
    max_loss: float | None = None


@dataclass(frozen=True)
class Measured:
    """A point as a whole: predicted bytes and instructions, output SQNR in dB, points lost (None: no classes)."""

    flash: int
    instructions: int
    sqnr_db: float
    loss: float | None
    loss_of: str


@dataclass(frozen=True)
class Point:
    """Bits of each layer by name; costs and SQNR as the sums over layers have them, and as measured, if it was."""

    bits: Mapping[str, int]
    flash: int
    instructions: int
    sqnr_db: float
    measured: Measured | None = None

    @property
    def rules(self) -> tuple[LayerRule, ...]:
        """What a recipe file would say."""
        return tuple(LayerRule(glob.escape(name), bits) for name, bits in self.bits.items())


@dataclass(frozen=True)
class LayerWidth:
    """A layer with so many bits, all others having 8: predicted bytes of its step, instructions, output SQNR in dB."""

    name: str
    bits: int
    flash: int
    instructions: int
    sqnr_db: float


@dataclass(frozen=True, eq=False)
class Mixed:
    """What each layer costs and loses with each width; the points by rising flash, which one was chosen, and the model
    that it is."""

    layers: tuple[LayerWidth, ...]
    points: tuple[Point, ...]
    chosen: int
    quantized: Quantized


@dataclass
class Search:
    """Points of the curve, of which some have been measured, with their graphs by index."""

    points: list[Point]
    make: Callable[[Point], Graph]
    judge: Callable[[Graph], Measured]
    graphs: dict[int, Graph] = field(default_factory=dict)

    def measure(self, index: int) -> Measured:
        point = self.points[index]
        if point.measured is None:
            self.graphs[index] = self.make(point)
            point = self.points[index] = replace(point, measured=self.judge(self.graphs[index]))
        assert point.measured is not None
        return point.measured

    @property
    def measured(self) -> dict[int, Measured]:
        return {index: p.measured for index, p in enumerate(self.points) if p.measured is not None}

    def best(self, keeps: Callable[[Measured], bool], cost: Callable[[Measured], Any]) -> int | None:
        """Of the measured points that keep to the limits, the one that costs least; kernels that several layers share
        make the order of costs another one than the sums say."""
        found = {index: m for index, m in self.measured.items() if keeps(m)}
        return min(found, key=lambda index: cost(found[index]), default=None)


def choose_bits(
    graph: Graph,
    data: Data,
    recipe: Recipe,
    limits: Limits,
    requant: Requant = Requant.TFLM,
    progress: Progress | None = None,
) -> Mixed:
    """The float graph quantized with bits chosen for each layer.

    With a flash budget: the least noise within it; else the least flash that keeps to `max_loss`, DEFAULT_MAX_LOSS
    without either. Raises EdgeError for limits that cannot be met, with what can, and what `apply_recipe` raises.
    """
    get_target(limits.target)
    if limits.flash_budget is None and limits.max_loss is None:
        limits = replace(limits, max_loss=DEFAULT_MAX_LOSS)
    if limits.max_loss is not None and graph.output_nodes[0].type.elements < 2:
        raise EdgeError(f"points of loss need classes, and {graph.name!r} gives a single number: set --flash-budget")
    float_graph, calibration = calibrated(graph, data, recipe, progress)
    trying = stage("trying widths", progress)
    noise = measure_noise(float_graph, calibration, data, replace(recipe, weights=()), WIDTHS, trying)
    if not noise.forms:
        raise EdgeError(f"{graph.name!r} has no layers with weights: there are no bits to choose")

    def make(point: Point) -> Graph:
        shown = stage("quantizing a choice", progress)
        return quantize(float_graph, calibration, requant, replace(recipe, weights=point.rules), data, shown)

    def judge(int8: Graph) -> Measured:
        found = quality(float_graph, int8, data)
        flash, instructions = cost_of(int8, limits.target)
        if found.top1 is not None:
            return Measured(flash, instructions, found.output_sqnr_db, 100 * (found.top1[0] - found.top1[1]), "top-1")
        loss = None if found.agreement is None else 100 * (1 - found.agreement)
        return Measured(flash, instructions, found.output_sqnr_db, loss, "agreement")

    plans = {bits: _planned(build_int8(noise.with_bits(bits), requant), limits.target) for bits in (*WIDTHS, FULL)}
    search = Search(points_of(noise, plans), make, judge)
    chosen = within_flash(search, limits) if limits.flash_budget is not None else within_loss(search, limits)
    made = Quantized(search.graphs[chosen], float_graph, calibration)
    return Mixed(tuple(layers_of(noise, plans)), tuple(search.points), chosen, made)


def layers_of(noise: WidthNoise, plans: Mapping[int, Planned]) -> Iterator[LayerWidth]:
    """Each layer with each width."""
    for node in noise.layers:
        for bits, plan in plans.items():
            sqnr_db = _decibels(noise, noise.added(node.id, bits))
            yield LayerWidth(node.name, bits, *_layer_cost(plan.prediction, node.name), sqnr_db)


def _decibels(noise: WidthNoise, added: float) -> float:
    """The output's SQNR in dB, with so much more error than 8 bits leave."""
    return 10 * math.log10(noise.signal / max(noise.base + added, 1e-300)) if noise.signal > 0 else math.inf


def points_of(noise: WidthNoise, plans: Mapping[int, Planned]) -> list[Point]:
    """At most POINTS of the curve, evenly by flash, with its ends; plans: the model with these bits everywhere."""
    names = [node.name for node in noise.layers]
    costs = {name: {bits: _layer_cost(plan.prediction, name) for bits, plan in plans.items()} for name in names}
    choices = [choice for widths in _subsets(tuple(plans)) for choice in _front(noise, costs, plans, widths)]
    found = curve(undominated(choices))
    wanted = {round(i * (len(found) - 1) / max(1, POINTS - 1)) for i in range(POINTS)}
    return [
        Point(
            dict(zip(names, choice.bits, strict=True)),
            choice.flash,
            choice.instructions,
            _decibels(noise, choice.noise),
        )
        for choice in (found[i] for i in sorted(wanted))
    ]


@dataclass(frozen=True)
class Planned:
    """A model's prediction for a core, what the core's kernels cost, and the names of those that the model calls."""

    prediction: Prediction
    costs: CoreCosts
    kernels: frozenset[str]


def _planned(graph: Graph, target: str) -> Planned:
    """For a target whose costs are not known, with the costs of DEFAULT_TARGET: only their order matters."""
    plan = make_plan(graph, get_target(target))
    found, costs = predict(plan), costs_of(get_target(target))
    if found is None or costs is None:
        return _planned(graph, DEFAULT_TARGET)
    return Planned(found, costs, frozenset(kernel.name for kernel in plan.kernels))


def _subsets(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [found for count in range(1, len(widths) + 1) for found in combinations(widths, count)]


def _front(
    noise: WidthNoise,
    costs: Mapping[str, Mapping[int, tuple[int, int]]],
    plans: Mapping[int, Planned],
    widths: tuple[int, ...],
) -> list[Choice]:
    """The choices among these widths that nothing beats, with the kernels that they need, each once."""
    layers = [
        [Option(bits, *costs[node.name][bits], noise.added(node.id, bits)) for bits in widths] for node in noise.layers
    ]
    costs_of_core = plans[widths[0]].costs
    kernels = costs_of_core.kernel_bytes(frozenset().union(*(plans[bits].kernels for bits in widths)))
    rests = [_rest(plans[bits].prediction, list(costs)) for bits in widths]
    flash, instructions = kernels + max(r[0] for r in rests), max(r[1] for r in rests)
    return [
        replace(choice, flash=choice.flash + flash, instructions=choice.instructions + instructions)
        for choice in pareto(layers)
    ]


def cost_of(graph: Graph, target: str) -> tuple[int, int]:
    """Predicted bytes and instructions of an int8 model."""
    found = _planned(graph, target).prediction
    return found.flash_bytes, found.instructions


def _layer_cost(found: Prediction, name: str) -> tuple[int, int]:
    """Of the layer's own step; 0 for one that the generator left out."""
    own = [layer for layer in found.layers if layer.name == name]
    return sum(layer.flash_bytes for layer in own), sum(layer.instructions for layer in own)


def _rest(found: Prediction, names: list[str]) -> tuple[int, int]:
    """What belongs to no layer with weights, but for kernels: code and other layers."""
    flash, instructions = (sum(cost) for cost in zip(*(_layer_cost(found, name) for name in names), strict=True))
    return found.flash_bytes - found.kernel_bytes - flash, found.instructions - instructions


def within_flash(search: Search, limits: Limits) -> int:
    """The point with the least error whose prediction as a whole keeps to the budget."""
    budget = limits.flash_budget
    assert budget is not None
    index = max((i for i, p in enumerate(search.points) if p.flash <= budget), default=0)
    while index > 0 and search.measure(index).flash > budget:
        index -= 1
    if index + 1 < len(search.points):
        search.measure(index + 1)
    search.measure(index)
    chosen = search.best(lambda m: m.flash <= budget, lambda m: -m.sqnr_db)
    if chosen is None:
        smallest = min(m.flash for m in search.measured.values())
        raise EdgeError(
            f"--flash-budget {budget:,}: the smallest choice of bits takes {smallest:,} bytes on {limits.target}: no "
            "smaller budget can be met"
        )
    found = search.measure(chosen)
    if limits.max_loss is not None and found.loss is not None and found.loss > limits.max_loss:
        raise EdgeError(
            f"--max-loss {limits.max_loss:g} within {budget:,} bytes cannot be met: the best choice of bits loses "
            f"{found.loss:.2f} points of {found.loss_of} ({found.sqnr_db:.1f} dB); try rlx-edge finetune"
        )
    return chosen


def within_loss(search: Search, limits: Limits) -> int:
    """The smallest point that loses little enough, by halving; where losses do not fall evenly, there may be others."""
    most = limits.max_loss
    assert most is not None

    def keeps(found: Measured) -> bool:
        return found.loss is not None and found.loss <= most

    low, high = 0, len(search.points) - 1
    while low < high:
        middle = (low + high) // 2
        if keeps(search.measure(middle)):
            high = middle
        else:
            low = middle + 1
    last = search.measure(high)
    chosen = search.best(keeps, lambda m: (m.flash, -m.sqnr_db))
    if chosen is None:
        raise EdgeError(
            f"--max-loss {most:g}: with 8 bits everywhere the model already loses {last.loss or math.nan:.2f} points "
            f"of {last.loss_of}"
        )
    return chosen
