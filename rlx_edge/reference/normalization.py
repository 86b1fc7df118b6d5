"""What normalization by a tensor's own statistics means: statistics in float64, the result rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import GroupNorm, LayerNorm, Op, RmsNorm

Types = Sequence[TensorType]


def _along(factor: Array, axis: int, rank: int) -> Array:
    """A vector, shaped so that it broadcasts along one axis of a tensor."""
    shape = [1] * rank
    shape[axis] = factor.shape[0]
    return factor.astype(np.float64).reshape(shape)


def _standardized(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = x.mean(axis=axes, keepdims=True)
    variance = x.var(axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        return np.asarray((x - mean) / np.sqrt(variance + eps))


def layer_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, LayerNorm)
    gamma, beta = (_along(factor, op.axis, x[0].ndim) for factor in x[1:])
    normal = _standardized(x[0].astype(np.float64), (op.axis,), op.eps)
    return np.asarray(gamma * normal + beta).astype(np.float32)


def rms_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, RmsNorm)
    wide = x[0].astype(np.float64)
    with np.errstate(all="ignore"):
        normal = wide / np.sqrt((wide**2).mean(axis=op.axis, keepdims=True) + op.eps)
    gamma, *beta = (_along(factor, op.axis, x[0].ndim) for factor in x[1:])
    return np.asarray(sum(beta, start=gamma * normal)).astype(np.float32)


def group_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, GroupNorm)
    gamma, beta = (_along(factor, 1, x[0].ndim) for factor in x[1:])
    groups = x[0].astype(np.float64).reshape(x[0].shape[0], op.num_groups, -1)
    normal = _standardized(groups, (2,), op.eps).reshape(x[0].shape)
    return np.asarray(gamma * normal + beta).astype(np.float32)
