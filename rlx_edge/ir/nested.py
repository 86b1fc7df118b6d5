"""Graphs within graphs: what every function that recurses goes by.

A path says where a nested graph is: `3.then_branch` is that of node 3, `3.then_branch.0.body` is one further inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rlx_edge.ir.graph import Graph
from rlx_edge.ir.ops import Op

MAX_NESTING = 32
"""How deep graphs may lie in each other, so that nothing that recurses runs out of stack."""


def bodies_of(op: Op) -> Iterator[tuple[str, Graph]]:
    """(field, graph) of every nested graph of an op, in field order."""
    for field in op.bodies:
        graph = getattr(op, field)
        if graph is not None:
            yield field, graph


def nested_graphs(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """(path, graph) of every nested graph at any depth, an outer one before those inside."""
    for node in graph.nodes:
        for field, body in bodies_of(node.op):
            path = f"{node.id}.{field}"
            yield path, body
            yield from ((f"{path}.{inner}", found) for inner, found in nested_graphs(body))


def with_bodies(op: Op, change: Callable[[str, Graph], Graph]) -> Op:
    """The op with `change(field, graph)` in the place of each nested graph; the very same op where nothing changes."""
    changed = {field: change(field, body) for field, body in bodies_of(op)}
    stay = all(changed[field] is body for field, body in bodies_of(op))
    stored: dict[str, Any] = {} if stay else changed
    return op if stay else replace(op, **stored)


def change_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with `change` applied to the graphs of its nodes; the very same where none changes.

    It does not go inside those: a pass that calls this with itself reaches every depth.
    """
    ops = [with_bodies(node.op, lambda field, body: change(body)) for node in graph.nodes]
    if all(op is node.op for op, node in zip(ops, graph.nodes, strict=True)):
        return graph
    nodes = tuple(replace(node, op=op) for op, node in zip(ops, graph.nodes, strict=True))
    return replace(graph, nodes=nodes)


def map_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with `change` applied to each nested graph at any depth, inner ones first; the very same as above."""
    return change_bodies(graph, lambda body: change(map_bodies(body, change)))
