"""Mask constants: numbers such as -3.4e38 or -1e9 that a model adds, or pads with, to say "not here".

Taken as values, they would stretch their tensor's range until every ordinary value is 0. They are clipped instead:
below the ordinary values by as much as a softmax needs to make them 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, MatMul, Pad, Reshape, Softmax, Transpose
from rlx_edge.passes.rebuild import channel_vector, constant_operand, is_anchor
from rlx_edge.quant.observers import Range

LEAST = 1e4
"""Smaller constants are taken as values."""

FACTOR = 100.0
"""A mask is this many times larger than anything that it is added to."""

SOFTMAX_MARGIN = 8.0
"""exp(-8) is 0.0003: less than half of an int8 softmax's step, 1/256."""

METHOD = "mask"


def masked_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges without the masks, by name: of each tensor that a mask reaches, and of each constant that holds one.

    A tensor's range is bounded by those of its operands: nothing has to run again. `graph` is a prepared float graph.
    """
    found: dict[str, Range] = {}
    for node in graph.nodes:
        if isinstance(node.op, Binary):
            found.update(_added(graph, node, {**ranges, **found}))
        elif isinstance(node.op, Pad):
            found.update(_padded(graph, node, {**ranges, **found}))
    return found


def reached(graph: Graph) -> set[int]:
    """The tensors that a mask may reach: what one is added to, or pads, up to the next layer or softmax."""
    found: set[int] = set()
    for node in graph.nodes:
        passes = bool(found.intersection(node.inputs)) and not isinstance(node.op, Conv | MatMul | Softmax)
        if passes or _brings_mask(graph, node):
            found.add(node.id)
    return found


def _brings_mask(graph: Graph, node: Node) -> bool:
    if isinstance(node.op, Pad):
        return abs(node.op.value) >= LEAST
    held = _beside_constant(graph, node)
    return held is not None and bool((np.abs(held[1]) >= LEAST).any())


def mask_findings(graph: Graph, ranges: Mapping[str, Range]) -> Iterator[str]:
    """A line for each tensor whose range was freed of a mask."""
    for name, clipped in masked_ranges(graph, ranges).items():
        if name not in ranges:
            continue
        node = next(n for n in graph.nodes if n.name == name)
        was = ranges[name]
        yield (
            f"{node}: holds a mask constant, so that its range is {was.low:g} to {was.high:g}; it gets {clipped.low:g} "
            f"to {clipped.high:g}, from its ordinary values, and the mask takes the nearest of these"
        )


def _added(graph: Graph, node: Node, ranges: Mapping[str, Range]) -> dict[str, Range]:
    held = _beside_constant(graph, node)
    if held is None:
        return {}
    place, values = held
    other, constant = graph.nodes[node.inputs[1 - place]], graph.nodes[node.inputs[place]]
    if other.name not in ranges or node.name not in ranges:
        return {}
    sign = -1.0 if isinstance(node.op, Binary) and node.op.fn is BinaryOp.SUB else 1.0
    known = ranges[other.name]
    mask = _is_mask(values, known)
    if not mask.any() or mask.all():
        return {}
    plain = sign * values[~mask].astype(np.float64)
    low, high = known.low + float(plain.min()), known.high + float(plain.max())
    masked = sign * values[mask]
    low, high = _widened(graph, node, low, high, bool((masked < 0).any()), bool((masked > 0).any()))
    made = replace(ranges[node.name], low=low, high=high, method=METHOD)
    reach = sorted((sign * (low - known.high), sign * (high - known.low)))
    return {node.name: made, constant.name: Range(reach[0], reach[1], METHOD)}


def _beside_constant(graph: Graph, node: Node) -> tuple[int, Array] | None:
    """The place and the values of a constant that is added to a tensor, or taken off it; no layer's bias."""
    if not (isinstance(node.op, Binary) and node.op.fn in (BinaryOp.ADD, BinaryOp.SUB)):
        return None
    held = constant_operand(graph, node)
    if held is None or held[1].dtype.kind != "f" or (node.op.fn is BinaryOp.SUB and held[0] == 0):
        return None  # A constant minus a tensor is no mask.
    other = graph.nodes[node.inputs[1 - held[0]]]
    return None if is_anchor(graph, other) and channel_vector(held[1], other) is not None else held


def _padded(graph: Graph, node: Node, ranges: Mapping[str, Range]) -> dict[str, Range]:
    assert isinstance(node.op, Pad)
    operand = graph.nodes[node.inputs[0]]
    if operand.name not in ranges or node.name not in ranges:
        return {}
    known, value = ranges[operand.name], np.array([node.op.value])
    if not _is_mask(value, known).all():
        return {}
    low, high = _widened(graph, node, known.low, known.high, node.op.value < 0, node.op.value > 0)
    return {node.name: replace(ranges[node.name], low=low, high=high, method=METHOD)}


def _is_mask(values: Array, beside: Range) -> Array:
    limit = max(LEAST, FACTOR * max(-beside.low, beside.high))
    return np.asarray(np.abs(values) >= limit)


def _widened(graph: Graph, node: Node, low: float, high: float, below: bool, above: bool) -> tuple[float, float]:
    """Room for masks beside the ordinary values, where a softmax follows."""
    margin = _margin(graph, node)
    return low - margin * below, high + margin * above


def _margin(graph: Graph, node: Node) -> float:
    found = 0.0
    for user in (graph.nodes[i] for i in graph.users[node.id]):
        if isinstance(user.op, Softmax) and user.op.beta > 0:
            found = max(found, SOFTMAX_MARGIN / user.op.beta)
        elif isinstance(user.op, Reshape | Transpose):
            found = max(found, _margin(graph, user))
    return found
