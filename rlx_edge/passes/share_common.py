"""Compute once what is computed twice: the same op on the same operands with the same attributes.

Constants are compared by content. Each keeps its own Param as long as a node reads it, so that weights keep their
names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Leaf
from rlx_edge.passes.rebuild import Ids, builder_like, finish


def share_common(graph: Graph) -> Graph:
    """The same function without repeated computations; what stays bears the sources of all that it stands for.

    Outputs keep their names: of two equal outputs both stay.
    """
    shared = _shared(graph)
    if not shared:
        return graph
    kept = {i: graph.nodes[i] for i in shared.values()}
    for later, earlier in shared.items():
        kept[earlier] = _joined(graph, kept[earlier], graph.nodes[later])
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        if node.id in shared:
            ids[node.id] = ids[shared[node.id]]
        else:
            ids[node.id] = builder.copy(kept.get(node.id, node), [ids[i] for i in node.inputs], graph)
    return finish(builder, [ids[i] for i in graph.outputs], graph)


def _shared(graph: Graph) -> dict[int, int]:
    """Node -> the earlier node that computes the same and can stand for it."""
    stands: list[int] = []  # By node id, the first node of the same value.
    first: dict[Hashable, int] = {}
    outputs: set[int] = set()  # Nodes that are, or stand for, an output: one each, because an output has a name.
    for node in graph.nodes:
        earlier = first.setdefault(_key(graph, node, tuple(stands[i] for i in node.inputs)), node.id)
        stands.append(earlier)
        if node.id in graph.outputs:
            if earlier in outputs:
                stands[-1] = node.id
            outputs.add(stands[-1])
    return {i: earlier for i, earlier in enumerate(stands) if earlier != i and not isinstance(graph.nodes[i].op, Leaf)}


def _key(graph: Graph, node: Node, operands: tuple[int, ...]) -> Hashable:
    """Equal for two nodes exactly if they compute the same, to the last bit."""
    values = graph.constant(node)
    if values is not None:
        return node.type, hashlib.blake2b(np.ascontiguousarray(values).data).digest()
    return node.op, repr(node.op), node.type, operands  # As text, 0.0 and -0.0 differ.


def _joined(graph: Graph, kept: Node, other: Node) -> Node:
    """The node with the sources of both, under the name of whichever is an output."""
    sources = (*kept.sources, *(name for name in other.sources if name not in kept.sources))
    name = other.name if other.id in graph.outputs else kept.name
    return replace(kept, name=name, sources=sources)
