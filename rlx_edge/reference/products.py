"""What the sums of products of ir/ops/products.py mean. Floats are summed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.products import DotGeneral, LoraMatMul, PartitionedConv
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def dot_general(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Both sides as [batch, free, contracting], then one matrix product a batch. Integers wrap."""
    assert isinstance(op, DotGeneral)
    lhs_free, rhs_free = op.free_axes(types)
    wide = np.float64 if x[0].dtype.kind == "f" else x[0].dtype
    sides = []
    for value, batch, free, contracting in (
        (x[0], op.lhs_batch, lhs_free, op.lhs_contracting),
        (x[1], op.rhs_batch, rhs_free, op.rhs_contracting),
    ):
        sizes = [math.prod(value.shape[axis] for axis in axes) for axes in (batch, free, contracting)]
        sides.append(value.astype(wide).transpose(*batch, *free, *contracting).reshape(sizes))
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(sides[0], sides[1].transpose(0, 2, 1)).reshape(out.shape)).astype(x[0].dtype)


def lora_matmul(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, LoraMatMul)
    with np.errstate(all="ignore"):
        data, weights, a, b = (value.astype(np.float64) for value in x)
        return np.asarray(data @ weights + op.scale * (data @ a @ b)).astype(out.dtype.numpy)


def partitioned_conv(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Each tap of the response adds the signal, so much later; partitions change nothing but the order of the sums."""
    data, response = (value.astype(np.float64) for value in x)
    total = np.zeros(out.shape)
    with np.errstate(all="ignore"):
        for delay, tap in enumerate(response):
            total[..., delay : delay + data.shape[-1]] += tap * data
        return total.astype(out.dtype.numpy)


FUNCTIONS: dict[type[Op], OpFunction] = {
    DotGeneral: dot_general,
    LoraMatMul: lora_matmul,
    PartitionedConv: partitioned_conv,
}
