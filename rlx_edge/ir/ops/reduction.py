"""Reductions and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import FrozenScale, FrozenSoftmax, Requant
from rlx_edge.ir.ops.base import Op, normalize_axis
from rlx_edge.ir.tensor import Shape, TensorType


class ReduceOp(Enum):
    """Reductions; the values are the vocabulary's names."""

    SUM = "Sum"
    MEAN = "Mean"
    MAX = "Max"
    MIN = "Min"
    PROD = "Prod"


@dataclass(frozen=True)
class Reduce(Op):
    """Reduce along `axes`."""

    op: ReduceOp
    axes: tuple[int, ...]
    keep_dim: bool
    requant: Requant = Requant.RLX
    frozen: FrozenScale | None = None

    def display(self) -> str:
        return f"reduce_{self.op.value}({list(self.axes)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        axes = {normalize_axis(axis, len(shape)) for axis in self.axes}
        kept = [(axis in axes, size) for axis, size in enumerate(shape)]
        if self.keep_dim:
            return tuple(1 if gone else size for gone, size in kept), operands[0].dtype
        return tuple(size for gone, size in kept if not gone), operands[0].dtype


@dataclass(frozen=True)
class Softmax(Op):
    """exp(beta * x) / sum(exp(beta * x)) along `axis`. On int8 the output's scale is 1/256, its zero point -128."""

    axis: int
    beta: float = 1.0
    requant: Requant = Requant.RLX
    frozen: FrozenSoftmax | None = None

    def display(self) -> str:
        return f"softmax(axis={self.axis})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        normalize_axis(self.axis, len(operands[0].shape))
        return operands[0].shape, operands[0].dtype
