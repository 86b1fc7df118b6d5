"""Write every bound of values as one op, a Relu or a Clamp, so that a convolution before it can take it in.

Max and Min with one number are clamps; of clamps that follow each other one remains; one that bounds nothing goes.
"""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.ir import DType, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Clamp, Op
from rlx_edge.passes.bounds import Bounds, limited, value_bounds
from rlx_edge.passes.rebuild import Ids, constant_operand, only_user, rebuild, uniform

FLOAT_MAX = float(np.finfo(np.float32).max)
"""ONNX's Clip without a bound has this one: no finite float32 lies beyond it."""


def merge_clamps(graph: Graph) -> Graph:
    """The same function with fewer, and only plain, clamps. Looks at float32 tensors; outputs keep their names."""
    values = value_bounds(graph)
    changed = [node.id for node in graph.nodes if _changes(graph, node, values)]
    if not changed:
        return graph

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        return _clamp(graph, node, builder, ids, values)

    return rebuild(graph, rule)


def clamp_of(graph: Graph, node: Node) -> tuple[int, Bounds] | None:
    """(id of the operand, bounds) of a node that only bounds values: Relu, Clamp, Max and Min with one number."""
    if node.type.dtype is not DType.F32:
        return None
    op = node.op
    if isinstance(op, Activation):
        return (node.inputs[0], (0.0, math.inf)) if op.fn is ActivationFn.RELU else None
    if isinstance(op, Clamp):
        return (node.inputs[0], (op.min, op.max)) if op.min <= op.max else None
    if not isinstance(op, Binary) or op.fn not in (BinaryOp.MAX, BinaryOp.MIN):
        return None
    found = constant_operand(graph, node)
    limit = None if found is None else uniform(found[1])
    if found is None or limit is None:
        return None
    x = graph.nodes[node.inputs[1 - found[0]]]
    bounds = (limit, math.inf) if op.fn is BinaryOp.MAX else (-math.inf, limit)
    return (x.id, bounds) if x.type == node.type else None


def clamp_op(low: float, high: float) -> Op:
    """The op for these bounds."""
    relu = low == 0.0 and high >= FLOAT_MAX
    return Activation(ActivationFn.RELU) if relu else Clamp(low, high)


def _changes(graph: Graph, node: Node, values: list[Bounds]) -> bool:
    found = clamp_of(graph, node)
    if found is None:
        return False
    x, bounds = graph.nodes[found[0]], found[1]
    follows = clamp_of(graph, x) is not None and only_user(graph, x) is node
    return follows or clamp_op(*bounds) != node.op or _bounds_nothing(graph, node, values[x.id], bounds)


def _bounds_nothing(graph: Graph, node: Node, held: Bounds, bounds: Bounds) -> bool:
    return bounds[0] <= held[0] and held[1] <= bounds[1] and node.id not in graph.outputs


def _clamp(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids, values: list[Bounds]) -> int | None:
    found = clamp_of(graph, node)
    if found is None:
        return None
    x, bounds = graph.nodes[found[0]], found[1]
    if _bounds_nothing(graph, node, values[x.id], bounds):
        return ids[x.id]
    source = builder[ids[x.id]]
    if only_user(graph, x) is node and isinstance(source.op, Activation | Clamp):
        before = _plain_bounds(source)
        if before is not None:
            source, bounds = builder[source.inputs[0]], limited(before, *bounds)
    return builder.add(clamp_op(*bounds), [source.id], node.name, sources=node.sources)


def _plain_bounds(node: Node) -> Bounds | None:
    if isinstance(node.op, Clamp):
        return (node.op.min, node.op.max) if node.op.min <= node.op.max else None
    return (0.0, math.inf) if isinstance(node.op, Activation) and node.op.fn is ActivationFn.RELU else None
