"""Elementwise kinds that no importer makes: the identity without a gradient, the multiply-add, the gated sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require_floats, require_modulation, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class StopGradient(Op):
    """x, through which no gradient passes in training."""

    text: ClassVar[str] = "stop_gradient"


@dataclass(frozen=True)
class Fma(Op):
    """Operands a, b, c of one shape: a * b + c, rounded once."""

    operand_count: ClassVar[Arity] = exact(3)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, *others = operands
        for name, operand in zip("bc", others, strict=True):
            require_shape(name, operand, a.shape)
        return a.shape, require_floats(operands)


@dataclass(frozen=True)
class GatedResidual(Op):
    """Operands x, y [.., D] and gate, which broadcasts over all axes but the last: x + gate * y."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "gated_residual"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, y, gate = operands
        require_shape("y", y, x.shape)
        require_modulation("gate", gate, x.shape)
        return x.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (StopGradient, Fma, GatedResidual)
