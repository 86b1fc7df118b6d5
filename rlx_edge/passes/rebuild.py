"""What every pass starts from: a builder for the new graph, and questions about the old one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_edge.ir import Array, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Activation, Binary, Clamp, Conv, Layout, MatMul, QConv2d, QMatMul

Ids = dict[int, int]
"""Node of the old graph -> node of the new one."""

Rule = Callable[[Graph, Node, GraphBuilder, Ids], int | None]
"""Builds the replacement of one node and returns its id, or returns None to have the node copied."""


def builder_like(graph: Graph) -> GraphBuilder:
    """An empty builder with the graph's name and metadata."""
    builder = GraphBuilder(graph.name)
    builder.metadata.update(graph.metadata)
    return builder


def rebuild(graph: Graph, rule: Rule) -> Graph:
    """The graph with `rule` applied to every node, in order."""
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        replaced = rule(graph, node, builder, ids)
        ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph) if replaced is None else replaced
    return builder.build([ids[i] for i in graph.outputs])


def only_user(graph: Graph, node: Node) -> Node | None:
    """The single node that reads this one, or None: also where the value is an output of the graph."""
    users = graph.users[node.id]
    return graph.nodes[users[0]] if len(users) == 1 and node.id not in graph.outputs else None


def is_pointwise(node: Node) -> bool:
    """Whether each output element depends on one operand element alone, wherever it is."""
    return isinstance(node.op, Activation | Clamp)


def channel_axis(node: Node) -> int:
    """The axis of the output channels of a convolution or matrix multiply."""
    return 1 if isinstance(node.op, Conv | QConv2d) and node.op.layout is Layout.NCHW else len(node.type.shape) - 1


def channel_vector(values: Array, node: Node) -> Array | None:
    """Values [C] of a constant that, broadcast against the node's output, is one value a channel; None if it is not."""
    shape, axis = node.type.shape, channel_axis(node)
    if values.ndim > len(shape):
        return None
    full = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(size != 1 for i, size in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


def constant_operand(graph: Graph, binary: Node) -> tuple[int, Array] | None:
    """(position, values) of the constant operand of a Binary whose other operand is computed."""
    assert isinstance(binary.op, Binary)
    values = [graph.constant(operand) for operand in graph.operands(binary)]
    if (values[0] is None) == (values[1] is None):
        return None
    return next((i, v) for i, v in enumerate(values) if v is not None)


def is_anchor(graph: Graph, node: Node) -> bool:
    """A convolution or matrix multiply with constant weights: what scales, biases and activations are worked into."""
    if not isinstance(node.op, Conv | MatMul | QConv2d | QMatMul):
        return False
    return graph.constant(graph.nodes[node.inputs[1]]) is not None
