"""What every pass starts from: a builder for the new graph, and questions about the old one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rlx_edge.ir import Array, Graph, GraphBuilder, Node, Shape
from rlx_edge.ir.ops import Activation, Binary, Clamp, Conv, Input, Layout, MatMul, QConv2d, QMatMul

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
    """The graph with `rule` applied to every node, in order, and without what no output needs then.

    The very same object where that changes nothing.
    """
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        made = len(builder)
        replaced = rule(graph, node, builder, ids)
        if replaced is not None and replaced >= made and builder[replaced].type.shape == node.type.shape:
            builder.keep_channels(replaced, node.channels)
        ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph) if replaced is None else replaced
    outputs = [ids[i] for i in graph.outputs]
    return graph if _is_same(builder, outputs, graph) else finish(builder, outputs, graph)


def _is_same(builder: GraphBuilder, outputs: Sequence[int], graph: Graph) -> bool:
    return (
        len(builder) == len(graph.nodes)
        and tuple(outputs) == graph.outputs
        and all(builder[node.id] == node for node in graph.nodes)
        and all(values is graph.params.get(name) for name, values in builder.params.items())
    )


def finish(builder: GraphBuilder, outputs: Sequence[int], old: Graph) -> Graph:
    """The verified graph of a builder, without the nodes that no output depends on. Inputs stay.

    The outputs, in the order of those of the graph that this one comes from, get their names.
    """
    needed = set(outputs)
    for node_id in reversed(range(len(builder))):
        if node_id in needed:
            needed.update(builder[node_id].inputs)
        elif isinstance(builder[node_id].op, Input):
            needed.add(node_id)
    if len(needed) == len(builder):
        return _with_output_names(builder.build(outputs), old)
    values = Graph(builder.name, (), (), builder.params, builder.metadata)
    slim, ids = builder_like(values), Ids()
    for node_id in sorted(needed):
        node = builder[node_id]
        ids[node_id] = slim.copy(node, [ids[i] for i in node.inputs], values)
    return _with_output_names(slim.build([ids[i] for i in outputs]), old)


def _with_output_names(graph: Graph, old: Graph) -> Graph:
    """A name that a builder made unique may be that of an output: the two nodes change names."""
    names = [node.name for node in graph.nodes]
    for output, node in zip(graph.outputs, old.output_nodes, strict=True):
        if names[output] != node.name:
            if node.name in names:
                names[names.index(node.name)] = names[output]
            names[output] = node.name
    if all(node.name == name for node, name in zip(graph.nodes, names, strict=True)):
        return graph
    nodes = tuple(replace(node, name=name) for node, name in zip(graph.nodes, names, strict=True))
    return replace(graph, nodes=nodes)


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
    return vector_along(values, node.type.shape, channel_axis(node))


def vector_along(values: Array, shape: Shape, axis: int) -> Array | None:
    """Values [shape[axis]] of a constant that, broadcast against this shape, differs along one axis at most."""
    if values.ndim > len(shape):
        return None
    full = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(size != 1 for i, size in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


def uniform(values: Array | None) -> float | None:
    """The one value that all elements of a constant have; None if there is no such value, or it is not finite."""
    if values is None:
        return None
    first = values.reshape(-1)[0]
    return float(first) if math.isfinite(first) and bool((values == first).all()) else None


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
