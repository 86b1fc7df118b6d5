"""Kinds that shift, order, count and collect elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, exact, normalize_axis
from rlx_edge.ir.ops.checks import require, require_rank, require_shape
from rlx_edge.ir.ops.reduction import INDEX_LIMIT
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class Roll(Op):
    """Elements moved by `shifts` along `dims`, one pair after the other; what leaves at one end enters at the other.

    Output i along a dim is input (i - shift) mod n.
    """

    text: ClassVar[str] = "roll({shifts:?},dims={dims:?})"
    shifts: tuple[int, ...]
    dims: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (x,) = operands
        require(len(self.shifts) == len(self.dims), f"{len(self.shifts)} shifts along {len(self.dims)} dims")
        known = all(0 <= dim < len(x.shape) for dim in self.dims)
        require(known, f"dims {list(self.dims)} of a tensor of rank {len(x.shape)}")
        return x.shape, x.dtype


@dataclass(frozen=True)
class Sort(Op):
    """Elements in order along an axis; equal ones keep theirs, and NaN counts as the largest (ours)."""

    text: ClassVar[str] = "sort(axis={axis},desc={descending})"
    axis: int
    descending: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _ordered(self.axis, operands[0])


@dataclass(frozen=True)
class CumMax(Op):
    """The largest of all elements up to each one along an axis; `exclusive` leaves the element itself out.

    Where there are none it is -inf; of integers (ours) the smallest that the dtype holds. After a NaN all is NaN.
    """

    axis: int
    exclusive: bool

    def display(self) -> str:
        return f"cummax(axis={self.axis}{',excl' if self.exclusive else ''})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require(operands[0].dtype is not DType.BOOL, "a running maximum of bools")
        return _ordered(self.axis, operands[0])


@dataclass(frozen=True)
class Histogram(Op):
    """How many elements of x lie in each of `bins` parts of [min, max]: [bins], counts in float32.

    Part i reaches from edge i to edge i + 1, without it but for the last, as in numpy.histogram. Elements outside of
    all parts, and NaN, are not counted.
    """

    text: ClassVar[str] = "histogram(bins={bins},[{min},{max}])"
    bins: int
    min: float
    max: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require(operands[0].dtype is DType.F32, f"a histogram of {operands[0].dtype.value}; f32 is needed")
        finite = -float("inf") < self.min < self.max < float("inf")
        require(self.bins >= 1 and finite, f"{self.bins} bins over [{self.min:g}, {self.max:g}]")
        return (self.bins,), DType.F32


@dataclass(frozen=True)
class ScatterAdd(Declared):
    """Operands updates, indices [n]: zeros to which update i along `axis` is added at place indices[i].

    The output's size along the axis is declared. Indices are i64, i32 (ours) or, for at most 2^24 places, f32.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "scatter_add(axis={axis})"
    axis: int

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        updates, indices = operands
        rank = len(updates.shape)
        require(0 <= self.axis < rank, f"axis {self.axis} of updates {updates}")
        require_shape("indices", indices, updates.shape[self.axis : self.axis + 1])
        require(out.dtype == updates.dtype and out.dtype is not DType.BOOL, f"declared {out} for updates {updates}")
        others = [
            shape[: self.axis] + shape[self.axis + 1 :] for shape in (require_rank("it", out, rank), updates.shape)
        ]
        require(others[0] == others[1], f"declared {out} for updates {updates}: other axes than {self.axis} differ")
        places = out.shape[self.axis]
        known = indices.dtype in (DType.I32, DType.I64) or (indices.dtype is DType.F32 and places <= INDEX_LIMIT)
        require(known, f"indices {indices} of {places} places; i64, i32 or, to {INDEX_LIMIT}, f32 is needed")


def _ordered(axis: int, x: TensorType) -> tuple[Shape, DType]:
    normalize_axis(axis, len(x.shape))
    require(x.dtype is not DType.C64, "complex numbers have no order")
    return x.shape, x.dtype


KINDS: tuple[type[Op], ...] = (Roll, Sort, CumMax, Histogram, ScatterAdd)
