"""Weights of fewer than 8 bits as int8, for tools that read no others."""

from __future__ import annotations

from dataclasses import replace

from rlx_edge.ir import DType, Graph
from rlx_edge.ir.nested import change_bodies


def widen_weights(graph: Graph) -> Graph:
    """The same graph, of equal results, with a byte for each weight of 4 or 2 bits."""
    graph = change_bodies(graph, widen_weights)
    nodes = tuple(
        replace(node, type=replace(node.type, dtype=DType.I8)) if node.type.dtype in (DType.I4, DType.I2) else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)
