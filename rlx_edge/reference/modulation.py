"""What the normalizations of ir/ops/modulation.py mean: all in float64, the result rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.modulation import AdaLayerNorm, AdaNormKind, BatchNormInference, LayerNorm2d
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def batch_norm_inference(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, BatchNormInference)
    with np.errstate(all="ignore"):
        data, gamma, beta, mean, variance = (value.astype(np.float64) for value in x)
        return np.asarray(gamma * ((data - mean) / np.sqrt(variance + op.eps)) + beta).astype(out.dtype.numpy)


def layer_norm2d(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, LayerNorm2d)
    gamma, beta = (factor.astype(np.float64).reshape(-1, 1, 1) for factor in x[1:])
    return np.asarray(gamma * _standardized(x[0], 1, op.eps) + beta).astype(out.dtype.numpy)


def ada_layer_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, AdaLayerNorm)
    normal = {AdaNormKind.LAYER_NORM: _standardized, AdaNormKind.RMS_NORM: _scaled}[op.norm](x[0], -1, op.eps)
    scale, shift = (factor.astype(np.float64) for factor in x[1:])
    return np.asarray(normal * (1.0 + scale) + shift).astype(out.dtype.numpy)


def _standardized(x: Array, axis: int, eps: float) -> Array:
    wide = x.astype(np.float64)
    return _scaled(wide - wide.mean(axis=axis, keepdims=True), axis, eps)


def _scaled(x: Array, axis: int, eps: float) -> Array:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return np.asarray(wide / np.sqrt((wide**2).mean(axis=axis, keepdims=True) + eps))


FUNCTIONS: dict[type[Op], OpFunction] = {
    BatchNormInference: batch_norm_inference,
    LayerNorm2d: layer_norm2d,
    AdaLayerNorm: ada_layer_norm,
}
