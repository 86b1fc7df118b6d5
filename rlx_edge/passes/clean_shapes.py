"""Remove ops that leave every value where and what it is, and join reshapes and transposes that follow each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_edge.ir import DType, Graph, GraphBuilder, Node, Shape
from rlx_edge.ir.ops import (
    Binary,
    Cast,
    Compare,
    Concat,
    Expand,
    Narrow,
    Op,
    Pad,
    Pool,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Tile,
    Transpose,
    Where,
)
from rlx_edge.passes.rebuild import Ids, rebuild

MAX_RANK = 4
"""Axes that the kernels of a transpose take."""


def clean_shapes(graph: Graph) -> Graph:
    """The same function, to the last bit, with fewer ops that only move elements. Outputs keep their names."""
    kinds = (*_DOES_NOTHING, Reduce, Reshape, Transpose)
    if not any(isinstance(node.op, kinds) for node in graph.nodes):
        return graph
    return rebuild(graph, _clean)


def moves_nothing(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether a transposition of a tensor of this shape leaves its elements where they are in memory."""
    real = [axis for axis in perm if shape[axis] > 1]
    return real == sorted(real)


def _clean(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    if isinstance(node.op, Binary | Compare | Where):
        return _without_expand(graph, node, builder, ids)
    check = _DOES_NOTHING.get(type(node.op))
    if check is not None and node.id not in graph.outputs and check(node.op, graph.nodes[node.inputs[0]], node):
        return ids[node.inputs[0]]
    if isinstance(node.op, Reduce) and _reduces_nothing(node.op, graph.nodes[node.inputs[0]]):
        return _reshape(graph, node, ids[node.inputs[0]], builder)
    if isinstance(node.op, Reshape):
        operand = builder[ids[node.inputs[0]]]
        return _reshape(graph, node, operand.inputs[0] if isinstance(operand.op, Reshape) else operand.id, builder)
    return _transpose(graph, node, builder, ids) if isinstance(node.op, Transpose) else None


# ---- Ops that do nothing ---------------------------------------------------------------------------------------------


def _same_type(op: Op, x: Node, node: Node) -> bool:
    return x.type == node.type


def _one_operand(op: Op, x: Node, node: Node) -> bool:
    return len(node.inputs) == 1 and x.type == node.type


def _turns_nothing(op: Op, x: Node, node: Node) -> bool:
    assert isinstance(op, Reverse)
    return all(x.type.shape[axis] == 1 for axis in op.axes)


def _keeps_order(op: Op, x: Node, node: Node) -> bool:
    assert isinstance(op, Slice)
    return x.type == node.type and (op.step > 0 or op.len == 1)


def _single_pixels(op: Op, x: Node, node: Node) -> bool:
    """A pooling over windows of one pixel, each pixel once."""
    assert isinstance(op, Pool)
    return x.type == node.type and set(op.kernel_size) == {1} and op.clamp is None


_DOES_NOTHING: dict[type[Op], Callable[[Op, Node, Node], bool]] = {
    Cast: _same_type,
    Expand: _same_type,
    Tile: _same_type,
    Narrow: _same_type,
    Pad: _same_type,
    Slice: _keeps_order,
    Concat: _one_operand,
    Reverse: _turns_nothing,
    Pool: _single_pixels,
}
"""Whether an op leaves every value of its operand where and what it is."""


def _reduces_nothing(op: Reduce, x: Node) -> bool:
    """A reduction over axes of one element. On int8 it is a requantization."""
    return x.type.dtype is DType.F32 and all(x.type.shape[axis] == 1 for axis in op.axes)


def _without_expand(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    """An elementwise op broadcasts its operands itself."""
    operands = [ids[i] for i in node.inputs]
    sources = [builder[i].inputs[0] if isinstance(builder[i].op, Expand) else i for i in operands]
    for chosen in (sources, *_one_changed(operands, sources)):
        if chosen != operands and node.op.infer([builder[i].type for i in chosen])[0] == node.type.shape:
            return builder.add(node.op, chosen, node.name, node.type.quant, node.sources)
    return None


def _one_changed(operands: list[int], sources: list[int]) -> list[list[int]]:
    """With the source of one Expand that this op does not read twice."""
    alone = [i for i, operand in enumerate(operands) if operands.count(operand) == 1]
    return [[*operands[:i], sources[i], *operands[i + 1 :]] for i in alone]


# ---- Reshapes and transposes -----------------------------------------------------------------------------------------


def _reshape(graph: Graph, node: Node, source: int, builder: GraphBuilder) -> int:
    if builder[source].type.shape == node.type.shape and node.id not in graph.outputs:
        return source
    return builder.add(Reshape(node.type.shape), [source], node.name, node.type.quant, node.sources)


def _transpose(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int:
    assert isinstance(node.op, Transpose)
    operand = builder[ids[node.inputs[0]]]
    perm, source = node.op.perm, operand
    if isinstance(operand.op, Transpose):
        perm, source = tuple(operand.op.perm[axis] for axis in perm), builder[operand.inputs[0]]
    if perm == tuple(range(len(perm))) and node.id not in graph.outputs:
        return source.id
    if moves_nothing(source.type.shape, perm):
        return _reshape(graph, node, source.id, builder)
    if len(perm) > MAX_RANK and source.type.quant == node.type.quant:
        return _of_fewer_axes(node, perm, source, builder)
    return builder.add(Transpose(perm), [source.id], node.name, node.type.quant, node.sources)


def _of_fewer_axes(node: Node, perm: Sequence[int], source: Node, builder: GraphBuilder) -> int:
    """Axes that move together as one, axes of one element left out: a channel shuffle needs three axes."""
    shape, quant = source.type.shape, node.type.quant
    runs: list[list[int]] = []
    for axis in (axis for axis in perm if shape[axis] > 1):
        before = runs[-1][-1] if runs else None
        if before is not None and axis > before and all(shape[i] == 1 for i in range(before + 1, axis)):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) == len(perm):
        return builder.add(Transpose(tuple(perm)), [source.id], node.name, quant, node.sources)
    order = sorted(runs)
    sizes = tuple(math.prod(shape[axis] for axis in run) for run in order)
    joined = builder.add(Reshape(sizes), [source.id], f"{node.name}.joined", quant)
    moved = builder.add(Transpose(tuple(order.index(run) for run in runs)), [joined], f"{node.name}.moved", quant)
    return builder.add(Reshape(node.type.shape), [moved], node.name, quant, node.sources)
