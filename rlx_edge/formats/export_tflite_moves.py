"""Ops that move elements, as TFLite operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_tflite_context import Exporter
from rlx_edge.formats.tflite_fused import codes_of
from rlx_edge.ir import Node, TensorType
from rlx_edge.ir.ops import Concat, Expand, Narrow, Op, Pad, Reshape, Reverse, Slice, Transpose

MAX_CONCAT_OPERANDS = 10
"""Of tflite-micro's CONCATENATION."""


def _require_equal_parameters(ex: Exporter, node: Node) -> None:
    differ = [o.name for o in ex.graph.operands(node) if o.type.quant != node.type.quant]
    if differ:
        raise UnsupportedError(f"operands {differ} with parameters other than the output's; requantize explicitly")


def reshape(ex: Exporter, node: Node) -> None:
    _require_equal_parameters(ex, node)
    shape = ex.integers(node.type.shape, "shape")
    ex.emit("RESHAPE", [*ex.operands(node), shape], ex.tensor(node), "ReshapeOptions", NewShape=node.type.shape)


def transpose(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Transpose)
    _require_equal_parameters(ex, node)
    ex.emit("TRANSPOSE", [*ex.operands(node), ex.integers(op.perm, "perm")], ex.tensor(node), "TransposeOptions")


def pad(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Pad)
    _require_equal_parameters(ex, node)
    value = op.value if node.type.quant is None else codes_of((op.value,), node.type.quant)[0]
    ex.emit_pad(node, ex.operands(node)[0], op.pads, value, ex.tensor(node))


def concat(ex: Exporter, node: Node) -> None:
    """Many operands are joined in groups, as many at a time as kernels take."""
    op = node.op
    assert isinstance(op, Concat)
    _require_equal_parameters(ex, node)
    axis = op.axis % len(node.type.shape)
    parts = ex.operands(node)
    while len(parts) > MAX_CONCAT_OPERANDS:
        group, parts = parts[:MAX_CONCAT_OPERANDS], parts[MAX_CONCAT_OPERANDS:]
        shape = list(node.type.shape)
        shape[axis] = sum(ex.tensors[index].shape[axis] for index in group)
        joined = ex.scratch(node, "joined", TensorType(tuple(shape), node.type.dtype, node.type.quant))
        parts = [_emit_concat(ex, group, joined, axis), *parts]
    _emit_concat(ex, parts, ex.tensor(node), axis)


def _emit_concat(ex: Exporter, parts: Sequence[int], output: int, axis: int) -> int:
    return ex.emit("CONCATENATION", parts, output, "ConcatenationOptions", Axis=axis)


def narrow(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Narrow)
    _require_equal_parameters(ex, node)
    begin = [0] * len(node.type.shape)
    begin[node.op.axis] = node.op.start
    bounds = [ex.integers(begin, "begin"), ex.integers(node.type.shape, "size")]
    ex.emit("SLICE", [*ex.operands(node), *bounds], ex.tensor(node), "SliceOptions")


def slice(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Slice)
    _strided_slice(ex, node, {node.op.axis % len(node.type.shape): (node.op.start, node.op.len, node.op.step)})


def reverse(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Reverse)
    shape = node.type.shape
    axes = [axis % len(shape) for axis in node.op.axes]
    _strided_slice(ex, node, {axis: (shape[axis] - 1, shape[axis], -1) for axis in axes})


def _strided_slice(ex: Exporter, node: Node, picked: Mapping[int, tuple[int, int, int]]) -> None:
    """`picked`: first element, count and step by axis. An end before the first element is said by a mask, since -1
    counts from the axis's end."""
    _require_equal_parameters(ex, node)
    begin, end, strides, mask = [0] * len(node.type.shape), list(node.type.shape), [1] * len(node.type.shape), 0
    for axis, (first, count, step) in picked.items():
        begin[axis], end[axis], strides[axis] = first, max(first + count * step, 0), step
        mask |= (first + count * step < 0) << axis
    operands = [ex.integers(values, name) for values, name in ((begin, "begin"), (end, "end"), (strides, "strides"))]
    ex.emit("STRIDED_SLICE", [*ex.operands(node), *operands], ex.tensor(node), "StridedSliceOptions", EndMask=mask)


def expand(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Expand)
    _require_equal_parameters(ex, node)
    ex.emit("BROADCAST_TO", [*ex.operands(node), ex.integers(node.type.shape, "shape")], ex.tensor(node))


MOVES: Mapping[type[Op], Callable[[Exporter, Node], None]] = {
    Reshape: reshape,
    Transpose: transpose,
    Pad: pad,
    Concat: concat,
    Narrow: narrow,
    Slice: slice,
    Expand: expand,
    Reverse: reverse,
}
"""Exported on float32 as well, around an int8 core."""
