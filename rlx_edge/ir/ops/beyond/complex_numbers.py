"""Elementwise ops of complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype
from rlx_edge.ir.ops.checks import require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class ComplexNormSq(Op):
    """Operand z (c64): re^2 + im^2 of each element, f32."""

    text: ClassVar[str] = "complex_norm_sq"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require_dtype("z", operands[0], DType.C64)
        return operands[0].shape, DType.F32


@dataclass(frozen=True)
class Conjugate(Op):
    """Operand z (c64): re - i im of each element."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require_dtype("z", operands[0], DType.C64)
        return operands[0].shape, DType.C64


@dataclass(frozen=True)
class ComplexNormSqBackward(Op):
    """Operands z (c64), g (f32): g z, the gradient of ComplexNormSq for the conjugate of z."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "complex_norm_sq_backward"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        z, g = operands
        require_dtype("z", z, DType.C64)
        require_dtype("g", g, DType.F32)
        require_shape("g", g, z.shape)
        return z.shape, DType.C64


KINDS: tuple[type[Op], ...] = (ComplexNormSq, Conjugate, ComplexNormSqBackward)
