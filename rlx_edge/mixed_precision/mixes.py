"""What any mix of bits would take: each is planned, by the same choice of kernels that generation makes.

The code of a kernel is there once, whichever layers call it, and which kernels pay depends on all layers. So costs of
layers do not add up; what adds up is a first guess that says which mixes to plan. Ways to compute a layer depend on its
own bits alone, and are found once: planning a mix then takes hundredths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rlx_edge.cgen.choose import best_point, flash_of, ways_of
from rlx_edge.cgen.costs import CoreCosts, costs_of
from rlx_edge.cgen.frontier import Known, Way, frontier
from rlx_edge.cgen.lower import candidates
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import Prediction, predict
from rlx_edge.cgen.target import TargetConfig, get_target
from rlx_edge.ir import Graph, Requant
from rlx_edge.ir.ops import Leaf
from rlx_edge.mixed_precision.points import DEFAULT_TARGET, Mix
from rlx_edge.quant.quantize import build_int8
from rlx_edge.quant.width_noise import FULL, WidthNoise


def cost_of(graph: Graph, target: str) -> tuple[int, int]:
    """Predicted bytes and instructions of an int8 model."""
    found = prediction_of(make_plan(graph, core_of(target)))
    return found.flash_bytes, found.instructions


def core_of(target: str) -> TargetConfig:
    """DEFAULT_TARGET for one whose costs are not known: only their order matters. Raises EdgeError for no target."""
    found = get_target(target)
    return get_target(DEFAULT_TARGET) if costs_of(found) is None else found


def prediction_of(plan: Plan) -> Prediction:
    found = predict(plan)
    assert found is not None
    return found


@dataclass(frozen=True)
class Planned:
    """A mix with the forms of layers that `measure_noise` made: bytes, instructions, summed error at the output."""

    mix: Mix
    flash: int
    instructions: int
    noise: float


class Mixes:
    """Plans mixes for a target, each once."""

    def __init__(self, noise: WidthNoise, widths: tuple[int, ...], requant: Requant, target: str) -> None:
        self.noise, self.widths, core = noise, widths, core_of(target)
        self.names = [node.name for node in noise.layers]
        found = costs_of(core)
        assert found is not None
        self._costs: CoreCosts = found
        plans = {bits: make_plan(build_int8(noise.with_bits(bits), requant), core) for bits in widths}
        self.predictions = {bits: prediction_of(plan) for bits, plan in plans.items()}
        self._ways = {bits: self._of_plan(plan, core) for bits, plan in plans.items()}
        self._known: Known = {}
        self._planned: dict[Mix, Planned] = {}

    def _of_plan(self, plan: Plan, core: TargetConfig) -> dict[str, list[Way]]:
        nodes = [node for node in plan.graph.nodes if not isinstance(node.op, Leaf)]
        return {node.name: ways_of(node, candidates(plan.graph, node, core.isas)[0], self._costs) for node in nodes}

    @property
    def all(self) -> list[Planned]:
        """All that were planned."""
        return list(self._planned.values())

    def plan(self, mix: Mix) -> Planned:
        """A mix as generation would make it, without budgets."""
        if mix not in self._planned:
            bits = dict(zip(self.names, mix, strict=True))
            ways = [
                self._ways[bits.get(name, FULL)][name]
                for name in self._ways[FULL]
                if name in self._ways[bits.get(name, FULL)]
            ]
            point = best_point(frontier(ways, self._costs, self._known), self._costs)
            assert point is not None
            instructions = round(point.instructions) + self._costs.step_instructions * len(ways)
            self._planned[mix] = Planned(mix, flash_of(point, self._costs), instructions, self.error(mix))
        return self._planned[mix]

    def error(self, mix: Mix) -> float:
        """The errors of all layers at the output, added up, beyond those of 8 bits."""
        return sum(self.noise.added(node.id, bits) for node, bits in zip(self.noise.layers, mix, strict=True))

    def sqnr_db(self, added: float) -> float:
        """The output's SQNR with so much more error than 8 bits leave."""
        noise = self.noise
        return 10 * math.log10(noise.signal / max(noise.base + added, 1e-300)) if noise.signal > 0 else math.inf

    @cached_property
    def layer_costs(self) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """Bytes and instructions of each layer's own step, where all have so many bits; 0 for one that is left out."""
        return {
            name: {bits: _layer_cost(found, name) for bits, found in self.predictions.items()} for name in self.names
        }


def _layer_cost(found: Prediction, name: str) -> tuple[int, int]:
    own = [layer for layer in found.layers if layer.name == name]
    return sum(layer.flash_bytes for layer in own), sum(layer.instructions for layer in own)
