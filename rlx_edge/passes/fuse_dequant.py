"""A bias and bounds right after a DequantMatMul become its own: one kernel call computes all of it."""

from __future__ import annotations

from dataclasses import replace

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Clamp, DequantMatMul
from rlx_edge.ir.ops.dequant import STORED
from rlx_edge.passes.rebuild import Ids, constant_operand, only_user, rebuild, vector_along
from rlx_edge.reference.dequant import NO_BOUNDS

WITH_BIAS = 5


def fuse_dequant(graph: Graph) -> Graph:
    """The graph with fewer ops, of equal values (a bound of 0 gives 0 where it gave -0)."""
    return rebuild(graph, _fused)


def _fused(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    found = constant_operand(graph, node) if isinstance(node.op, Binary) else None
    x = graph.nodes[node.inputs[0 if found is None else 1 - found[0]]] if node.inputs else node
    product = builder[ids[x.id]] if x.id in ids else node
    op = product.op
    if not isinstance(op, DequantMatMul) or op.scheme.kind not in STORED:
        return None
    if only_user(graph, x) is not node or node.type.shape != product.type.shape:
        return None
    operands = list(product.inputs)
    if isinstance(node.op, Binary):
        bias = None if found is None else vector_along(found[1], node.type.shape, 1)
        if node.op.fn is not BinaryOp.ADD or bias is None or len(operands) == WITH_BIAS or op.clamp is not None:
            return None
        operands.append(builder.param(f"{node.name}.bias", bias))
    else:
        bounds = _bounds(node)
        if bounds is None:
            return None
        low, high = (min(max(bound, bounds[0]), bounds[1]) for bound in op.clamp or NO_BOUNDS)
        op = replace(op, clamp=(low, high))
    return builder.add(op, operands, node.name, None, node.sources)


def _bounds(node: Node) -> tuple[float, float] | None:
    if isinstance(node.op, Activation) and node.op.fn is ActivationFn.RELU:
        return 0.0, NO_BOUNDS[1]
    return (node.op.min, node.op.max) if isinstance(node.op, Clamp) else None
