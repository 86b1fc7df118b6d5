"""Ops that move bytes, as kernel calls."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_edge.cgen import kernels
from rlx_edge.cgen.plan import Call, View
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Concat, Expand, Narrow, Pad, Reverse, Slice, Transpose
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
    assert isinstance(node.op, Transpose)
    strides = _strides(graph, node)
    return _strided(node, [strides[axis] for axis in node.op.perm])


def narrow(graph: Graph, node: Node) -> tuple[Call, ...]:
    """The rows of every index before the axis lie together: each is copied at once."""
    assert isinstance(node.op, Narrow)
    shape, axis = node.type.shape, node.op.axis % len(node.type.shape)
    within = math.prod(shape[axis + 1 :])
    pitch = graph.nodes[node.inputs[0]].type.shape[axis] * within
    chunk = node.op.len * within
    source = View(node.inputs[0], pitch, node.op.start * within)
    return (Call(kernels.COPY, {"bytes": chunk}, (source,), View(node.id, chunk), math.prod(shape[:axis])),)


def slice(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Slice)
    strides, axis = _strides(graph, node), node.op.axis % len(node.type.shape)
    first = node.op.start * strides[axis]
    strides[axis] *= node.op.step
    return _strided(node, strides, first)


def reverse(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Reverse)
    strides, first = _strides(graph, node), 0
    for axis in node.op.axes:
        first += (node.type.shape[axis] - 1) * strides[axis]
        strides[axis] *= -1
    return _strided(node, strides, first)


def expand(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Expand)
    shape, strides = graph.nodes[node.inputs[0]].type.shape, _strides(graph, node)
    repeated = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    return _strided(node, [0] * (len(node.type.shape) - len(shape)) + repeated)


def _strides(graph: Graph, node: Node) -> list[int]:
    """Of the operand, in elements."""
    shape = graph.nodes[node.inputs[0]].type.shape
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _strided(node: Node, strides: Sequence[int], first: int = 0) -> tuple[Call, ...]:
    """Output element (i, j, ..) is element first + i * strides[0] + j * strides[1] + .. of the operand. Axes of size 1
    are put in front until there are four."""
    missing = 4 - len(strides)
    d0, d1, d2, d3 = (1,) * missing + node.type.shape
    params = dict(d1=d1, d2=d2, d3=d3)
    params |= {f"stride_{i}": stride for i, stride in enumerate([0] * missing + list(strides))}
    source = View(node.inputs[0], 0, first)
    return (Call(kernels.TRANSPOSE, params, (source,), View(node.id, d1 * d2 * d3), d0),)
