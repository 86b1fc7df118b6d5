"""A model's steps within the budgets: by stages, and by variants that need less scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.cgen.arrange import arrange
from rlx_edge.cgen.choose import choose
from rlx_edge.cgen.costs import CoreCosts, costs_of, typical_costs
from rlx_edge.cgen.memory import Layout, fullest_step
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
    costs = costs_of(target) or typical_costs()

    def frugal() -> Sequence[Step]:
        try:
            return choose(graph, target, options, max_scratch=0)
        except EdgeError:
            return ()  # other budgets have no room for it

    def allowed(steps: Sequence[Step]) -> bool:
        return costs is None or (_flash_over(costs, steps, options) or _stack_over(costs, steps, options)) is None

    price = costs.call_instructions if costs else None
    steps, layout = arrange(graph, choose(graph, target, options), options.ram_budget, frugal, price, allowed)
    if options.ram_budget and layout.arena_bytes > options.ram_budget:
        raise _ram_error(graph, steps, layout, options.ram_budget)
    over = costs and (_flash_over(costs, steps, options) or _stack_over(costs, steps, options))
    if over:
        raise EdgeError(f"{over} with --ram-budget {options.ram_budget}, which runs layers row by row: raise either")
    return steps, layout


def _flash_over(costs: CoreCosts, steps: Sequence[Step], options: Options) -> str | None:
    flash = costs.flash_bytes(steps)
    if options.flash_budget is None or flash <= options.flash_budget:
        return None
    return f"--flash-budget {options.flash_budget:,}: {flash:,} bytes is the least that was found"


def _stack_over(costs: CoreCosts, steps: Sequence[Step], options: Options) -> str | None:
    stack = max(map(costs.step_stack, steps), default=0)
    if options.stack_budget is None or stack <= options.stack_budget:
        return None
    return f"--stack-budget {options.stack_budget:,}: {stack:,} bytes is the least that was found"


def _ram_error(graph: Graph, steps: Sequence[Step], layout: Layout, budget: int) -> EdgeError:
    layer, held = fullest_step(graph, steps, layout.offsets, layout.scratch_offsets)
    return EdgeError(
        f"--ram-budget {budget:,}: layer {layer!r} needs most, {held:,} bytes while it runs, and "
        f"{layout.arena_bytes:,} bytes is the smallest budget that can be met"
    )
