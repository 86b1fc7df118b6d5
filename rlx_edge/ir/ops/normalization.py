"""Normalization by statistics of the tensor itself. (Batch-norm for inference is a Mul and an Add.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, exact, normalize_axis
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class LayerNorm(Op):
    """Operands x, gamma, beta: gamma * (x - mean) / sqrt(variance + eps) + beta over one axis of x, mostly the last.

    gamma and beta have one value for each index of the axis. The variance is that of the population.
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "layer_norm(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *factors = operands
        _check_factors(x.shape[normalize_axis(self.axis, len(x.shape))], *factors)
        return x.shape, x.dtype


@dataclass(frozen=True)
class RmsNorm(Op):
    """Operands x, gamma, beta: gamma * x / sqrt(mean of x^2 + eps) + beta over one axis of x, mostly the last.

    Ours: beta may be left out.
    """

    operand_count: ClassVar[Arity] = Arity(2, 3)
    text: ClassVar[str] = "rms_norm(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *factors = operands
        _check_factors(x.shape[normalize_axis(self.axis, len(x.shape))], *factors)
        return x.shape, x.dtype


@dataclass(frozen=True)
class GroupNorm(Op):
    """Operands x [N, C, ..], gamma [C], beta [C]: each group of C / num_groups channels of a sample normalized."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "group_norm(groups={num_groups},eps={eps})"
    num_groups: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *factors = operands
        if len(x.shape) < 2 or self.num_groups < 1 or x.shape[1] % self.num_groups:
            raise ShapeError(f"{self.num_groups} groups of channels on a tensor of shape {list(x.shape)}")
        _check_factors(x.shape[1], *factors)
        return x.shape, x.dtype


def _check_factors(size: int, *factors: TensorType) -> None:
    for factor in factors:
        if factor.shape != (size,) or factor.dtype is not DType.F32:
            raise ShapeError(f"a factor {factor}; f32[{size}] is needed")
