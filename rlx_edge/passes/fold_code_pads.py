"""Padding of int8 images goes into the convolution or pooling that reads it, told by the code that fills it.

A convolution's own padding stands for the input's zero point, and so does that of a mean that counts it. In a maximum
padding never wins: a code folds that is no higher than any that the tensor can hold. On the way there, a padding moves
behind what commutes with it: elementwise functions (which then have fewer elements to do) and reshapes that only add or
remove axes of one element; of two paddings with the same code one remains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.ir import Graph, GraphBuilder, Node, Requant
from rlx_edge.ir.ops import Layout, Op, Pad, PadMode, Pool, QConv2d, ReduceOp, Reshape
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.passes.clean_shapes import MAX_RANK
from rlx_edge.passes.code_functions import function_of, holds_codes, values_on
from rlx_edge.passes.code_ranges import Ranges, code_ranges
from rlx_edge.passes.rebuild import Ids, only_user, rebuild
from rlx_edge.reference.integer import pad_value, quant_of

Sides = tuple[tuple[int, int], ...]


def fold_code_pads(graph: Graph) -> Graph:
    """The same function, to the last bit, with fewer paddings of int8 tensors. Outputs keep their names."""
    if not any(_fills(node) for node in graph.nodes):
        return graph
    ranges = code_ranges(graph)

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        pad = graph.nodes[node.inputs[0]] if node.inputs else None
        if pad is None or not _fills(pad):
            return None
        if isinstance(node.op, QConv2d | Pool):
            return _fold(graph, node, pad, builder, ids, ranges)
        return _move(graph, node, pad, builder, ids) if only_user(graph, pad) is node else None

    return rebuild(graph, rule)


def _fills(node: Node) -> bool:
    return holds_codes(node.type) and isinstance(node.op, Pad) and node.op.mode is PadMode.CONSTANT


def _code(graph: Graph, pad: Node) -> int:
    assert isinstance(pad.op, Pad)
    return int(pad_value(pad.op, graph.operand_types(pad)[0]))


# ---- Into a window ---------------------------------------------------------------------------------------------------


def _fold(graph: Graph, node: Node, pad: Node, builder: GraphBuilder, ids: Ids, ranges: Ranges) -> int | None:
    op, x = node.op, graph.nodes[pad.inputs[0]]
    assert isinstance(op, QConv2d | Pool) and isinstance(pad.op, Pad)
    if op.layout is not Layout.NHWC or x.type.quant != pad.type.quant:
        return None
    batch, rows, columns, channels = pad.op.pads
    if batch != (0, 0) or channels != (0, 0):
        return None
    top, left, bottom, right = pad_sides(op.padding)
    wider = replace(op, padding=(top + rows[0], left + columns[0], bottom + rows[1], right + columns[1]))
    folded = _into(wider, op, _code(graph, pad), quant_of(x.type).zero_point, int(ranges[x.id].low.min()))
    if folded is None:
        return None
    operands = [ids[x.id], *(ids[i] for i in node.inputs[1:])]
    return builder.add(folded, operands, node.name, node.type.quant, node.sources)


def _into(wider: QConv2d | Pool, op: QConv2d | Pool, code: int, zero_point: int, lowest: int) -> Op | None:
    if isinstance(wider, QConv2d):
        return wider if code == zero_point else None
    assert isinstance(op, Pool)
    top, left, bottom, right = pad_sides(wider.padding)
    if max(top, bottom) >= wider.kernel_size[0] or max(left, right) >= wider.kernel_size[1]:
        return None  # Some window would hold no pixel.
    if wider.kind is ReduceOp.MAX:
        return wider if code <= lowest else None
    if wider.kind is not ReduceOp.MEAN or code != zero_point or wider.requant in (Requant.ONNX, Requant.RLX):
        return None
    counted = op.count_include_pad or not any(op.padding)
    return replace(wider, count_include_pad=True) if counted else None


# ---- Behind what commutes with it ------------------------------------------------------------------------------------


def _move(graph: Graph, node: Node, pad: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    """`node` on the unpadded tensor, and the padding behind it, or None where that is not the same."""
    assert isinstance(pad.op, Pad)
    x = graph.nodes[pad.inputs[0]]
    if isinstance(node.op, Pad):
        return _join(graph, node, pad, builder, ids)
    if isinstance(node.op, Reshape):
        moved = _through_reshape(pad.op.pads, x.type.shape, pad.type.shape, node.type.shape)
        if moved is None:
            return None
        sides, shape = moved
        inner = builder.add(Reshape(shape), [ids[x.id]], f"{node.name}.unpadded", x.type.quant)
        op = replace(pad.op, pads=sides)
    elif function_of(graph, node) is not None and len(node.inputs) == 1:  # Beside a number: merge_tables comes first.
        code = int(values_on(graph, node, [np.full(1, _code(graph, pad), np.int8)])[0])
        filling = _with_code(pad.op, node, code)
        if filling is None:
            return None
        inner, op = builder.add(node.op, [ids[x.id]], f"{node.name}.unpadded", node.type.quant), filling
    else:
        return None
    return builder.add(op, [inner], node.name, node.type.quant, node.sources)


def _with_code(op: Pad, node: Node, code: int) -> Pad | None:
    """The padding that fills the node's tensor with a code. `value` is real, and must come back to the code."""
    quant = quant_of(node.type)
    filling = replace(op, value=float(np.float32((code - quant.zero_point) * quant.scale)))
    return filling if int(pad_value(filling, node.type)) == code else None


def _join(graph: Graph, node: Node, pad: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    assert isinstance(pad.op, Pad) and isinstance(node.op, Pad)
    if not _fills(node) or _code(graph, pad) != _code(graph, node):
        return None
    sides = tuple((a + c, b + d) for (a, b), (c, d) in zip(pad.op.pads, node.op.pads, strict=True))
    return builder.add(replace(node.op, pads=sides), [ids[pad.inputs[0]]], node.name, node.type.quant, node.sources)


def _through_reshape(
    sides: Sides, before: tuple[int, ...], padded: tuple[int, ...], after: tuple[int, ...]
) -> tuple[Sides, tuple[int, ...]] | None:
    """(paddings, unpadded shape) behind a reshape of `padded` to `after` that only adds or removes axes of one.

    None for any other reshape, or where kernels could not pad then.
    """
    real = [axis for axis, size in enumerate(padded) if size > 1]
    places = [axis for axis, size in enumerate(after) if size > 1]
    if [padded[axis] for axis in real] != [after[axis] for axis in places]:
        return None
    moved, shape = [(0, 0)] * len(after), [1] * len(after)
    for axis, place in zip(real, places, strict=True):
        moved[place], shape[place] = sides[axis], before[axis]
    batch_padded = len(after) == MAX_RANK and moved[0] != (0, 0)
    return None if batch_padded or len(after) > MAX_RANK else (tuple(moved), tuple(shape))
