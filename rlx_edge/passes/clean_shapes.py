"""Remove reshapes and transposes that do nothing, and join those that follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir import Graph, GraphBuilder, Node, Shape
from rlx_edge.ir.ops import Reshape, Transpose
from rlx_edge.passes.rebuild import Ids, rebuild
from rlx_edge.passes.remove_dead import remove_dead


def clean_shapes(graph: Graph) -> Graph:
    """The same function with fewer Reshape and Transpose nodes. Outputs keep their names."""
    return remove_dead(rebuild(graph, _clean))


def moves_nothing(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether a transposition of a tensor of this shape leaves its elements where they are in memory."""
    real = [axis for axis in perm if shape[axis] > 1]
    return real == sorted(real)


def _clean(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    if not isinstance(node.op, Reshape | Transpose):
        return None
    operand = builder[ids[node.inputs[0]]]
    if isinstance(node.op, Reshape):
        return _reshape(graph, node, operand.inputs[0] if isinstance(operand.op, Reshape) else operand.id, builder)
    perm, source = node.op.perm, operand
    if isinstance(operand.op, Transpose):
        perm, source = tuple(operand.op.perm[axis] for axis in perm), builder[operand.inputs[0]]
    if perm == tuple(range(len(perm))) and node.id not in graph.outputs:
        return source.id
    if moves_nothing(source.type.shape, perm):
        return _reshape(graph, node, source.id, builder)
    return builder.add(Transpose(perm), [source.id], node.name, node.type.quant, node.sources)


def _reshape(graph: Graph, node: Node, source: int, builder: GraphBuilder) -> int:
    if builder[source].type.shape == node.type.shape and node.id not in graph.outputs:
        return source
    return builder.add(Reshape(node.type.shape), [source], node.name, node.type.quant, node.sources)
