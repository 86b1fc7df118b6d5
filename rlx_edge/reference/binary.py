"""What functions of two or three tensors mean, on float32 and on integers. Operands broadcast as in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Binary, BinaryOp, Cast, CmpOp, Compare, Op


def _divide(a: Array, b: Array) -> Array:
    """Integers round toward zero; their division by zero gives 0."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = a // b
    short = (a % b != 0) & ((a < 0) != (b < 0))  # numpy's // rounds down.
    return np.asarray(quotient + short.astype(a.dtype))


def _power(a: Array, b: Array) -> Array:
    """In float64 and rounded once. Integers are exact up to 2^53; a power below 1 rounds toward zero."""
    if a.dtype.kind != "f" and not np.any(b < 0):
        return np.asarray(np.power(a, b))
    return np.asarray(np.power(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)


def _arctangent(a: Array, b: Array) -> Array:
    return np.asarray(np.arctan2(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)


BINARY: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: _divide,
    BinaryOp.MAX: np.maximum,
    BinaryOp.MIN: np.minimum,
    BinaryOp.POW: _power,
    BinaryOp.MOD: np.fmod,
    BinaryOp.BIT_AND: np.bitwise_and,
    BinaryOp.BIT_OR: np.bitwise_or,
    BinaryOp.BIT_XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.ATAN2: _arctangent,
}
"""Functions of two arrays of one dtype. Integers wrap; Mod has the sign of the dividend, as C's fmod."""


def binary(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Binary)
    with np.errstate(all="ignore"):  # Division by zero and overflow give IEEE 754's infinities and NaN.
        return np.asarray(BINARY[op.fn](x[0], x[1]))


COMPARE: dict[CmpOp, Callable[[Array, Array], Array]] = {
    CmpOp.EQ: np.equal,
    CmpOp.NE: np.not_equal,
    CmpOp.LT: np.less,
    CmpOp.LE: np.less_equal,
    CmpOp.GT: np.greater,
    CmpOp.GE: np.greater_equal,
}


def compare(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    assert isinstance(op, Compare)
    return np.asarray(COMPARE[op.fn](x[0], x[1]))


def where(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    return np.where(x[0], x[1], x[2])


def cast(op: Op, x: Sequence[Array], types: Sequence[TensorType], out: TensorType) -> Array:
    """Through int64 from float to a smaller integer, so that all machines wrap alike."""
    assert isinstance(op, Cast)
    with np.errstate(invalid="ignore"):
        wide = x[0].astype(np.int64) if x[0].dtype.kind == "f" and op.to.is_integer else x[0]
    return np.asarray(wide.astype(op.to.numpy))
