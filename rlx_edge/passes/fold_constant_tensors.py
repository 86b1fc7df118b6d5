"""Whole tensors that hold one code a channel whatever the input is become constants, where their readers take one."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Binary, Leaf
from rlx_edge.passes.code_ranges import code_ranges
from rlx_edge.passes.rebuild import Ids, rebuild


def fold_constant_tensors(graph: Graph) -> Graph:
    """The same function, to the last bit. Kernels take a constant beside a computed operand of Add, Sub or Mul alone.

    Outputs of the graph stay computed.
    """
    values: dict[int, Array] = {}
    for node_id, codes in code_ranges(graph).items():
        node = graph.nodes[node_id]
        if not isinstance(node.op, Leaf) and node_id not in graph.outputs and codes.constant.all():
            full = np.broadcast_to(codes.low.astype(np.int8), node.type.shape)
            values[node_id] = np.ascontiguousarray(full)
    taken = _that_readers_take(graph, set(values))

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        if node.id not in taken:
            return None
        return builder.param(node.name, values[node.id], node.type.quant, node.sources, node.type.dtype)

    return rebuild(graph, rule) if taken else graph


def _that_readers_take(graph: Graph, constant: set[int]) -> set[int]:
    """Those all of whose readers are constant too, or can take a constant."""
    taken = set(constant)
    while True:
        refused = {
            i for i in taken if not all(j in taken or _takes(graph, graph.nodes[j], taken) for j in graph.users[i])
        }
        if not refused:
            return taken
        taken -= refused


def _takes(graph: Graph, reader: Node, constant: set[int]) -> bool:
    computed = [o for o in graph.operands(reader) if o.id not in constant and graph.constant(o) is None]
    return isinstance(reader.op, Binary) and bool(computed)
