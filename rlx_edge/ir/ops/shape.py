"""Ops that move elements without changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, at_least, broadcast_shapes, normalize_axis
from rlx_edge.ir.ops.rust_text import debug
from rlx_edge.ir.tensor import MAX_RANK, Shape, TensorType


class PadMode(Enum):
    """How padded positions are filled; the values are the vocabulary's names."""

    CONSTANT = "Constant"
    REFLECT = "Reflect"
    """Mirrored at the edge, which is not repeated."""
    REPLICATE = "Replicate"
    """The edge again and again."""
    CIRCULAR = "Circular"
    """From the other end."""


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in another shape; one entry may be -1."""

    text: ClassVar[str] = "reshape({new_shape:?})"
    new_shape: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        elements = operands[0].elements
        if len(self.new_shape) > MAX_RANK:
            raise ShapeError(f"{len(self.new_shape)} axes; {MAX_RANK} are possible")
        known = math.prod(d for d in self.new_shape if d != -1)
        missing = self.new_shape.count(-1)
        if missing > 1 or any(d < -1 for d in self.new_shape) or (missing and (known == 0 or elements % known)):
            raise ShapeError(f"{list(operands[0].shape)} does not reshape to {list(self.new_shape)}")
        shape = tuple(elements // known if d == -1 else d for d in self.new_shape)
        if math.prod(shape) != elements:
            raise ShapeError(f"{list(operands[0].shape)} does not reshape to {list(self.new_shape)}")
        return shape, operands[0].dtype


@dataclass(frozen=True)
class Transpose(Op):
    """Output axis i is input axis perm[i]."""

    text: ClassVar[str] = "transpose({perm:?})"
    perm: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        if sorted(self.perm) != list(range(len(shape))):
            raise ShapeError(f"perm {list(self.perm)} of a tensor of rank {len(shape)}")
        return tuple(shape[axis] for axis in self.perm), operands[0].dtype


@dataclass(frozen=True)
class Pad(Op):
    """Grow each axis by pads[i] = (before, after). `value` is a real value also where the tensor is quantized."""

    pads: tuple[tuple[int, int], ...]
    mode: PadMode = PadMode.CONSTANT
    value: float = 0.0

    def display(self) -> str:
        value = f"({debug(self.value)})" if self.mode is PadMode.CONSTANT else ""
        return f"pad({debug(self.pads)},{self.mode.value}{value})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        if len(self.pads) != len(shape) or any(before < 0 or after < 0 for before, after in self.pads):
            raise ShapeError(f"pads {list(self.pads)} on a tensor of shape {list(shape)}")
        if self.mode in (PadMode.REFLECT, PadMode.CIRCULAR):
            room = [size - (self.mode is PadMode.REFLECT) for size in shape]
            if any(max(pads) > most for pads, most in zip(self.pads, room, strict=True)):
                raise ShapeError(f"pads {list(self.pads)} in mode {self.mode.value} on a shape {list(shape)}: too wide")
        grown = tuple(before + size + after for size, (before, after) in zip(shape, self.pads, strict=True))
        return grown, operands[0].dtype


@dataclass(frozen=True)
class Concat(Op):
    """Join tensors along an axis. On int8, all operands and the output have equal parameters."""

    operand_count: ClassVar[Arity] = at_least(1)
    text: ClassVar[str] = "concat(axis={axis})"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        first = operands[0].shape
        axis = normalize_axis(self.axis, len(first))
        for other in operands[1:]:
            if other.dtype != operands[0].dtype or _without(other.shape, axis) != _without(first, axis):
                raise ShapeError(f"{operands[0]} and {other} do not join along axis {axis}")
        joined = sum(operand.shape[axis] for operand in operands)
        return (*first[:axis], joined, *first[axis + 1 :]), operands[0].dtype


def _without(shape: Shape, axis: int) -> tuple[int, Shape]:
    return len(shape), (*shape[:axis], *shape[axis + 1 :])


@dataclass(frozen=True)
class Narrow(Op):
    """Elements start to start + len - 1 along an axis."""

    text: ClassVar[str] = "narrow({axis},{start},{len})"
    axis: int
    start: int
    len: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _picked(operands[0].shape, self.axis, self.start, self.len, 1), operands[0].dtype


@dataclass(frozen=True)
class Slice(Op):
    """Element j along the axis is element start + j * step of the operand, for j below len; step may be negative."""

    text: ClassVar[str] = "slice({axis},{start},{len},step={step})"
    axis: int
    start: int
    len: int
    step: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _picked(operands[0].shape, self.axis, self.start, self.len, self.step), operands[0].dtype


def _picked(shape: Shape, axis: int, start: int, count: int, step: int) -> Shape:
    axis = normalize_axis(axis, len(shape))
    last = start + (count - 1) * step
    if count < 1 or step == 0 or not 0 <= start < shape[axis] or not 0 <= last < shape[axis]:
        raise ShapeError(f"{count} elements from {start} by {step} along axis {axis} of {list(shape)}")
    return (*shape[:axis], count, *shape[axis + 1 :])


@dataclass(frozen=True)
class Expand(Op):
    """Repeat axes of one element (and missing first axes) to fill the target shape."""

    target_shape: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        if broadcast_shapes(operands[0].shape, self.target_shape) != self.target_shape:
            raise ShapeError(f"{list(operands[0].shape)} does not expand to {list(self.target_shape)}")
        return self.target_shape, operands[0].dtype


@dataclass(frozen=True)
class Tile(Op):
    """The tensor repeated reps[i] times along axis i."""

    text: ClassVar[str] = "tile({reps:?})"
    reps: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        if len(self.reps) != len(shape) or any(count < 1 for count in self.reps):
            raise ShapeError(f"reps {list(self.reps)} on a tensor of shape {list(shape)}")
        return tuple(size * count for size, count in zip(shape, self.reps, strict=True)), operands[0].dtype


@dataclass(frozen=True)
class Reverse(Op):
    """The order of elements turned around along each of `axes`."""

    text: ClassVar[str] = "reverse({axes:?})"
    axes: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        axes = [normalize_axis(axis, len(operands[0].shape)) for axis in self.axes]
        if len(set(axes)) < len(axes):
            raise ShapeError(f"axes {list(self.axes)}, one of them twice")
        return operands[0].shape, operands[0].dtype


@dataclass(frozen=True)
class Trilu(Op):
    """The upper or lower triangle of the last two axes, from the given diagonal on (0: the main one); the rest is 0."""

    text: ClassVar[str] = "trilu(upper={upper},diag={diagonal})"
    upper: bool
    diagonal: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        if len(operands[0].shape) < 2:
            raise ShapeError(f"a tensor of shape {list(operands[0].shape)} has no triangle")
        return operands[0].shape, operands[0].dtype
