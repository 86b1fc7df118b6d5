"""What every op has: fields, arity, a display string, and a rule for its output's shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.arity import Arity, at_least, exact
from rlx_edge.ir.ops.rust_text import Shown
from rlx_edge.ir.tensor import Shape, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.graph import Graph

__all__ = [
    "Arity",
    "Declared",
    "Layout",
    "Leaf",
    "Op",
    "ShapeError",
    "at_least",
    "broadcast_shapes",
    "exact",
    "normalize_axis",
]


class ShapeError(ValueError):
    """The operands do not fit the op; the message says which and why."""


class Layout(Enum):
    """Where the channel axis of an image tensor is. The vocabulary's convolutions are NCHW."""

    NCHW = "NCHW"
    NHWC = "NHWC"


@dataclass(frozen=True)
class Op:
    """Base of all op kinds. The class name is the kind's name in the vocabulary.

    A kind is declared by its fields, `operand_count` (or the property `arity`, where that follows from the fields),
    `text` (or `display`), and `infer`; a kind with nested graphs also lists these fields in `bodies`.
    """

    operand_count: ClassVar[Arity] = exact(1)
    text: ClassVar[str] = ""
    """The display string, with the fields in braces: see `rust_text.Shown`. Empty: the kind's name in lower case."""
    bodies: ClassVar[tuple[str, ...]] = ()
    """The fields that are graphs; one that is None is not there."""

    @property
    def kind_name(self) -> str:
        return type(self).__name__

    @property
    def arity(self) -> Arity:
        """How many operands this op takes."""
        return self.operand_count

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """Every nested graph, in field order: what every pass that recurses goes by."""
        held = (getattr(self, name) for name in self.bodies)
        return tuple(graph for graph in held if graph is not None)

    def display(self) -> str:
        """The op as the vocabulary displays it."""
        if not self.text:
            return self.kind_name.lower()
        return self.text.format_map({field.name: Shown(getattr(self, field.name)) for field in fields(self)})

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        """Shape and dtype of the output. Raises ShapeError when the operands do not fit."""
        return operands[0].shape, operands[0].dtype

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        """Raises ShapeError when the declared type of the output is not what the operands give."""
        shape, dtype = self.infer(operands)
        if (shape, dtype) != (out.shape, out.dtype):
            raise ShapeError(f"declared {out}, but its operands give {dtype.value}{list(shape)}")

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        """Multiply-accumulates of one execution; 0 for ops that are not counted."""
        return 0


class Declared(Op):
    """An op whose output's type is declared where a node is made, as operands and attributes do not determine it."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        raise ShapeError(f"the type of a {self.kind_name} is declared, not inferred")

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        """Raises ShapeError when the operands, or the declared type beside them, cannot be."""


class Leaf(Declared):
    """An op without operands."""

    operand_count: ClassVar[Arity] = exact(0)


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
