"""Bounds of a float tensor's values that follow from the ops alone, whatever the inputs are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import (
    MOVES,
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Op,
    Pad,
    Pool,
    Reduce,
    ReduceOp,
    Softmax,
)

Bounds = tuple[float, float]
"""Smallest and largest value that a tensor can hold. NaN is in no bounds, and passes through clamps."""

ANYTHING: Bounds = (-math.inf, math.inf)
NOT_NEGATIVE: Bounds = (0.0, math.inf)

OF_FUNCTION: dict[ActivationFn, Bounds] = {
    ActivationFn.SIGMOID: (0.0, 1.0),
    ActivationFn.HARD_SIGMOID: (0.0, 1.0),
    ActivationFn.TANH: (-1.0, 1.0),
    ActivationFn.ERF: (-1.0, 1.0),
    ActivationFn.SIN: (-1.0, 1.0),
    ActivationFn.COS: (-1.0, 1.0),
    ActivationFn.SIGN: (-1.0, 1.0),
    ActivationFn.SOFTSIGN: (-1.0, 1.0),
    ActivationFn.RELU: NOT_NEGATIVE,
    ActivationFn.EXP: NOT_NEGATIVE,
    ActivationFn.ABS: NOT_NEGATIVE,
    ActivationFn.SQRT: NOT_NEGATIVE,
    ActivationFn.RSQRT: NOT_NEGATIVE,
    ActivationFn.SOFTPLUS: NOT_NEGATIVE,
}


def value_bounds(graph: Graph) -> list[Bounds]:
    """By node id. Anything is assumed of what has no rule here."""
    found: list[Bounds] = []
    for node in graph.nodes:
        rule = _RULES.get(type(node.op))
        found.append(ANYTHING if rule is None else rule(node, [found[i] for i in node.inputs]))
    return found


def limited(bounds: Bounds, low: float, high: float) -> Bounds:
    """The bounds after a clamp."""
    return min(max(bounds[0], low), high), min(max(bounds[1], low), high)


def _activation(node: Node, operands: Sequence[Bounds]) -> Bounds:
    assert isinstance(node.op, Activation)
    if node.op.fn is ActivationFn.RELU:
        return limited(operands[0], *NOT_NEGATIVE)
    return OF_FUNCTION.get(node.op.fn, ANYTHING)


def _clamp(node: Node, operands: Sequence[Bounds]) -> Bounds:
    assert isinstance(node.op, Clamp)
    return limited(operands[0], node.op.min, node.op.max)


def _softmax(node: Node, operands: Sequence[Bounds]) -> Bounds:
    return 0.0, 1.0


def _binary(node: Node, operands: Sequence[Bounds]) -> Bounds:
    """Sums and products by their sign alone: the exact bounds would have to be rounded as the op rounds."""
    assert isinstance(node.op, Binary)
    (a_low, a_high), (b_low, b_high) = operands
    if node.op.fn is BinaryOp.MAX:
        return max(a_low, b_low), max(a_high, b_high)
    if node.op.fn is BinaryOp.MIN:
        return min(a_low, b_low), min(a_high, b_high)
    if node.op.fn in (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.DIV) and min(a_low, b_low) >= 0.0:
        return NOT_NEGATIVE
    return ANYTHING


def _pool(node: Node, operands: Sequence[Bounds]) -> Bounds:
    assert isinstance(node.op, Pool)
    zeros = node.op.count_include_pad and any(node.op.padding)
    return _with(operands[0], 0.0) if zeros else operands[0]


def _reduce(node: Node, operands: Sequence[Bounds]) -> Bounds:
    assert isinstance(node.op, Reduce)
    if node.op.op in (ReduceOp.SUM, ReduceOp.PROD):
        return NOT_NEGATIVE if operands[0][0] >= 0.0 else ANYTHING
    return operands[0]


def _pad(node: Node, operands: Sequence[Bounds]) -> Bounds:
    assert isinstance(node.op, Pad)
    return _with(operands[0], node.op.value)


def _moved(node: Node, operands: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in operands), max(high for _, high in operands)


def _with(bounds: Bounds, value: float) -> Bounds:
    return min(bounds[0], value), max(bounds[1], value)


_RULES: dict[type[Op], Callable[[Node, Sequence[Bounds]], Bounds]] = {
    Activation: _activation,
    Clamp: _clamp,
    Softmax: _softmax,
    Binary: _binary,
    Pool: _pool,
    Reduce: _reduce,
    Pad: _pad,
    **dict.fromkeys((*MOVES, Concat), _moved),
}
