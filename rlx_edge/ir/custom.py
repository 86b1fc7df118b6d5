"""Ops of users: what a `Custom` of that name gives and computes, registered by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from rlx_edge.errors import ModelError
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.ops.base import ShapeError
from rlx_edge.ir.tensor import Shape, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.ops.control import Custom


_NAME = re.compile(r"(?!rlx)[A-Za-z]\w{0,62}", re.ASCII)


@dataclass(frozen=True)
class CustomKernel:
    """A user's C function for a custom op on int8, as docs/custom-ops.md says:

        void function(const struct *p, rlx_view_t a, .., rlx_view_t y, [void *scratch,] int32_t y0, int32_t y1);

    `header` and `source` are the text of its two files, which are called after the function. `params(op, operand types,
    output type)` gives the struct's int32 fields by name. `scratch`, of the same, gives the bytes of scratch memory;
    without it the function takes none. `stack_bytes` bounds what the function takes of the stack. Raises ModelError for
    names that are no names in C, or that begin as ours do.
    """

    function: str
    struct: str
    header: str
    source: str
    params: Callable[[Custom, Sequence[TensorType], TensorType], Mapping[str, int]]
    scratch: Callable[[Custom, Sequence[TensorType], TensorType], int] | None = None
    stack_bytes: int = 512

    def __post_init__(self) -> None:
        for name in (self.function, self.struct):
            if not _NAME.fullmatch(name):
                raise ModelError(f"{name!r} for a custom kernel: a name in C that does not begin with rlx is needed")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Names and texts."""
        return (f"{self.function}.h", self.header), (f"{self.function}.c", self.source)


@dataclass(frozen=True)
class CustomOp:
    """An op of a user. All functions get the node's `Custom`, whose `attrs` are theirs to read.

    `infer(op, operand types)` gives shape and dtype of the output, or raises ShapeError. `reference(op, operands,
    operand types, output type)` gives its values, of that shape and dtype.

    With a `kernel` it is quantized and runs on devices: both functions then take int8 operands too, whose types say
    what the codes stand for. `same_quant`: the output has its first operand's parameters. `examples(rng)` gives attrs
    and operand shapes at random, for `check_custom`.
    """

    name: str
    infer: Callable[[Custom, Sequence[TensorType]], tuple[Shape, DType]]
    reference: Callable[[Custom, Sequence[Array], Sequence[TensorType], TensorType], Array]
    kernel: CustomKernel | None = None
    same_quant: bool = False
    examples: Callable[[np.random.Generator], tuple[bytes, tuple[Shape, ...]]] | None = None

    def output(self, op: Custom, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        """What `infer` gives. Raises ShapeError for anything but a shape and a dtype."""
        found = self.infer(op, operands)
        try:
            shape, dtype = found
            sizes = tuple(index(size) for size in shape)
        except (TypeError, ValueError):
            sizes, dtype = (), None
        if not isinstance(dtype, DType):
            raise ShapeError(f"infer of the custom op {self.name!r} gave {found!r}; a shape and a DType are needed")
        return sizes, dtype


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
