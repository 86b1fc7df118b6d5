"""Which variant computes each node."""

from __future__ import annotations

from rlx_edge.cgen.lower import candidates
from rlx_edge.cgen.plan import Step
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Leaf


def choose(graph: Graph, target: TargetConfig) -> tuple[Step, ...]:
    """A step per computed node, in the graph's order, each by the first variant that can."""
    steps = []
    for node in graph.nodes:
        if not isinstance(node.op, Leaf):
            found, _ = candidates(graph, node, target.isas)
            steps.append(Step(node.id, found[0].calls))
    return tuple(steps)
