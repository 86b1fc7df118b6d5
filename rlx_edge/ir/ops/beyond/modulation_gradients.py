"""Gradients of modulation by a condition, those for all operands packed into one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require_floats, require_modulation, require_shape
from rlx_edge.ir.ops.modulation import AdaNormKind
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class AdaLayerNormBackward(Op):
    """Operands x [.., D], scale, shift, dy: the gradients of AdaLayerNorm for x, scale and shift, packed."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "ada_layer_norm_backward({norm:?},eps={eps})"
    norm: AdaNormKind
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, scale, shift, dy = operands
        require_modulation("scale", scale, x.shape)
        require_shape("shift", shift, scale.shape)
        require_shape("dy", dy, x.shape)
        return (x.elements + 2 * scale.elements,), require_floats(operands)


@dataclass(frozen=True)
class GatedResidualBackward(Op):
    """Operands x [.., D], y, gate, dy: the gradients of GatedResidual for x, y and gate, packed."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "gated_residual_backward"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, y, gate, dy = operands
        require_shape("y", y, x.shape)
        require_modulation("gate", gate, x.shape)
        require_shape("dy", dy, x.shape)
        return (2 * x.elements + gate.elements,), require_floats(operands)


KINDS: tuple[type[Op], ...] = (AdaLayerNormBackward, GatedResidualBackward)
