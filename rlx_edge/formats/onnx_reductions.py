"""ONNX ops that reduce axes, run along them, or order their elements."""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError, from_start, read_axes
from rlx_edge.ir import DType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    ArgMax,
    ArgMin,
    ArgSort,
    Binary,
    BinaryOp,
    Cast,
    CmpOp,
    Compare,
    CumProd,
    Cumsum,
    GatherElements,
    Narrow,
    Op,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    Softmax,
    TopK,
)


def _over(node: OnnxNode) -> tuple[tuple[int, ...], bool]:
    """The axes of a reduction and whether they are kept; no axes where noop_with_empty_axes says so."""
    rank = node.rank(0)
    before = 13 if node.proto.op_type == "ReduceSum" else 18
    axes = read_axes(node, 1, before, default=())
    keep = node.integer("keepdims", 1) != 0
    if node.integer("noop_with_empty_axes", 0) and not axes:
        return (), keep
    return tuple(sorted(set(from_start(axes, rank)))) or tuple(range(rank)), keep


def reduction(op: ReduceOp) -> Builder:
    def build(node: OnnxNode) -> int:
        axes, keep = _over(node)
        if not axes:
            return node.result(Reshape(node.shape(0)), [node.operand(0)])
        return node.result(Reduce(op, axes, keep), [node.operand(0)])

    return build


def reduction_of(before: ActivationFn | None, after: ActivationFn | None) -> Builder:
    """A sum of a function of the elements (None: the square), and a function of the sum (None: the sum itself)."""

    def build(node: OnnxNode) -> int:
        x = node.operand(0)
        axes, keep = _over(node)
        if before is None:
            terms = node.step(Binary(BinaryOp.MUL), [x, x], "squares")
        else:
            terms = node.step(Activation(before), [x], "terms")
        return _finish(node, terms, axes, keep, after)

    return build


def log_sum(node: OnnxNode) -> int:
    axes, keep = _over(node)
    return _finish(node, node.operand(0), axes, keep, ActivationFn.LOG)


def _finish(node: OnnxNode, terms: int, axes: tuple[int, ...], keep: bool, after: ActivationFn | None) -> int:
    total: Op = Reduce(ReduceOp.SUM, axes, keep) if axes else Reshape(node.shape(0))
    if after is None:
        return node.result(total, [terms])
    return node.result(Activation(after), [node.step(total, [terms], "sum")])


def log_sum_exp(node: OnnxNode) -> int:
    """max + log(sum(exp(x - max))), which does not overflow."""
    x = node.operand(0)
    axes, keep = _over(node)
    if not axes:
        return node.result(Reshape(node.shape(0)), [x])
    most = node.step(Reduce(ReduceOp.MAX, axes, keep_dim=True), [x], "max")
    powers = node.step(Activation(ActivationFn.EXP), [node.step(Binary(BinaryOp.SUB), [x, most], "shifted")], "powers")
    total = node.step(Reduce(ReduceOp.SUM, axes, keep), [powers], "sum")
    log = node.step(Activation(ActivationFn.LOG), [total], "log")
    if not keep:
        most = node.step(Reshape(node.type_of(log).shape), [most], "max_dropped")
    return node.result(Binary(BinaryOp.ADD), [log, most])


def _rows(node: OnnxNode) -> tuple[int, int, tuple[int, ...] | None]:
    """The operand of a softmax-like op, its axis, and the shape to return to.

    Along one axis from opset 13 on; before, over all axes from `axis` to the last, taken as one.
    """
    shape = node.shape(0)
    (axis,) = from_start([node.integer("axis", -1 if node.opset >= 13 else 1)], len(shape))
    if node.opset >= 13 or axis == len(shape) - 1:
        return node.operand(0), axis, None
    flat = Reshape((math.prod(shape[:axis]), math.prod(shape[axis:])))
    return node.step(flat, [node.operand(0)], "rows"), 1, shape


def softmax(node: OnnxNode) -> int:
    x, axis, shape = _rows(node)
    if shape is None:
        return node.result(Softmax(axis), [x])
    return node.result(Reshape(shape), [node.step(Softmax(axis), [x], "softmax")])


