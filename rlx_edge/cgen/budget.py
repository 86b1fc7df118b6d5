"""A model's steps within the RAM budget: by stages, and by variants that need less scratch memory."""

from __future__ import annotations

from rlx_edge.cgen.arrange import arrange
from rlx_edge.cgen.choose import choose
from rlx_edge.cgen.costs import costs_of, typical_costs
from rlx_edge.cgen.memory import Layout, occupied, placed
from rlx_edge.cgen.options import Options
from rlx_edge.cgen.plan import Step
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph


def within_budgets(graph: Graph, target: TargetConfig, options: Options) -> tuple[tuple[Step, ...], Layout]:
    """The steps in the order that runs, and where their tensors lie.

    Raises EdgeError for a budget that cannot be met. A RAM budget of 0 asks for the smallest arena that is found, and
    is always met.
    """
    budget = options.ram_budget
    frugal = () if budget is None else choose(graph, target, options, max_scratch=0)
    costs = costs_of(target) or typical_costs()
    price = costs.call_instructions if costs else None
    steps, layout = arrange(graph, choose(graph, target, options), budget, frugal, price)
    if budget and layout.arena_bytes > budget:
        held = occupied(placed(graph, steps, layout.offsets, layout.scratch_offsets), len(steps))
        largest = graph.nodes[steps[held.index(max(held))].node]
        raise EdgeError(
            f"--ram-budget {budget:,}: layer {largest.name!r} needs most, {max(held):,} bytes while it runs, and "
            f"{layout.arena_bytes:,} bytes is the smallest budget that can be met"
        )
    return steps, layout
