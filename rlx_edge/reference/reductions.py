"""What reductions, running sums and orders mean. Float sums are made in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import ArgMax, ArgMin, ArgSort, CumProd, Cumsum, Op, Reduce, Softmax, TopK
from rlx_edge.ir.ops.reduction import ReduceOp

Types = Sequence[TensorType]

REDUCE: dict[ReduceOp, Callable[..., Array]] = {
    ReduceOp.SUM: np.sum,
    ReduceOp.MEAN: np.mean,
    ReduceOp.MAX: np.max,
    ReduceOp.MIN: np.min,
    ReduceOp.PROD: np.prod,
}


def _wide(x: Array) -> Array:
    """What sums are made in: float64, or for integers int64, which wraps as any integer of fewer bits does."""
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def reduce(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """The mean of integers rounds toward zero."""
    assert isinstance(op, Reduce)
    if op.op in (ReduceOp.MAX, ReduceOp.MIN):
        return np.asarray(REDUCE[op.op](x[0], axis=op.axes, keepdims=op.keep_dim))
    with np.errstate(all="ignore"):
        result = REDUCE[op.op](_wide(x[0]), axis=op.axes, keepdims=op.keep_dim)
        return np.asarray(result).astype(x[0].dtype)


def softmax(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Softmax)
    with np.errstate(all="ignore"):  # A row of -inf alone is NaN.
        wide = x[0].astype(np.float64) * op.beta
        powers = np.exp(wide - wide.max(axis=op.axis, keepdims=True))
        return np.asarray((powers / powers.sum(axis=op.axis, keepdims=True)).astype(np.float32))


def cumsum(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Cumsum)
    return _running(np.cumsum(_wide(x[0]), axis=op.axis), op.axis, op.exclusive, 0).astype(x[0].dtype)


def cumprod(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, CumProd)
    return _running(np.cumprod(_wide(x[0]), axis=op.axis), op.axis, op.exclusive, 1).astype(x[0].dtype)


def _running(inclusive: Array, axis: int, exclusive: bool, first: int) -> Array:
    if not exclusive:
        return inclusive
    shifted = np.roll(inclusive, 1, axis)
    np.moveaxis(shifted, axis, 0)[0] = first
    return shifted


def argmax(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ArgMax)
    return np.asarray(np.argmax(x[0], axis=op.axis, keepdims=op.keep_dim)).astype(np.float32)


def argmin(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ArgMin)
    return np.asarray(np.argmin(x[0], axis=op.axis, keepdims=op.keep_dim)).astype(np.float32)


def argsort(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ArgSort)
    return order(x[0], op.axis, op.descending).astype(np.float32)


def topk(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, TopK)
    return order(x[0], -1, descending=True)[..., : op.k].astype(np.float32)


def order(x: Array, axis: int, descending: bool) -> Array:
    """Stable. A descending order is an ascending one of the reversed axis, read from its end."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backward = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(backward, axis))
