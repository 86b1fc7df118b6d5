"""Which parameters each tensor of the int8 graph gets.

Most tensors get parameters from their own range. Ops that only move or select elements keep their operand's; softmax
has fixed ones; what only a concatenation reads is computed at the concatenation's parameters straight away.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx_edge.errors import ModelError
from rlx_edge.ir import Graph, Node, QuantParams
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Conv,
    Input,
    MatMul,
    Op,
    Pad,
    Pool,
    Reduce,
    Reshape,
    Softmax,
    Transpose,
)
from rlx_edge.passes.fuse import Fusion, fused_away
from rlx_edge.passes.rebuild import only_user
from rlx_edge.quant.observers import Range
from rlx_edge.quant.schemes import SOFTMAX_OUTPUT, activation_params, constant_params

OWN_RANGE: tuple[type[Op], ...] = (Input, Conv, MatMul, Binary, Activation, Clamp, Reduce, Concat)
"""Ops whose output gets parameters of its own."""

OPERANDS: tuple[type[Op], ...] = (Pool, Reshape, Transpose)
"""Ops whose output keeps the operand's parameters: each output value is, or lies among, operand values."""


def assign_params(graph: Graph, fusions: Mapping[int, Fusion], ranges: Mapping[str, Range]) -> dict[int, QuantParams]:
    """Parameters by node id, for every tensor that the int8 graph stores, and for constant operands.

    Raises ModelError when the calibration lacks a tensor: it was made on another graph.
    """
    inside = fused_away(graph, dict(fusions))
    source = _range_sources(graph)
    params: dict[int, QuantParams] = {}
    for node in graph.nodes:
        if node.id in inside:
            continue
        values = graph.constant(node)
        if values is not None:
            params[node.id] = constant_params(values)
        elif isinstance(node.op, Softmax):
            params[node.id] = SOFTMAX_OUTPUT
        elif isinstance(node.op, OPERANDS) or keeps_params(node):
            params[node.id] = params[node.inputs[0]]
        else:
            params[node.id] = activation_params(_range(graph.nodes[source.get(node.id, node.id)], ranges))
    return params


def keeps_params(node: Node) -> bool:
    """Whether padding with this value needs no parameters of its own: 0 is always a code."""
    return isinstance(node.op, Pad) and node.op.value == 0.0


def _range_sources(graph: Graph) -> dict[int, int]:
    """Tensor -> the concatenation whose range it takes, because nothing else reads it."""
    found: dict[int, int] = {}
    for node in reversed(graph.nodes):
        if isinstance(node.op, Concat):
            for operand in graph.operands(node):
                if isinstance(operand.op, OWN_RANGE) and only_user(graph, operand) is node:
                    found[operand.id] = found.get(node.id, node.id)
    return found


def _range(node: Node, ranges: Mapping[str, Range]) -> Range:
    if node.name not in ranges:
        raise ModelError(f"{node} has no range in the calibration: calibrate this very model")
    return ranges[node.name]