def log_softmax(node: OnnxNode) -> int:
    """x - max - log(sum(exp(x - max))), which keeps digits where Log of Softmax has none."""
    x, axis, shape = _rows(node)
    most = node.step(Reduce(ReduceOp.MAX, (axis,), keep_dim=True), [x], "max")
    shifted = node.step(Binary(BinaryOp.SUB), [x, most], "shifted")
    powers = node.step(Activation(ActivationFn.EXP), [shifted], "powers")
    total = node.step(Reduce(ReduceOp.SUM, (axis,), keep_dim=True), [powers], "sum")
    log = node.step(Activation(ActivationFn.LOG), [total], "log")
    if shape is None:
        return node.result(Binary(BinaryOp.SUB), [shifted, log])
    return node.result(Reshape(shape), [node.step(Binary(BinaryOp.SUB), [shifted, log], "log_softmax")])


def hardmax(node: OnnxNode) -> int:
    """1 at the first largest element, 0 elsewhere."""
    x, axis, shape = _rows(node)
    held = node.type_of(x).shape
    best = node.step(ArgMax(axis, keep_dim=True), [x], "best")
    places = np.arange(held[axis], dtype=np.float32).reshape([-1 if i == axis else 1 for i in range(len(held))])
    hit = node.step(Compare(CmpOp.EQ), [best, node.values("places", places)], "hit")
    if shape is None:
        return node.result(Cast(node.dtype(0)), [hit])
    return node.result(Reshape(shape), [node.step(Cast(node.dtype(0)), [hit], "hardmax")])


def arg(largest: bool) -> Builder:
    """Indices as int64; the vocabulary's are float32. The last of several is the first of the reversed axis."""

    def build(node: OnnxNode) -> int:
        (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
        keep, last = node.integer("keepdims", 1) != 0, node.integer("select_last_index", 0) != 0
        x = node.operand(0)
        if last:
            x = node.step(Reverse((axis,)), [x], "reversed")
        op = ArgMax(axis, keep) if largest else ArgMin(axis, keep)
        index = node.step(op, [x], "index")
        if last:
            end = node.scalar("end", node.shape(0)[axis] - 1)
            index = node.step(Binary(BinaryOp.SUB), [end, index], "from_start")
        return node.result(Cast(DType.I64), [index])

    return build


def top_k(node: OnnxNode) -> list[int | None]:
    """Values by a lookup of the indices. Along the last axis and largest first, TopK; else the start of an ArgSort.

    The order of an unsorted result is free, so it is sorted too.
    """
    rank = node.rank(0)
    k = node.integer("k", 0) if node.opset < 10 else node.index(1, "operand K")
    (axis,) = from_start([node.integer("axis", -1)], rank)
    largest = node.integer("largest", 1) != 0
    node.integer("sorted", 1)
    x = node.operand(0)
    if k < 1 or k > node.shape(0)[axis]:
        raise RefusedError(f"the first {k} of {node.shape(0)[axis]} elements")
    if largest and axis == rank - 1:
        order = node.step(TopK(k), [x], "order")
    else:
        order = node.step(Narrow(axis, 0, k), [node.step(ArgSort(axis, largest), [x], "sorted")], "order")
    indices = (
        node.result(Cast(DType.I64), [order], 1) if node.wants(1) else node.step(Cast(DType.I64), [order], "indices")
    )
    return [node.result(GatherElements(axis), [x, indices]), indices]


def running(kind: type[Cumsum] | type[CumProd]) -> Builder:
    """From the axis' end where `reverse` says so."""

    def build(node: OnnxNode) -> int:
        (axis,) = from_start([node.index(1, "operand axis")], node.rank(0))
        op = kind(axis, node.integer("exclusive", 0) != 0)
        x = node.operand(0)
        if not node.integer("reverse", 0):
            return node.result(op, [x])
        turned = node.step(op, [node.step(Reverse((axis,)), [x], "reversed")], "running")
        return node.result(Reverse((axis,)), [turned])

    return build


OPS: dict[str, Builder] = {
    "ArgMax": arg(largest=True),
    "ArgMin": arg(largest=False),
    "CumProd": running(CumProd),
    "CumSum": running(Cumsum),
    "Hardmax": hardmax,
    "LogSoftmax": log_softmax,
    "ReduceL1": reduction_of(ActivationFn.ABS, None),
    "ReduceL2": reduction_of(None, ActivationFn.SQRT),
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": reduction(ReduceOp.MAX),
    "ReduceMean": reduction(ReduceOp.MEAN),
    "ReduceMin": reduction(ReduceOp.MIN),
    "ReduceProd": reduction(ReduceOp.PROD),
    "ReduceSum": reduction(ReduceOp.SUM),
    "ReduceSumSquare": reduction_of(None, None),
    "Softmax": softmax,
    "TopK": top_k,
}
