"""Find what one integer op can compute in one go: a convolution or matrix multiply with its bias and activation.

Not a rewrite: float graphs keep separate nodes, quantization lowers each fusion to one op.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Clamp
from rlx_edge.passes.rebuild import channel_vector, constant_operand, is_anchor, only_user


@dataclass(frozen=True)
class Fusion:
    """`anchor`, then a bias [C] float64 (None: none), then bounds in real values; together they compute `last`."""

    anchor: Node
    last: Node
    bias: Array | None
    low: float = -math.inf
    high: float = math.inf


def find_fusions(graph: Graph) -> dict[int, Fusion]:
    """Every fusion, by the id of its last node. Anchors: Conv and MatMul with constant weights, and Binary."""
    found: dict[int, Fusion] = {}
    taken: set[int] = set()
    for node in graph.nodes:
        if node.id in taken or not (is_anchor(graph, node) or isinstance(node.op, Binary)):
            continue
        last, bias = (node, None) if isinstance(node.op, Binary) else _bias_after(graph, node)
        last, low, high = _bounds_after(graph, last)
        found[last.id] = Fusion(node, last, bias, low, high)
        taken.update(_between(graph, node, last))
    return found


def fused_away(graph: Graph, fusions: dict[int, Fusion]) -> set[int]:
    """The nodes inside of fusions, whose values are never stored."""
    return {i for fusion in fusions.values() for i in _between(graph, fusion.anchor, fusion.last)} - set(fusions)


def _bias_after(graph: Graph, anchor: Node) -> tuple[Node, Array | None]:
    step = only_user(graph, anchor)
    if step is None or not isinstance(step.op, Binary) or step.type.shape != anchor.type.shape:
        return anchor, None
    found = constant_operand(graph, step)
    vector = None if found is None else channel_vector(found[1], anchor)
    if found is None or vector is None:
        return anchor, None
    if step.op.fn is BinaryOp.ADD:
        return step, vector.astype(np.float64)
    if step.op.fn is BinaryOp.SUB and found[0] == 1:
        return step, -vector.astype(np.float64)
    return anchor, None


def _bounds_after(graph: Graph, node: Node) -> tuple[Node, float, float]:
    """The last of the activations that follow, and the bounds that they set together."""
    low, high = -math.inf, math.inf
    while True:
        step = only_user(graph, node)
        bounds = None if step is None else bounds_of(step)
        if step is None or bounds is None:
            return node, low, high
        low, high = (min(max(limit, bounds[0]), bounds[1]) for limit in (low, high))
        node = step


def bounds_of(node: Node) -> tuple[float, float] | None:
    """The real bounds of an activation that is a clamp; None for any other node."""
    if isinstance(node.op, Activation) and node.op.fn is ActivationFn.RELU:
        return 0.0, math.inf
    return (node.op.min, node.op.max) if isinstance(node.op, Clamp) else None


def _between(graph: Graph, first: Node, last: Node) -> list[int]:
    """The ids from `first` to `last` along single users."""
    ids = [first.id]
    while ids[-1] != last.id:
        ids.append(graph.users[ids[-1]][0])
    return ids
