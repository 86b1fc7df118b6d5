"""Ops of users: what a `Custom` of that name gives and computes, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlx_edge.errors import ModelError
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.tensor import Shape, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.ops.control import Custom


@dataclass(frozen=True)
class CustomOp:
    """An op of a user. Both functions get the node's `Custom`, whose `attrs` are theirs to read.

    `infer(op, operand types)` gives shape and dtype of the output, or raises ShapeError. `reference(op, operands,
    operand types, output type)` gives its values, of that shape and dtype.
    """

    name: str
    infer: Callable[[Custom, Sequence[TensorType]], tuple[Shape, DType]]
    reference: Callable[[Custom, Sequence[Array], Sequence[TensorType], TensorType], Array]


_registered: dict[str, CustomOp] = {}


def register_custom(op: CustomOp) -> None:
    """Make an op known by its name. Raises ModelError where another op has it."""
    if _registered.setdefault(op.name, op) != op:
        raise ModelError(f"the custom op {op.name!r} is registered already: unregister_custom({op.name!r}) first")


def unregister_custom(name: str) -> None:
    """Forget an op; one that is not known is left at that."""
    _registered.pop(name, None)


def find_custom(name: str) -> CustomOp | None:
    """The op of that name, or None."""
    return _registered.get(name)
