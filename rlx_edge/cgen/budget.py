"""A model's steps within the RAM budget: by stages, and by variants that need less scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.cgen.arrange import arrange
from rlx_edge.cgen.choose import choose
from rlx_edge.cgen.memory import Layout
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
    steps, layout = arrange(graph, choose(graph, target, options), budget, frugal)
    if budget and layout.arena_bytes > budget:
        largest = max(steps, key=lambda step: live_bytes(graph, step))
        raise EdgeError(
            f"--ram-budget {budget:,}: layer {graph.nodes[largest.node].name!r} needs most, "
            f"{live_bytes(graph, largest):,} bytes while it runs, and {layout.arena_bytes:,} bytes is the smallest "
            "budget that can be met"
        )
    return steps, layout


def live_bytes(graph: Graph, step: Step) -> int:
    """Bytes of the tensors that a step reads and writes, of its line buffers and of its scratch memory."""
    tensors = {step.node, *_operands(step)} - set(step.lines)
    whole = sum(graph.nodes[node].type.bytes for node in tensors if node < len(graph.nodes))
    lines = sum(line.bytes for line in step.lines.values())
    return whole + lines + max((call.scratch for call in step.calls), default=0)


def _operands(step: Step) -> Sequence[int]:
    return [view.base for call in step.calls for view in call.inputs if isinstance(view.base, int)]
