"""A tensor of a graph in the making, with numpy's operators, indexing and methods."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TypeAlias

from rlx_edge.builder.draft import Draft, Operand, known
from rlx_edge.errors import ModelError
from rlx_edge.ir import DType, Shape, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    CmpOp,
    Compare,
    MatMul,
    Narrow,
    Reduce,
    ReduceOp,
    Reshape,
    Slice,
    Transpose,
)

Index: TypeAlias = "int | slice | EllipsisType | None"
Axes: TypeAlias = "int | Sequence[int] | None"


class Value:
    """A tensor that a graph computes; made by a `Graph`, never directly.

    Numbers beside it become constants of its dtype. Every result is a new node; ModelError tells of operands that do
    not fit, where they were written.
    """

    __array_ufunc__ = None  # So that `array + value` asks the value.

    def __init__(self, draft: Draft, id: int) -> None:
        self.draft = draft
        self.id = id

    @property
    def type(self) -> TensorType:
        return self.draft.builder[self.id].type

    @property
    def name(self) -> str:
        return self.draft.builder[self.id].name

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"

    def __bool__(self) -> bool:
        raise ModelError(f"{self.name} has no truth value: it is computed when the graph runs")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name} has no axes")
        return self.shape[0]

    __hash__ = object.__hash__

    def _binary(self, fn: BinaryOp, a: Operand, b: Operand) -> Value:
        return self.draft.op(Binary(fn), a, b)

    def _compare(self, fn: CmpOp, other: Operand) -> Value:
        return self.draft.op(Compare(fn), self, other)

    def __add__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.DIV, other, self)

    def __pow__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.POW, self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.POW, other, self)

    def __and__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.BIT_AND, self, other)

    def __or__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.BIT_OR, self, other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary(BinaryOp.BIT_XOR, self, other)

    def __matmul__(self, other: Operand) -> Value:
        return self.draft.op(MatMul(), self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return self.draft.op(MatMul(), other, self)

    def __neg__(self) -> Value:
        return self.draft.op(Activation(ActivationFn.NEG), self)

    def __abs__(self) -> Value:
        return self.draft.op(Activation(ActivationFn.ABS), self)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare(CmpOp.EQ, other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare(CmpOp.NE, other)

    def __lt__(self, other: Operand) -> Value:
        return self._compare(CmpOp.LT, other)

    def __le__(self, other: Operand) -> Value:
        return self._compare(CmpOp.LE, other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare(CmpOp.GT, other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare(CmpOp.GE, other)

    def __iter__(self) -> None:
        raise TypeError(f"{self.name} does not iterate: take {self.name}[0], {self.name}[1] ...")

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Value:
        """Numbers, slices with any step, `...` and None (a new axis), as in numpy. Raises ModelError for anything else,
        for an index outside of its axis, and for a slice without elements."""
        value, axis, shape = self, 0, []
        for entry in self._entries(index if isinstance(index, tuple) else (index,)):
            if entry is None:
                shape.append(1)
                continue
            value, kept = _picked(value, axis, entry)
            shape += [value.shape[axis]] * kept
            axis += 1
        return value.reshape(shape)

    def _entries(self, index: tuple[Index, ...]) -> list[int | slice | None]:
        """An entry for every axis, and the None between."""
        written = f"{self.name}[{', '.join(map(_text, index))}] of shape {list(self.shape)}"
        known = (int, slice, EllipsisType, type(None))
        if any(isinstance(entry, bool) or not isinstance(entry, known) for entry in index):
            raise ModelError(f"{written}: numbers, slices, ... and None are possible; look up with g.op(Gather(axis))")
        missing = self.ndim - sum(isinstance(entry, int | slice) for entry in index)
        dots = sum(entry is ... for entry in index)
        if missing < 0 or dots > 1:
            raise ModelError(f"{written}: too many {'...' if dots > 1 else 'indices'}")
        entries: list[int | slice | None] = []
        for entry in index if dots else (*index, ...):
            entries += [slice(None)] * missing if isinstance(entry, EllipsisType) else [entry]
        return entries

    def reshape(self, *shape: int | Sequence[int]) -> Value:
        """The same elements in another shape, of which one entry may be -1."""
        wanted = _flat(shape)
        return self if wanted == self.shape else self.draft.op(Reshape(wanted), self)

    def transpose(self, *axes: int | Sequence[int]) -> Value:
        """Axis i of the result is axis axes[i]; without axes they are turned around."""
        found = _flat(axes)
        perm = (
            tuple(axis % self.ndim if -self.ndim <= axis else axis for axis in found) or tuple(range(self.ndim))[::-1]
        )
        return self.draft.op(Transpose(perm), self)

    @property
    def T(self) -> Value:  # noqa: N802
        return self.transpose()

    def astype(self, dtype: DType) -> Value:
        return self if dtype is self.dtype else self.draft.op(Cast(known(dtype, "cast")), self)

    def clip(self, min: float, max: float) -> Value:
        return self.draft.op(Clamp(float(min), float(max)), self)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Value:
        return self._reduce(ReduceOp.MEAN, axis, keepdims)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Value:
        return self._reduce(ReduceOp.SUM, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Value:
        return self._reduce(ReduceOp.MAX, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Value:
        return self._reduce(ReduceOp.MIN, axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Value:
        return self._reduce(ReduceOp.PROD, axis, keepdims)

    def _reduce(self, fn: ReduceOp, axis: Axes, keepdims: bool) -> Value:
        """Along all axes where none is named."""
        axes = tuple(range(self.ndim)) if axis is None else _flat((axis,))
        return self.draft.op(Reduce(fn, axes, keepdims), self)


def _flat(numbers: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """Numbers given one by one, or as one sequence."""
    first = numbers[0] if len(numbers) == 1 else numbers
    return (int(first),) if isinstance(first, int) else tuple(int(n) for n in first)  # type: ignore[arg-type]


def _picked(value: Value, axis: int, entry: int | slice) -> tuple[Value, bool]:
    """The elements of an index along an axis, which stays, and whether it stays in the result."""
    size = value.shape[axis]
    if isinstance(entry, int):
        if not -size <= entry < size:
            raise ModelError(f"{value.name} {value.type}: index {entry} of axis {axis}, which has {size}")
        return value.draft.op(Narrow(axis, entry % size, 1), value), False
    picked = range(size)[entry]
    if not picked:
        raise ModelError(f"{value.name} {value.type}: {_text(entry)} of axis {axis} has no elements")
    if picked == range(size):
        return value, True
    if picked.step == 1:
        return value.draft.op(Narrow(axis, picked.start, len(picked)), value), True
    return value.draft.op(Slice(axis, picked.start, len(picked), picked.step), value), True


def _text(entry: object) -> str:
    if entry is ...:
        return "..."
    if not isinstance(entry, slice):
        return str(entry)
    parts = [entry.start, entry.stop] + ([] if entry.step is None else [entry.step])
    return ":".join("" if part is None else str(part) for part in parts)
