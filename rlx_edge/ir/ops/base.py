"""What every op has: fields, arity, a display string, and a rule for its output's shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.tensor import Shape, TensorType


class ShapeError(ValueError):
    """The operands do not fit the op; the message says which and why."""


class Layout(Enum):
    """Where the channel axis of an image tensor is. The vocabulary's convolutions are NCHW."""

    NCHW = "NCHW"
    NHWC = "NHWC"


@dataclass(frozen=True)
class Op:
    """Base of all op kinds. The class name is the kind's name in the vocabulary."""

    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    """Smallest and largest number of operands; None means no upper bound."""

    @property
    def kind_name(self) -> str:
        return type(self).__name__

    def display(self) -> str:
        """The op as the text form shows it."""
        return self.kind_name.lower()

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        """Shape and dtype of the output. Raises ShapeError when the operands do not fit."""
        return operands[0].shape, operands[0].dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        """Multiply-accumulates of one execution; 0 for ops that are not counted."""
        return 0


class Leaf(Op):
    """An op without operands: its type is declared, not inferred."""

    arity: ClassVar[tuple[int, int | None]] = (0, 0)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        raise ShapeError(f"the type of a {self.kind_name} is declared, not inferred")


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis. Raises ShapeError when there is no such axis."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def broadcast_shapes(a: Shape, b: Shape) -> Shape:
    """The shape of an elementwise result (numpy's rule). Raises ShapeError when the two do not broadcast."""
    rank = max(len(a), len(b))
    padded = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    out = []
    for x, y in padded:
        if x != y and 1 not in (x, y):
            raise ShapeError(f"shapes {list(a)} and {list(b)} do not broadcast")
        out.append(y if x == 1 else x)
    return tuple(out)
