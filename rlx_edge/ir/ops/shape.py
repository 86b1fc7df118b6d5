"""Ops that move elements without changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Op, ShapeError, normalize_axis
from rlx_edge.ir.tensor import Shape, TensorType


class PadMode(Enum):
    """How padded positions are filled; the values are the vocabulary's names."""

    CONSTANT = "Constant"


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in another shape; one entry may be -1."""

    new_shape: tuple[int, ...]

    def display(self) -> str:
        return f"reshape({list(self.new_shape)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        elements = operands[0].elements
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

    perm: tuple[int, ...]

    def display(self) -> str:
        return f"transpose({list(self.perm)})"

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
        return f"pad({[list(p) for p in self.pads]},{self.mode.value}({self.value:g}))"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = operands[0].shape
        if len(self.pads) != len(shape) or any(before < 0 or after < 0 for before, after in self.pads):
            raise ShapeError(f"pads {list(self.pads)} on a tensor of shape {list(shape)}")
        grown = tuple(before + size + after for size, (before, after) in zip(shape, self.pads, strict=True))
        return grown, operands[0].dtype


@dataclass(frozen=True)
class Concat(Op):
    """Join tensors along an axis. On int8, all operands and the output have equal parameters."""

    arity: ClassVar[tuple[int, int | None]] = (1, None)
    axis: int

    def display(self) -> str:
        return f"concat(axis={self.axis})"

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
