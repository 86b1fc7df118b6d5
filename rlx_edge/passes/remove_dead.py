"""Remove what no output needs. Inputs stay: they are the model's interface."""

from __future__ import annotations

from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Input
from rlx_edge.passes.rebuild import Ids, builder_like


def remove_dead(graph: Graph) -> Graph:
    """The graph without the nodes that no output depends on; the very same object where there is none."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.id in needed:
            needed.update(node.inputs)
        elif isinstance(node.op, Input):
            needed.add(node.id)
    if len(needed) == len(graph.nodes):
        return graph
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        if node.id in needed:
            ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph)
    return builder.build([ids[i] for i in graph.outputs])
