"""The graph in the making: what takes operands and ops, and tells what is wrong where it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rlx_edge.errors import ModelError
from rlx_edge.ir import Array, DType, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Op

if TYPE_CHECKING:
    from rlx_edge.builder.value import Value

Operand: TypeAlias = "Value | Array | Sequence[float] | float"
"""What an op takes: a handle, or numbers, which become a constant of the graph."""


class Draft:
    """Nodes so far, behind handles. `op` makes every node that has operands."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.outputs: list[int] = []

    def op(
        self,
        op: Op,
        *operands: Operand,
        name: str | None = None,
        quant: QuantParams | None = None,
        type: TensorType | None = None,
    ) -> Value:
        """The result of any kind of op, as `g.op(Trilu(True, 0), x)`.

        `name`: by default the op's own word, as "relu". `quant`: of an integer result that stands for real values.
        `type`: of the result, for kinds that need it declared. Raises ModelError where the operands do not fit.
        """
        from rlx_edge.builder.value import Value

        called = name or word(op)
        like = next((operand for operand in operands if isinstance(operand, Value)), None)
        values = [self.value(operand, like, f"{called}.{place}") for place, operand in enumerate(operands)]
        try:
            made = self.builder.add(op, [value.id for value in values], called, quant, type=type)
        except ValueError as error:
            given = ", ".join(f"{value.name} {value.type}" for value in values)
            raise ModelError(f"{called}: {error} (operands: {given or 'none'})") from None
        return Value(self, made)

    def value(self, operand: Operand, like: Value | None, name: str) -> Value:
        """The handle of an operand. Numbers become a constant, in the dtype of `like` if there is one.

        Raises ModelError for a handle of another graph, and for numbers that this dtype does not have.
        """
        from rlx_edge.builder.value import Value

        if isinstance(operand, Value):
            if operand.draft is not self:
                raise ModelError(f"{operand.name} belongs to the graph {operand.draft.builder.name!r}, not to this one")
            return operand
        if like is not None and like.type.quant is not None:
            raise ModelError(f"{name}: numbers beside {like.name} {like.type}: write the graph in float, then quantize")
        values = numbers(operand, None if like is None else like.dtype, name)
        if values.ndim == 0:
            return Value(self, self.builder.constant(name, values))
        return Value(self, self.builder.param(name, values))


def numbers(given: object, dtype: DType | None, name: str) -> Array:
    """An array in a dtype (None: float32 for floats, else the array's own). Floats are rounded to float types; nothing
    else may change a value. Raises ModelError otherwise."""
    values = np.asarray(given)
    if values.dtype.kind not in "fiubc":
        raise ModelError(f"{name}: numbers are needed, not {type(given).__name__}")
    if dtype is not None:
        known(dtype, name)
    else:
        dtype = DType.F32 if values.dtype == np.float64 else DType.of(values)
    with np.errstate(all="ignore"):
        made = values.astype(dtype.numpy)
        rounds = values.dtype.kind == made.dtype.kind == "f" or made.dtype.kind == "c"
        if not rounds and not np.array_equal(made.astype(values.dtype), values):
            raise ModelError(f"{name}: {values.dtype} numbers that {dtype.value} does not hold")
    return made


def known(dtype: DType, name: str) -> DType:
    """The dtype, if it is one. Raises ModelError for numpy's and for text."""
    if not isinstance(dtype, DType):
        given = dtype.__name__ if isinstance(dtype, type) else repr(dtype)
        raise ModelError(f"{name}: {given} is no dtype of rlx_edge: F32, I8, BOOL, ...")
    return dtype


def word(op: Op) -> str:
    """What a node of this op is called: the function where the kind has one, else the kind."""
    function = getattr(op, "fn", None) or getattr(op, "op", None)
    text = str(getattr(function, "value", op.kind_name))
    return "".join(
        f"_{c.lower()}" if c.isupper() and i and not text[i - 1].isupper() else c.lower() for i, c in enumerate(text)
    )
