"""Store in every integer op the integers that its rounding rule gives; what runs afterwards needs no real numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Graph, verify
from rlx_edge.ir.nested import change_bodies
from rlx_edge.ir.ops import Leaf
from rlx_edge.reference.fixedpoint import freeze as frozen_integers


def freeze(graph: Graph) -> Graph:
    """The same graph with `frozen` set wherever the op and its rule have frozen integers.

    Raises UnsupportedError listing every op whose rule does not exist, whose scales are out of its range, or that has
    other frozen integers: the reference would compute with those.
    """
    graph = change_bodies(graph, freeze)
    nodes, problems = [], []
    for node in graph.nodes:
        try:
            frozen = (
                None if isinstance(node.op, Leaf) else frozen_integers(node.op, graph.operand_types(node), node.type)
            )
        except UnsupportedError as error:
            problems.append(f"{node}: {error}")
            continue
        held = getattr(node.op, "frozen", None)
        if frozen is not None and held not in (None, frozen):
            problems.append(f"{node}: its frozen integers are not those of its rule and its scales; leave them out")
        stored: dict[str, Any] = {} if frozen is None else {"frozen": frozen}
        nodes.append(replace(node, op=replace(node.op, **stored)))
    if problems:
        raise UnsupportedError(f"{graph.name!r} cannot be lowered to integers:", problems)
    frozen_graph = replace(graph, nodes=tuple(nodes))
    verify(frozen_graph)
    return frozen_graph
