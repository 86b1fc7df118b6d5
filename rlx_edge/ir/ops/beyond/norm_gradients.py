"""Gradients of normalizations. The statistics are made anew from x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact, normalize_axis
from rlx_edge.ir.ops.beyond.needs import require_like
from rlx_edge.ir.ops.checks import require, require_floats, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class LayerNormBackwardInput(Op):
    """Operands x, gamma [D], dy: the gradient of LayerNorm for x."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "layer_norm_backward_input(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, dy = operands
        _checked(x, dy, _along(self.axis, x), gamma)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class LayerNormBackwardGamma(Op):
    """Operands x, dy: the gradient of LayerNorm for gamma, [D]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "layer_norm_backward_gamma(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        return _checked(x, dy, _along(self.axis, x)), require_floats(operands)


@dataclass(frozen=True)
class RmsNormBackwardInput(Op):
    """Operands x, gamma [D], beta [D], dy: the gradient of RmsNorm for x."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "rms_norm_backward_input(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, beta, dy = operands
        _checked(x, dy, _along(self.axis, x), gamma, beta)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class RmsNormBackwardGamma(Op):
    """Operands x, gamma [D], beta [D], dy: the gradient of RmsNorm for gamma, [D]."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "rms_norm_backward_gamma(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, beta, dy = operands
        return _checked(x, dy, _along(self.axis, x), gamma, beta), require_floats(operands)


@dataclass(frozen=True)
class RmsNormBackwardBeta(Op):
    """Operands x, gamma [D], beta [D], dy: the gradient of RmsNorm for beta, [D]."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "rms_norm_backward_beta(eps={eps})"
    axis: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, beta, dy = operands
        return _checked(x, dy, _along(self.axis, x), gamma, beta), require_floats(operands)


@dataclass(frozen=True)
class GroupNormBackwardInput(Op):
    """Operands x [N, C, ..], gamma [C], beta [C], dy: the gradient of GroupNorm for x."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "group_norm_backward_input(g={num_groups},eps={eps})"
    num_groups: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, beta, dy = operands
        _checked(x, dy, _grouped(self.num_groups, x), gamma, beta)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class GroupNormBackwardGamma(Op):
    """Operands x [N, C, ..], dy: the gradient of GroupNorm for gamma, [C]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "group_norm_backward_gamma(g={num_groups},eps={eps})"
    num_groups: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        return _checked(x, dy, _grouped(self.num_groups, x)), require_floats(operands)


@dataclass(frozen=True)
class GroupNormBackwardBeta(Op):
    """Operands x [N, C, ..], dy: the gradient of GroupNorm for beta, [C]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "group_norm_backward_beta(g={num_groups},eps={eps})"
    num_groups: int
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        return _checked(x, dy, _grouped(self.num_groups, x)), require_floats(operands)


@dataclass(frozen=True)
class BatchNormInferenceBackwardInput(Op):
    """Operands x [.., C], gamma, mean, variance [C], dy: the gradient of BatchNormInference for x."""

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "batch_norm_inference_backward_input(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, gamma, mean, variance, dy = operands
        _checked(x, dy, _along(-1, x), gamma, mean, variance)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class BatchNormInferenceBackwardGamma(Op):
    """Operands x [.., C], mean, variance [C], dy: the gradient of BatchNormInference for gamma, [C]."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "batch_norm_inference_backward_gamma(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, mean, variance, dy = operands
        return _checked(x, dy, _along(-1, x), mean, variance), require_floats(operands)


@dataclass(frozen=True)
class BatchNormInferenceBackwardBeta(Op):
    """Operand dy [.., C]: the gradient of BatchNormInference for beta, [C]."""

    text: ClassVar[str] = "batch_norm_inference_backward_beta"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _along(-1, operands[0]), require_floats(operands)


def _along(axis: int, x: TensorType) -> Shape:
    """The shape of a factor with one value for each index of an axis of x."""
    return (x.shape[normalize_axis(axis, len(x.shape))],)


def _grouped(num_groups: int, x: TensorType) -> Shape:
    fits = len(x.shape) >= 2 and num_groups > 0 and x.shape[1] % num_groups == 0
    require(fits, f"{num_groups} groups of channels on a tensor of shape {list(x.shape)}")
    return x.shape[1:2]


def _checked(x: TensorType, dy: TensorType, size: Shape, *factors: TensorType) -> Shape:
    """The shape of each factor. Raises ShapeError unless they have it, and dy is like x."""
    require_like("dy", dy, "x", x)
    for factor in factors:
        require_shape("a factor", factor, size)
    return size


KINDS: tuple[type[Op], ...] = (
    *(LayerNormBackwardInput, LayerNormBackwardGamma),
    *(RmsNormBackwardInput, RmsNormBackwardGamma, RmsNormBackwardBeta),
    *(GroupNormBackwardInput, GroupNormBackwardGamma, GroupNormBackwardBeta),
    *(BatchNormInferenceBackwardInput, BatchNormInferenceBackwardGamma, BatchNormInferenceBackwardBeta),
)
