"""Reductions and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import FrozenExp, FrozenScale, FrozenSoftmax, Requant
from rlx_edge.ir.ops.base import Op, ShapeError, normalize_axis
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

    text: ClassVar[str] = "reduce_{op:?}({axes:?})"
    op: ReduceOp
    axes: tuple[int, ...]
    keep_dim: bool
    requant: Requant = Requant.RLX
    frozen: FrozenScale | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        axes = {normalize_axis(axis, len(shape)) for axis in self.axes}
        if len(axes) != len(self.axes):
            raise ShapeError(f"axes {list(self.axes)} name one twice")
        kept = [(axis in axes, size) for axis, size in enumerate(shape)]
        if self.keep_dim:
            return tuple(1 if gone else size for gone, size in kept), operands[0].dtype
        return tuple(size for gone, size in kept if not gone), operands[0].dtype


@dataclass(frozen=True)
class Softmax(Op):
    """exp(beta * x) / sum(exp(beta * x)) along `axis`.

    On int8 the output's scale is 1/256 and its zero point -128; under the rule `onnx`, any.
    """

    text: ClassVar[str] = "softmax(axis={axis})"
    axis: int
    beta: float = 1.0
    requant: Requant = Requant.RLX
    frozen: FrozenSoftmax | FrozenExp | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        normalize_axis(self.axis, len(operands[0].shape))
        return operands[0].shape, operands[0].dtype


@dataclass(frozen=True)
class Cumsum(Op):
    """Sums of all elements up to each one along an axis; `exclusive` leaves the element itself out."""

    axis: int
    exclusive: bool

    def display(self) -> str:
        return f"cumsum(axis={self.axis}{',excl' if self.exclusive else ''})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _same_with_axis(self.axis, operands[0])


@dataclass(frozen=True)
class CumProd(Op):
    """Products of all elements up to each one along an axis; `exclusive` leaves the element itself out."""

    axis: int
    exclusive: bool

    def display(self) -> str:
        return f"cumprod(axis={self.axis}{',excl' if self.exclusive else ''})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _same_with_axis(self.axis, operands[0])


INDEX_LIMIT = 1 << 24
"""float32 holds every integer up to here: indices that are float32 come from axes of at most so many elements."""


@dataclass(frozen=True)
class ArgMax(Op):
    """Index of the largest element along an axis, of the first one among equals; float32, as in the vocabulary."""

    text: ClassVar[str] = "argmax(axis={axis},keep={keep_dim})"
    axis: int
    keep_dim: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _index_shape(self.axis, self.keep_dim, operands[0]), DType.F32


@dataclass(frozen=True)
class ArgMin(Op):
    """Index of the smallest element along an axis; see ArgMax."""

    text: ClassVar[str] = "argmin(axis={axis},keep={keep_dim})"
    axis: int
    keep_dim: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _index_shape(self.axis, self.keep_dim, operands[0]), DType.F32


@dataclass(frozen=True)
class TopK(Op):
    """Indices (float32) of the k largest elements along the last axis, largest first; among equals, smaller indices."""

    text: ClassVar[str] = "topk(k={k})"
    k: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        _index_shape(-1, True, operands[0])
        if not 1 <= self.k <= shape[-1]:
            raise ShapeError(f"the {self.k} largest of {shape[-1]} elements")
        return (*shape[:-1], self.k), DType.F32


@dataclass(frozen=True)
class ArgSort(Op):
    """Indices (float32) that sort along an axis; equal elements keep their order."""

    text: ClassVar[str] = "argsort(axis={axis},desc={descending})"
    axis: int
    descending: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _index_shape(self.axis, True, operands[0])
        return operands[0].shape, DType.F32


def _same_with_axis(axis: int, x: TensorType) -> tuple[Shape, DType]:
    normalize_axis(axis, len(x.shape))
    if x.dtype is DType.BOOL:
        raise ShapeError("bool does not add up; a float or integer operand is needed")
    return x.shape, x.dtype


def _index_shape(axis: int, keep_dim: bool, x: TensorType) -> Shape:
    axis = normalize_axis(axis, len(x.shape))
    if x.shape[axis] > INDEX_LIMIT:
        raise ShapeError(f"an axis of {x.shape[axis]} elements; float32 indices reach to {INDEX_LIMIT}")
    return (*x.shape[:axis], *((1,) if keep_dim else ()), *x.shape[axis + 1 :])
