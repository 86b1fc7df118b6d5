"""Moves that targets lack, made of those that they have: the same elements, on int8 too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlx_edge.ir import Array, Graph
from rlx_edge.ir.ops import Expand, Gather, Op, Pad, PadMode, Reshape, Reverse, Slice, Tile
from rlx_edge.passes.parts import PartRule, Parts, replace_kinds


def decompose(graph: Graph) -> Graph:
    """The same function without tiles, paddings by the tensor's own elements, and gathers by known indices."""
    return replace_kinds(graph, RULES)


def tile(parts: Parts) -> int | None:
    assert isinstance(parts.node.op, Tile)
    (x,) = parts.operands
    for axis, count in enumerate(parts.node.op.reps):
        if count > 1:
            x = parts.repeat(x, axis, count, each=False)
    return _own(parts, x)


def pad(parts: Parts) -> int | None:
    """Padding by elements of the tensor itself, one axis after the other."""
    op = parts.node.op
    assert isinstance(op, Pad)
    if op.mode is PadMode.CONSTANT:
        return None
    (x,) = parts.operands
    for axis, (before, after) in enumerate(op.pads):
        if before or after:
            x = parts.join(list(_padded(parts, op.mode, x, axis, before, after)), axis)
    return _own(parts, x)


def _own(parts: Parts, x: int) -> int:
    """What was made; where that is nothing, a node all the same: the operand may be another output of the graph."""
    return x if x != parts.operands[0] else parts.add(Reshape(parts.shape(x)), x)


def _padded(parts: Parts, mode: PadMode, x: int, axis: int, before: int, after: int) -> Iterator[int]:
    size = parts.shape(x)[axis]
    if before:
        yield _border(parts, mode, x, axis, before, {PadMode.REFLECT: 1, PadMode.CIRCULAR: size - before}.get(mode, 0))
    yield x
    if after:
        firsts = {PadMode.REFLECT: size - 1 - after, PadMode.CIRCULAR: 0}
        yield _border(parts, mode, x, axis, after, firsts.get(mode, size - 1))


def _border(parts: Parts, mode: PadMode, x: int, axis: int, count: int, first: int) -> int:
    """`count` elements from `first` on; turned around where the padding is a mirror; the edge alone, repeated."""
    if mode is PadMode.REPLICATE:
        edge = parts.narrow(x, axis, first, 1)
        shape = parts.shape(edge)
        return edge if count == 1 else parts.add(Expand((*shape[:axis], count, *shape[axis + 1 :])), edge)
    border = parts.narrow(x, axis, first, count)
    return parts.add(Reverse((axis,)), border) if mode is PadMode.REFLECT and count > 1 else border


def gather(parts: Parts) -> int | None:
    """By indices that are known: slices, where these are few."""
    op = parts.node.op
    assert isinstance(op, Gather)
    data, indices = (parts.graph.nodes[i] for i in parts.node.inputs)
    known = parts.graph.constant(indices)
    rank = len(data.type.shape)
    axis = op.axis % rank
    if known is None or known.size == 0 or parts.graph.constant(data) is not None:
        return None
    size = data.type.shape[axis]
    repeated = _repetition(known, size)
    if repeated:
        x = parts.repeat(parts.operands[0], axis, repeated, each=True)
        return parts.reshape(x, parts.node.type.shape)
    runs = list(_runs([int(i) % size for i in known.reshape(-1) if -size <= i < size]))
    if len(runs) > MAX_RUNS or sum(count for _, count, _ in runs) != known.size:
        return None
    x, shape = parts.operands[0], parts.node.type.shape
    slices = [
        parts.narrow(x, axis, first, count) if step == 1 else parts.add(Slice(axis, first, count, step), x)
        for first, count, step in runs
    ]
    joined = parts.join(slices, axis)
    return joined if joined != x and parts.shape(joined) == shape else parts.add(Reshape(shape), joined)


MAX_RUNS = 16
"""Slices that one Gather becomes at most."""


def _repetition(indices: Array, size: int) -> int:
    """How often, from twice on, every element of the axis stands in a row; 0: it is not so."""
    count = indices.size // size
    return count if count > 1 and np.array_equal(indices.reshape(-1), np.arange(size).repeat(count)) else 0


def _runs(indices: list[int]) -> Iterator[tuple[int, int, int]]:
    """The indices as (first, count, step), each as long as it can be; a step is not 0, so repeated ones are apart."""
    at = 0
    while at < len(indices):
        first = indices[at]
        step = indices[at + 1] - first if at + 1 < len(indices) else 1
        count = 1
        while step and at + count < len(indices) and indices[at + count] == first + count * step:
            count += 1
        yield first, count, step if count > 1 else 1
        at += count


RULES: Mapping[type[Op], PartRule] = {Tile: tile, Pad: pad, Gather: gather}
