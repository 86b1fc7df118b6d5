"""Which variant computes each node: by predicted instructions and flash, within the budgets.

- speed: the fewest instructions.
- size: the least flash.
- balanced: the least product of instructions and flash, so that 1% more flash must save more than 1% of instructions.

Flash counts constants, kernels (each once) and the model's own code, as cgen/costs.py predicts them. A kernel whose
costs were not fitted yet is guessed to take half of what the portable one takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.cgen.costs import CoreCosts, costs_of, typical_costs
from rlx_edge.cgen.frontier import Point, Way, frontier
from rlx_edge.cgen.lower import Candidate, candidates
from rlx_edge.cgen.options import DEFAULT, Optimize, Options
from rlx_edge.cgen.plan import Step, constants_of
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.graph import brief
from rlx_edge.ir.ops import Leaf

Found = tuple[tuple[Candidate, ...], tuple[str, ...]]


def choose(
    graph: Graph, target: TargetConfig, options: Options = DEFAULT, max_scratch: int | None = None
) -> tuple[Step, ...]:
    """A step per computed node, in the graph's order.

    `max_scratch`: bytes of scratch memory that a call may need; a node all of whose variants need more gets the one
    that needs least. Raises EdgeError for a budget of flash or stack that cannot be met, naming the layer that needs
    most and the smallest budget that can be met.
    """
    nodes = [node for node in graph.nodes if not isinstance(node.op, Leaf)]
    found = [candidates(graph, node, target.isas) for node in nodes]
    costs = costs_of(target)
    if costs is None and options.flash_budget is not None:
        raise EdgeError(f"--flash-budget: the size of code for {target.name} is not known; name a core with --target")
    picks = _picked(nodes, found, costs or typical_costs(), options, max_scratch)
    return tuple(
        _step(node, ways, reasons, pick) for node, (ways, reasons), pick in zip(nodes, found, picks, strict=True)
    )


def _step(node: Node, ways: Sequence[Candidate], reasons: tuple[str, ...], pick: int) -> Step:
    others = tuple(way.variant for way in ways if way is not ways[pick])
    return Step(node.id, ways[pick].calls, ways[pick].variant, reasons, others)


def _picked(
    nodes: Sequence[Node], found: Sequence[Found], costs: CoreCosts | None, options: Options, max_scratch: int | None
) -> list[int]:
    """The index of the candidate of each node; the first one (within the limit) where nothing is known of the costs."""
    if costs is None:
        return [_first_within(candidates, max_scratch) for candidates, _ in found]
    ways = [ways_of(node, candidates, costs) for node, (candidates, _) in zip(nodes, found, strict=True)]
    if options.stack_budget is not None:
        ways = _within_stack(nodes, ways, costs, options.stack_budget)
    if max_scratch is not None:
        ways = [_within_scratch(choices, max_scratch) for choices in ways]
    points = frontier(ways, costs)
    best = best_point(points, costs, options)
    if best is None:
        assert options.flash_budget is not None
        raise _flash_error(nodes, ways, points[-1], flash_of(points[-1], costs), options.flash_budget)
    picks = dict(best.picks)
    return [picks[index] for index in range(len(nodes))]


def best_point(points: Sequence[Point], costs: CoreCosts, options: Options = DEFAULT) -> Point | None:
    """What the options ask for; None where nothing fits into the flash budget."""
    flash = {id(point): flash_of(point, costs) for point in points}
    fitting = [p for p in points if options.flash_budget is None or flash[id(p)] <= options.flash_budget]
    return min(fitting, key=lambda point: _rank(point, flash[id(point)], options.optimize), default=None)


def _rank(point: Point, flash: int, optimize: Optimize) -> tuple[float, float]:
    if optimize is Optimize.SPEED:
        return point.instructions, flash
    if optimize is Optimize.SIZE:
        return flash, point.instructions
    return point.instructions * flash, flash


def flash_of(point: Point, costs: CoreCosts) -> int:
    """Predicted bytes of constants, kernels and the model's own code."""
    return costs.model_bytes + point.own_bytes + costs.kernel_bytes(point.kernels)


def ways_of(node: Node, found: Sequence[Candidate], costs: CoreCosts) -> list[Way]:
    """The candidates in figures."""
    portable = sum(map(costs.call_instructions, found[-1].calls))
    ways = []
    for index, candidate in enumerate(found):
        calls = candidate.calls
        known = index == len(found) - 1 or all(map(costs.is_fitted, calls))
        step = Step(node.id, calls)
        own = costs.code_bytes([step]) - costs.model_bytes
        ways.append(
            Way(
                index,
                sum(map(costs.call_instructions, calls)) if known else portable / 2,
                own + sum(constant.values.nbytes for constant in constants_of(calls)),
                frozenset(call.kernel.name for call in calls),
                costs.step_stack(step),
                max((call.scratch for call in calls), default=0),
            )
        )
    return ways


def _within_stack(
    nodes: Sequence[Node], ways: Sequence[Sequence[Way]], costs: CoreCosts, budget: int
) -> list[list[Way]]:
    least = [min(way.stack_bytes for way in choices) for choices in ways]
    if max(least, default=0) > budget:
        node = nodes[least.index(max(least))]
        raise EdgeError(
            f"--stack-budget {budget:,}: layer {brief(node.name)!r} needs most, and {max(least):,} bytes is "
            "the smallest budget that can be met"
        )
    return [[way for way in choices if way.stack_bytes <= budget] for choices in ways]


def _first_within(ways: Sequence[Candidate], limit: int | None) -> int:
    scratch = [max((call.scratch for call in way.calls), default=0) for way in ways]
    return 0 if limit is None else next(i for i, size in enumerate(scratch) if size <= max(limit, min(scratch)))


def _within_scratch(choices: Sequence[Way], limit: int) -> list[Way]:
    least = min(way.scratch_bytes for way in choices)
    return [way for way in choices if way.scratch_bytes <= max(limit, least)]


def _flash_error(
    nodes: Sequence[Node], ways: Sequence[Sequence[Way]], point: Point, smallest: int, budget: int
) -> EdgeError:
    by_index: Mapping[int, Way] = {
        node: next(way for way in ways[node] if way.index == pick) for node, pick in point.picks
    }
    largest = max(by_index, key=lambda node: by_index[node].own_bytes)
    return EdgeError(
        f"--flash-budget {budget:,}: layer {brief(nodes[largest].name)!r} needs most, "
        f"{by_index[largest].own_bytes:,} bytes, and {smallest:,} bytes is the smallest budget that can be met"
    )
