"""From a node to the kernel calls that compute it: one table, op kind -> function."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.cgen import lower_elementwise, lower_moves, lower_reductions, lower_windows
from rlx_edge.cgen.plan import Call, Step
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Dequantize,
    Leaf,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Softmax,
    Transpose,
)

LOWER: dict[type[Op], Callable[[Graph, Node], tuple[Call, ...]]] = {
    QConv2d: lower_windows.conv,
    QMatMul: lower_windows.dense,
    Pool: lower_windows.pool,
    Binary: lower_elementwise.binary,
    Quantize: lower_elementwise.quantize,
    Dequantize: lower_elementwise.dequantize,
    Activation: lower_elementwise.activation,
    Clamp: lower_elementwise.clamp,
    Reduce: lower_reductions.mean,
    Softmax: lower_reductions.softmax,
    Reshape: lambda graph, node: (),
    Transpose: lower_moves.transpose,
    Pad: lower_moves.pad,
    Concat: lower_moves.concat,
}


def lower(graph: Graph) -> tuple[Step, ...]:
    """A step per computed node, in the graph's order. The graph must be legal for its target."""
    return tuple(
        Step(node.id, LOWER[type(node.op)](graph, node)) for node in graph.nodes if not isinstance(node.op, Leaf)
    )
