"""Ops that move bytes, as kernel calls."""

from __future__ import annotations

import math

from rlx_edge.cgen import kernels
from rlx_edge.cgen.plan import Call, View
from rlx_edge.cgen.rows import image_views
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Concat, Pad, Transpose
from rlx_edge.reference.integer import pad_value


def concat(graph: Graph, node: Node) -> tuple[Call, ...]:
    """Each operand is copied, row by row, to its place in the output's rows."""
    assert isinstance(node.op, Concat)
    shape = node.type.shape
    axis = node.op.axis % len(shape)
    size = node.type.dtype.bits // 8
    rows, pitch = math.prod(shape[:axis]), math.prod(shape[axis:]) * size
    calls, offset = [], 0
    for operand in graph.operands(node):
        chunk = math.prod(operand.type.shape[axis:]) * size
        calls.append(
            Call(kernels.COPY, {"bytes": chunk}, (View(operand.id, chunk),), View(node.id, pitch, offset), rows)
        )
        offset += chunk
    return tuple(calls)


def pad(graph: Graph, node: Node) -> tuple[Call, ...]:
    """Shapes are padded in front to [N, H, W, C]; the batch axis is not padded."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Pad)
    rank = len(node.type.shape)
    in_n, in_h, in_w, in_c = (1,) * (4 - rank) + x.type.shape
    _, out_h, out_w, out_c = (1,) * (4 - rank) + node.type.shape
    _, (top, _), (left, _), (front, _) = ((0, 0),) * (4 - rank) + op.pads
    params = dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c, top=top, left=left, front=front)
    params |= {"value": int(pad_value(op, x.type))}
    in_pitch, out_pitch = in_w * in_c, out_w * out_c
    return tuple(
        Call(
            kernels.PAD,
            params,
            (View(x.id, in_pitch, image * in_h * in_pitch),),
            View(node.id, out_pitch, image * out_h * out_pitch),
            out_h,
        )
        for image in range(in_n)
    )


def transpose(graph: Graph, node: Node) -> tuple[Call, ...]:
    """Axes of size 1 are put in front until there are four."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Transpose)
    missing = 4 - len(op.perm)
    shape = (1,) * missing + x.type.shape
    perm = (*range(missing), *(axis + missing for axis in op.perm))
    steps = [math.prod(shape[axis + 1 :]) for axis in range(4)]
    d0, d1, d2, d3 = (shape[axis] for axis in perm)
    params = dict(d1=d1, d2=d2, d3=d3) | {f"stride_{i}": steps[axis] for i, axis in enumerate(perm)}
    (source, *_) = image_views(x.type, x.id)
    return (Call(kernels.TRANSPOSE, params, (source,), View(node.id, d1 * d2 * d3), d0),)
