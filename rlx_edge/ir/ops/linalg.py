"""Linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, broadcast_shapes, exact
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class MatMul(Op):
    """[.., M, K] times [.., K, N]; batch axes broadcast."""

    operand_count: ClassVar[Arity] = exact(2)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, b = operands[0].shape, operands[1].shape
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            raise ShapeError(f"{list(a)} and {list(b)} are not [.., M, K] and [.., K, N]")
        return (*broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]), operands[0].dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return out.elements * operands[0].shape[-1]
