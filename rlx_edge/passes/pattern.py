"""A small language for parts of a graph: patterns are data, one function matches them.

    mul(x, act(ActivationFn.SIGMOID, x))         # x * sigmoid(x), the factors in any order
    either(mul(p, number(0.5)), div(p, number(2)))

The pattern's leaves are tensors (`Tensor`, the same name twice is the same tensor) and constants all of whose elements
are one number. What stands between is matched by kind and attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    CmpOp,
    Compare,
    Op,
    Reduce,
    ReduceOp,
    Where,
)

TOLERANCE = 1e-6
"""Relative difference up to which a constant counts as the pattern's number: some eight float32 steps."""

COMMUTATIVE = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN)


@dataclass(frozen=True)
class Tensor:
    """Any tensor, constant or computed."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant of this value."""

    value: float


@dataclass(frozen=True)
class Scalar:
    """A constant of one finite value, whatever it is; `name` finds it."""

    name: str


@dataclass(frozen=True)
class Bind:
    """In place of an attribute: whatever it is; the same name twice is the same value."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An op of a kind with these attributes, on these operands. Attributes that are not named may be anything."""

    kind: type[Op]
    attributes: tuple[tuple[str, object], ...]
    operands: tuple[Pattern, ...]

    @property
    def commutes(self) -> bool:
        return self.kind is Binary and dict(self.attributes)["fn"] in COMMUTATIVE


@dataclass(frozen=True)
class Either:
    """One of several forms."""

    forms: tuple[Pattern, ...]


Pattern = Tensor | Number | Scalar | Apply | Either

Found = Mapping[str, object]
"""What names stand for: node ids of tensors, floats of scalars, attributes."""


@dataclass(frozen=True)
class View:
    """What the matcher asks of a graph: the op and operands of a node, and the number that a constant holds."""

    node: Callable[[int], tuple[Op, Sequence[int]]]
    number: Callable[[int], float | None]


def matches(pattern: Pattern, node_id: int, view: View, found: Found) -> Iterator[Found]:
    """Every way in which the value of a node is the pattern, as names and what they stand for."""
    if isinstance(pattern, Tensor):
        yield from _bound(pattern.name, node_id, found)
    elif isinstance(pattern, Number):
        value = view.number(node_id)
        if value is not None and math.isclose(value, pattern.value, rel_tol=TOLERANCE):
            yield found
    elif isinstance(pattern, Scalar):
        value = view.number(node_id)
        if value is not None:
            yield from _bound(pattern.name, value, found)
    elif isinstance(pattern, Either):
        for form in pattern.forms:
            yield from matches(form, node_id, view, found)
    else:
        op, operands = view.node(node_id)
        yield from matches_op(pattern, op, operands, view, found)


def matches_op(pattern: Apply, op: Op, operands: Sequence[int], view: View, found: Found) -> Iterator[Found]:
    """The same for an op that is no node yet."""
    if type(op) is not pattern.kind or len(operands) != len(pattern.operands):
        return
    for name, wanted in pattern.attributes:
        held = getattr(op, name)
        bound = next(_bound(wanted.name, held, found), None) if isinstance(wanted, Bind) else found
        if bound is None or not (isinstance(wanted, Bind) or _equal(held, wanted)):
            return
        found = bound
    orders = [operands, operands[::-1]] if pattern.commutes and operands[0] != operands[1] else [operands]
    for order in orders:
        yield from _all_match(pattern.operands, order, view, found)


def _all_match(patterns: Sequence[Pattern], ids: Sequence[int], view: View, found: Found) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for partly in matches(patterns[0], ids[0], view, found):
        yield from _all_match(patterns[1:], ids[1:], view, partly)


def _bound(name: str, value: object, found: Found) -> Iterator[Found]:
    if found.get(name, value) == value:
        yield {**found, name: value}


def _equal(held: object, wanted: object) -> bool:
    if isinstance(held, float) and isinstance(wanted, float):
        return math.isclose(held, wanted, rel_tol=TOLERANCE)
    return held == wanted


# ---- Writing patterns ------------------------------------------------------------------------------------------------


def number(value: float) -> Number:
    return Number(float(value))


def either(*forms: Pattern) -> Either:
    return Either(forms)


def binary(fn: BinaryOp, a: Pattern, b: Pattern) -> Apply:
    return Apply(Binary, (("fn", fn),), (a, b))


def add(a: Pattern, b: Pattern) -> Apply:
    return binary(BinaryOp.ADD, a, b)


def sub(a: Pattern, b: Pattern) -> Apply:
    return binary(BinaryOp.SUB, a, b)


def mul(a: Pattern, b: Pattern) -> Apply:
    return binary(BinaryOp.MUL, a, b)


def div(a: Pattern, b: Pattern) -> Apply:
    return binary(BinaryOp.DIV, a, b)


def power(a: Pattern, b: Pattern) -> Apply:
    return binary(BinaryOp.POW, a, b)


def act(fn: ActivationFn, x: Pattern) -> Apply:
    return Apply(Activation, (("fn", fn),), (x,))


def clip(x: Pattern, low: float, high: float) -> Apply:
    return Apply(Clamp, (("min", float(low)), ("max", float(high))), (x,))


def reduce(op: ReduceOp, x: Pattern, axes: Bind) -> Apply:
    """With the axes kept, as elements of size 1."""
    return Apply(Reduce, (("op", op), ("axes", axes), ("keep_dim", True)), (x,))


def compare(fn: CmpOp, a: Pattern, b: Pattern) -> Apply:
    return Apply(Compare, (("fn", fn),), (a, b))


def where(condition: Pattern, on_true: Pattern, on_false: Pattern) -> Apply:
    return Apply(Where, (), (condition, on_true, on_false))


def plus(x: Pattern, value: float) -> Either:
    """x + value, also as a subtraction of its opposite."""
    return either(add(x, number(value)), sub(x, number(-value)))


def times(x: Pattern, value: float) -> Either:
    """x * value, also as a division by the reciprocal."""
    return either(mul(x, number(value)), div(x, number(1.0 / value)))


def product(x: Pattern, y: Pattern, value: float) -> Either:
    """x * y * value, in any order."""
    return either(mul(times(x, value), y), mul(x, times(y, value)), times(mul(x, y), value))


def negative(x: Pattern) -> Either:
    return either(act(ActivationFn.NEG, x), mul(x, number(-1.0)), sub(number(0.0), x))


def reciprocal(x: Pattern) -> Either:
    return either(act(ActivationFn.RECIP, x), div(number(1.0), x), power(x, number(-1.0)))


def square(x: Pattern) -> Either:
    return either(mul(x, x), power(x, number(2.0)))


def root(x: Pattern) -> Either:
    return either(act(ActivationFn.SQRT, x), power(x, number(0.5)))
