"""Bits of weights layer by layer, under a budget of flash or of loss: noise as measured, costs as the cost model says.

1. Each layer is made with 8, 4 and 2 bits, and what it does to the output alone is measured (quant/width_noise.py).
2. Mixes of these are planned for the target (mixes.py): those on the curves of sums (quant/allocate.py), and those near
   the best one.
3. The best of them are quantized as a whole and measured, until one keeps to the limits (search.py).
"""

from __future__ import annotations

from dataclasses import replace

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, Requant
from rlx_edge.mixed_precision.mixes import Mixes, core_of, cost_of
from rlx_edge.mixed_precision.points import (
    DEFAULT_TARGET,
    LayerWidth,
    Limits,
    Measured,
    Mix,
    Mixed,
    Point,
    rules_for,
)
from rlx_edge.mixed_precision.search import Search, find
from rlx_edge.quant.quality import quality
from rlx_edge.quant.quantize import Progress, Quantized, calibrated, quantize, stage
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.width_noise import FULL, measure_noise

__all__ = [
    "DEFAULT_TARGET",
    "LayerWidth",
    "Limits",
    "Measured",
    "Mixed",
    "Point",
    "choose_bits",
    "cost_of",
]

WIDTHS = (2, 4)
"""Beside 8. Three bits are stored as four: they would cost the same and lose more."""


def choose_bits(
    graph: Graph,
    data: Data,
    recipe: Recipe,
    limits: Limits,
    requant: Requant = Requant.TFLM,
    progress: Progress | None = None,
) -> Mixed:
    """The float graph quantized with bits chosen for each layer.

    With a flash budget: the least error found within it; else the least flash found that keeps to `max_loss`. Raises
    EdgeError for limits that cannot be met, with what can, and what `apply_recipe` raises.
    """
    core_of(limits.target)
    if limits.max_loss is not None and graph.output_nodes[0].type.elements < 2:
        raise EdgeError(f"points of loss need classes, and {graph.name!r} gives a single number: set --flash-budget")
    float_graph, calibration = calibrated(graph, data, recipe, progress)
    trying = stage("trying widths", progress)
    noise = measure_noise(float_graph, calibration, data, replace(recipe, weights=()), WIDTHS, trying)
    if not noise.forms:
        raise EdgeError(f"{graph.name!r} has no layers with weights: there are no bits to choose")
    mixes = Mixes(noise, (*WIDTHS, FULL), requant, limits.target)

    def named(mix: Mix) -> dict[str, int]:
        return dict(zip(mixes.names, mix, strict=True))

    def make(mix: Mix) -> Graph:
        shown = stage("quantizing a choice", progress)
        return quantize(float_graph, calibration, requant, replace(recipe, weights=rules_for(named(mix))), data, shown)

    def judge(int8: Graph) -> Measured:
        found, costs = quality(float_graph, int8, data), cost_of(int8, limits.target)
        if found.top1 is not None:
            loss = 100 * (found.top1[0] - found.top1[1])
            return Measured(*costs, found.output_sqnr_db, loss, "top-1", len(data))
        agreement = None if found.agreement is None else 100 * (1 - found.agreement)
        return Measured(*costs, found.output_sqnr_db, agreement, "agreement", len(data))

    search = Search(mixes, make, judge)
    chosen = find(search, limits)
    order = sorted(search.measured, key=lambda mix: (search.measured[mix].flash, -search.measured[mix].sqnr_db, mix))
    points = [Point(named(mix), mixes.sqnr_db(mixes.error(mix)), search.measured[mix]) for mix in order]
    layers = [
        LayerWidth(node.name, bits, *mixes.layer_costs[node.name][bits], mixes.sqnr_db(noise.added(node.id, bits)))
        for node in noise.layers
        for bits in mixes.widths
    ]
    made = Quantized(search.graphs[chosen], float_graph, calibration)
    return Mixed(tuple(layers), tuple(points), order.index(chosen), made)
