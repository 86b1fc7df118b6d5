"""Ops that look elements up, or put them, by indices that the model computes.

Indices are int32 or int64. A negative one counts from the end, as in ONNX; one outside of the axis is an error when the
model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, exact, normalize_axis
from rlx_edge.ir.tensor import Shape, TensorType


class ScatterNdReduction(Enum):
    """How an update meets the value that is there; the values are the vocabulary's names."""

    NONE = "None"
    """It takes its place; of several for one place, the last one stays."""
    ADD = "Add"
    MUL = "Mul"
    MAX = "Max"
    MIN = "Min"


@dataclass(frozen=True)
class Gather(Op):
    """Operands data, indices: the axis of data is replaced by the axes of indices, data[.., indices[..], ..]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "gather(axis={axis})"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        data, indices = operands
        _check_indices(indices)
        axis = normalize_axis(self.axis, len(data.shape))
        return (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype


@dataclass(frozen=True)
class GatherElements(Op):
    """Operands data, indices of one rank: data at each index's own place, but for the axis, which the index tells."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "gather_elements(axis={axis})"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        data, indices = operands
        _check_indices(indices)
        _check_places(data.shape, indices.shape, self.axis)
        return indices.shape, data.dtype


@dataclass(frozen=True)
class GatherNd(Op):
    """Operands data, indices [.., k]: each row of indices names a place on the k axes of data after `batch_dims`.

    The first `batch_dims` axes are shared by data and indices.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "gather_nd(batch_dims={batch_dims})"
    batch_dims: int = 0

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        data, indices = operands
        _check_indices(indices)
        batch = self.batch_dims
        fits = 0 <= batch < min(len(data.shape), len(indices.shape)) and data.shape[:batch] == indices.shape[:batch]
        if not fits or not 1 <= indices.shape[-1] <= len(data.shape) - batch:
            raise ShapeError(
                f"indices {list(indices.shape)} into data {list(data.shape)} with {batch} shared first axes"
            )
        return (*indices.shape[:-1], *data.shape[batch + indices.shape[-1] :]), data.dtype


@dataclass(frozen=True)
class ScatterElements(Op):
    """Operands data, indices, updates of one rank: data with each update put at its own place, but for the axis."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "scatter_elements(axis={axis},{reduction:?})"
    axis: int
    reduction: ScatterNdReduction = ScatterNdReduction.NONE

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        data, indices, updates = operands
        _check_indices(indices)
        _check_places(data.shape, indices.shape, self.axis)
        _check_updates(data, updates, indices.shape)
        return data.shape, data.dtype


@dataclass(frozen=True)
class ScatterNd(Op):
    """Operands data, indices [.., k], updates: data with each update put at the place that a row of indices names."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "scatter_nd({reduction:?})"
    reduction: ScatterNdReduction = ScatterNdReduction.NONE

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        data, indices, updates = operands
        _check_indices(indices)
        if not indices.shape or not 1 <= indices.shape[-1] <= len(data.shape):
            raise ShapeError(f"indices {list(indices.shape)} into data {list(data.shape)}")
        _check_updates(data, updates, (*indices.shape[:-1], *data.shape[indices.shape[-1] :]))
        return data.shape, data.dtype


def _check_indices(indices: TensorType) -> None:
    if indices.dtype not in (DType.I32, DType.I64):
        raise ShapeError(f"indices are {indices.dtype.value}; i32 or i64 is needed")


def _check_places(data: Shape, indices: Shape, axis: int) -> None:
    axis = normalize_axis(axis, len(data))
    if len(data) != len(indices) or any(i > d for k, (i, d) in enumerate(zip(indices, data, strict=True)) if k != axis):
        raise ShapeError(f"indices {list(indices)} along axis {axis} of data {list(data)}")


def _check_updates(data: TensorType, updates: TensorType, shape: Shape) -> None:
    if updates.dtype != data.dtype or updates.shape != shape:
        raise ShapeError(f"updates {updates}; {data.dtype.value}{list(shape)} is needed")
