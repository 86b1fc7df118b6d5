"""What each op means on float32 tensors. Sums are made in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Clamp, Conv, MatMul, Op, Pool, Reduce, Softmax
from rlx_edge.ir.ops.reduction import ReduceOp
from rlx_edge.reference.windows import correlate, from_nhwc, to_nhwc, windows

BINARY = {BinaryOp.ADD: np.add, BinaryOp.SUB: np.subtract, BinaryOp.MUL: np.multiply}
REDUCE: dict[ReduceOp, Callable[..., Array]] = {
    ReduceOp.SUM: np.sum,
    ReduceOp.MEAN: np.mean,
    ReduceOp.MAX: np.max,
    ReduceOp.MIN: np.min,
    ReduceOp.PROD: np.prod,
}


def binary(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Binary)
    result: Array = BINARY[op.fn](x[0], x[1])
    return result


def activation(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Activation) and op.fn is ActivationFn.RELU
    result: Array = np.maximum(x[0], x[0].dtype.type(0))
    return result


def clamp(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Clamp)
    result: Array = np.clip(x[0], np.float32(op.min), np.float32(op.max))
    return result


def matmul(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, MatMul)
    return np.asarray(np.matmul(x[0].astype(np.float64), x[1].astype(np.float64)).astype(np.float32))


def conv(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Conv)
    patches = windows(to_nhwc(x[0], op.layout), op, 0.0, op.dilation)
    sums = correlate(patches, to_nhwc(x[1], op.layout), op.groups)
    return from_nhwc(sums.astype(np.float32), op.layout)


def pool(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Pool)
    image = to_nhwc(x[0], op.layout)
    if op.kind is ReduceOp.MAX:
        result = windows(image, op, -np.inf).max(axis=(3, 4))
    else:
        sums = windows(image, op, 0.0).astype(np.float64).sum(axis=(3, 4))
        result = sums / window_counts(op, image)
    return from_nhwc(result.astype(np.float32), op.layout)


def window_counts(op: Pool, image: Array) -> Array:
    """How many positions each window averages over: [1, H_out, W_out, 1], int64."""
    if op.count_include_pad:
        return np.array(op.kernel_size[0] * op.kernel_size[1], np.int64).reshape(1, 1, 1, 1)
    ones = np.ones((1, *image.shape[1:3], 1), np.int64)
    counts: Array = windows(ones, op, 0).sum(axis=(3, 4))
    return counts


def reduce(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Reduce)
    result = REDUCE[op.op](x[0].astype(np.float64), axis=op.axes, keepdims=op.keep_dim)
    return np.asarray(result, np.float32)


def softmax(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Softmax)
    wide = x[0].astype(np.float64) * op.beta
    powers = np.exp(wide - wide.max(axis=op.axis, keepdims=True))
    return np.asarray((powers / powers.sum(axis=op.axis, keepdims=True)).astype(np.float32))
