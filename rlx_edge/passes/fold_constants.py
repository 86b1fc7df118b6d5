"""Work out what follows from constants alone, with the reference, so that the very same values result.

A small file must not make a large graph: results may add GROWTH elements to the constants that they are made from, and
no step may take more than WORK multiplications. What is beyond that stays a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Leaf, Pool
from rlx_edge.passes.rebuild import Ids, rebuild
from rlx_edge.reference.run import evaluate

GROWTH = 1 << 18
"""Elements that all folded nodes of a graph may add together (1 MiB of float32)."""

WORK = 1 << 26
"""Multiplications, or elements read, of one folded node."""


def fold_constants(graph: Graph) -> Graph:
    """The same function with every node on constants alone replaced by a Param of its name, sources and parameters.

    An output of the graph stays computed. A node that the reference cannot run stays, to be reported where it matters.
    """
    folder = _Folder(graph)
    for node in graph.nodes:
        folder.visit(node)
    return rebuild(graph, folder.replace) if folder.values else graph


@dataclass
class _Folder:
    graph: Graph
    values: dict[int, Array] = field(default_factory=dict)
    """By node id, what was worked out."""
    room: int = GROWTH

    def visit(self, node: Node) -> None:
        if isinstance(node.op, Leaf) or node.id in self.graph.outputs or node.op.bodies:
            return  # What nested graphs take is not known ahead: a While may never end.
        operands = [self._known(i) for i in node.inputs]
        known = [values for values in operands if values is not None]
        growth = max(node.type.elements - sum(values.size for values in known), 0)
        if len(known) < len(operands) or growth > self.room or _work(self.graph, node) > WORK:
            return
        try:
            with np.errstate(all="ignore"):
                value = evaluate(self.graph, node, known)
        except UnsupportedError:
            return
        self.values[node.id] = value
        self.room -= growth

    def _known(self, node_id: int) -> Array | None:
        held = self.values.get(node_id)
        return self.graph.constant(self.graph.nodes[node_id]) if held is None else held

    def replace(self, graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        values = self.values.get(node.id)
        if values is None:
            return None
        return builder.param(node.name, values, node.type.quant, node.sources, node.type.dtype)


def _work(graph: Graph, node: Node) -> int:
    window = math.prod(node.op.kernel_size) if isinstance(node.op, Pool) else 1
    read = sum(type.elements for type in graph.operand_types(node))
    return max(graph.macs(node), node.type.elements * window, read)
