"""Make infinite masks finite: x + -infinity before a softmax gives a probability of 0, and so does x - 1e30.

PyTorch exports attention masks as -infinity, which no range can hold.
"""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Binary, BinaryOp, Reshape, Softmax, Transpose
from rlx_edge.passes.rebuild import Ids, constant_operand, rebuild
from rlx_edge.passes.remove_dead import remove_dead

FINITE = np.float32(-1e30)
"""So far below any score that its power is 0, and so that no score is added to it."""


def finite_masks(graph: Graph) -> Graph:
    """The same function with finite masks, wherever a softmax alone reads the sum."""
    return remove_dead(rebuild(graph, _finite))


def _finite(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    if not isinstance(node.op, Binary) or node.op.fn is not BinaryOp.ADD:
        return None
    held = constant_operand(graph, node)
    if held is None or held[1].dtype != np.float32 or not np.isneginf(held[1]).any() or not _only_softmax(graph, node):
        return None
    place, values = held
    mask = builder.param(
        f"{graph.nodes[node.inputs[place]].name}.finite", np.where(np.isneginf(values), FINITE, values)
    )
    operands = [ids[i] for i in node.inputs]
    operands[place] = mask
    return builder.add(node.op, operands, node.name, sources=node.sources)


def _only_softmax(graph: Graph, node: Node) -> bool:
    """Whether nothing but softmax reads a tensor, perhaps moved."""
    users = [graph.nodes[i] for i in graph.users[node.id]]
    if node.id in graph.outputs or not users:
        return False
    return all(
        isinstance(user.op, Softmax) or (isinstance(user.op, Reshape | Transpose) and _only_softmax(graph, user))
        for user in users
    )
