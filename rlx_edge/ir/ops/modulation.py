"""Normalization beyond the front page: by stored statistics, across channels, and modulated by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_modulation, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class AdaNormKind(Enum):
    """The normalization of AdaLayerNorm, over the last axis; the values are the vocabulary's names."""

    LAYER_NORM = "LayerNorm"
    """(x - mean) / sqrt(variance + eps)."""
    RMS_NORM = "RmsNorm"
    """x / sqrt(mean of x^2 + eps)."""


@dataclass(frozen=True)
class BatchNormInference(Op):
    """Operands x [.., C], gamma, beta, mean, variance [C]: gamma * (x - mean) / sqrt(variance + eps) + beta."""

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "batch_norm_inference(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *factors = operands
        require(bool(x.shape), "x is a scalar; a last axis of channels is needed")
        for name, factor in zip(("gamma", "beta", "the mean", "the variance"), factors, strict=True):
            require_shape(name, factor, x.shape[-1:])
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class LayerNorm2d(Op):
    """Operands x [N, C, H, W], gamma, beta [C]: each pixel normalized across its channels, as LayerNorm does."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "layer_norm2d(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, beta = operands
        channels = require_rank("x", x, 4)[1:2]
        require_shape("gamma", gamma, channels)
        require_shape("beta", beta, channels)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class AdaLayerNorm(Op):
    """Operands x [.., D], scale and shift, which broadcast over all axes but the last: norm(x) * (1 + scale) + shift.

    `norm` is over the last axis, without factors of its own.
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "ada_layer_norm({norm:?},eps={eps})"
    norm: AdaNormKind
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, scale, shift = operands
        require_modulation("scale", scale, x.shape)
        require_shape("shift", shift, scale.shape)
        return x.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (BatchNormInference, LayerNorm2d, AdaLayerNorm)
