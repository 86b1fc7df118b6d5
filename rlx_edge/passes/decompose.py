"""Ops made of others that targets and quantization know, with the same result to the last bit, on int8 too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Concat, Expand, Gather, Narrow, Op, Pad, PadMode, Reshape, Reverse, Slice, Tile
from rlx_edge.passes.rebuild import Ids, rebuild


def decompose(graph: Graph) -> Graph:
    """The same function without the kinds of RULES, wherever these have an exact form."""
    return rebuild(graph, _replace)


def _replace(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    rule, before = RULES.get(type(node.op)), len(builder)
    made = None if rule is None else rule(Parts(graph, node, builder, ids))
    if made is not None and made >= before:
        builder.rename(made, node.name, node.sources)
    return made


class Parts:
    """What one node is replaced by, in the making: every part has the node's quantization parameters."""

    def __init__(self, graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> None:
        self.graph, self.node, self.builder = graph, node, builder
        self.operands = [ids[i] for i in node.inputs]

    def shape(self, part: int) -> tuple[int, ...]:
        return self.builder[part].type.shape

    def add(self, op: Op, *operands: int) -> int:
        name = f"{self.node.name}.{op.kind_name.lower()}"
        return self.builder.add(op, operands, name, self.node.type.quant)

    def narrow(self, x: int, axis: int, start: int, count: int) -> int:
        return x if count == self.shape(x)[axis] else self.add(Narrow(axis, start, count), x)

    def join(self, parts: list[int], axis: int) -> int:
        return parts[0] if len(parts) == 1 else self.add(Concat(axis), *parts)

    def repeat(self, x: int, axis: int, count: int, *, each: bool) -> int:
        """The axis `count` times as long: each element `count` times in a row, or the whole again and again."""
        shape = self.shape(x)
        before, after = math.prod(shape[: axis + each]), math.prod(shape[axis + each :])
        apart = self.add(Expand((before, count, after)), self.add(Reshape((before, 1, after)), x))
        return self.add(Reshape((*shape[:axis], count * shape[axis], *shape[axis + 1 :])), apart)


def tile(parts: Parts) -> int | None:
    assert isinstance(parts.node.op, Tile)
    (x,) = parts.operands
    for axis, count in enumerate(parts.node.op.reps):
        if count > 1:
            x = parts.repeat(x, axis, count, each=False)
    return x if x != parts.operands[0] else None


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
    return x if x != parts.operands[0] else None


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


RULES: dict[type[Op], Callable[[Parts], int | None]] = {Tile: tile, Pad: pad, Gather: gather}
"""By the kind that is replaced; a rule returns None where it has no exact form."""
