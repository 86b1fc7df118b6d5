"""Outer rows and columns of a convolution's kernel that contribute nothing go, and the padding with them.

A row or column contributes nothing where its weights are 0, or where its taps only ever fall on padding: a 3x3 kernel
on a single pixel is a 1x1 kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.passes.int8_layers import Change, layer_of, rebuild_layers


def crop_kernels(graph: Graph) -> Graph:
    """The same graph, every tensor the same to the last bit, with smaller kernels."""
    changes = {node.id: change for node in graph.nodes if (change := _cropped(graph, node)) is not None}
    return rebuild_layers(graph, changes)


def _cropped(graph: Graph, node: Node) -> Change | None:
    crop = _crop(graph, node)
    if crop is None:
        return None
    w, bias = (graph.constant(operand) for operand in graph.operands(node)[1:])
    assert isinstance(node.op, QConv2d) and w is not None and bias is not None
    rows, columns = crop
    op = replace(
        node.op,
        kernel_size=(rows.end - rows.first, columns.end - columns.first),
        padding=(rows.before, columns.before, rows.after, columns.after),
    )
    return Change(op, np.ascontiguousarray(w[:, rows.first : rows.end, columns.first : columns.end]), bias)


@dataclass(frozen=True)
class _Axis:
    """The kernel's taps [first, end) along an axis, and the padding that these need."""

    first: int
    end: int
    before: int
    after: int


def _crop(graph: Graph, node: Node) -> tuple[_Axis, _Axis] | None:
    layer = layer_of(graph, node)
    if layer is None or not isinstance(layer.op, QConv2d):
        return None
    op, x = layer.op, graph.nodes[node.inputs[0]]
    useful = np.asarray(layer.weights.any(axis=(0, 2)) & layer.ever).reshape(op.kernel_size)
    in_rows, in_columns = np.asarray(useful.any(axis=1)), np.asarray(useful.any(axis=0))
    top, left, bottom, right = pad_sides(op.padding)
    rows = _kept(in_rows, x.type.shape[1], node.type.shape[1], op.stride[0], op.dilation[0], top, bottom)
    columns = _kept(in_columns, x.type.shape[2], node.type.shape[2], op.stride[1], op.dilation[1], left, right)
    whole = (rows.first, columns.first, rows.end, columns.end) == (0, 0, *op.kernel_size)
    return None if whole else (rows, columns)


def _kept(useful: Array, size: int, out: int, stride: int, step: int, before: int, after: int) -> _Axis:
    """The fewest taps of an axis of `size` pixels that keep every useful one and the number of outputs."""
    wanted = np.flatnonzero(useful)
    first = min(int(wanted[0]) if wanted.size else len(useful) - 1, before // step)
    for end in range(max(int(wanted[-1]) + 1 if wanted.size else 1, first + 1), len(useful)):
        # Padding behind must not be negative, and must not make room for another output.
        least = (out - 1) * stride + (end - 1 - first) * step + 1 - size - (before - first * step)
        if max(least, 0) < least + stride:
            return _Axis(first, end, before - first * step, max(least, 0))
    return _Axis(first, len(useful), before - first * step, after)
