"""Systems of equations, factors of matrices and eigenvectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_square
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class SvdPart(Enum):
    """A factor of A = U diag(S) Vt, where A is [m, n] and k the smaller of m and n."""

    U = "U"
    """[m, k]."""
    S = "S"
    """[k], the largest first."""
    VT = "Vt"
    """[k, n]."""


class QrPart(Enum):
    """A factor of A = Q R, where A is [m, n] and k the smaller of m and n."""

    Q = "Q"
    """[m, k], its columns orthonormal."""
    R = "R"
    """[k, n], upper triangular."""


@dataclass(frozen=True)
class DenseSolve(Op):
    """Operands A [N, N], b [N] or [N, K]: x with A x = b, like b."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "dense_solve"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _solved(operands)


@dataclass(frozen=True)
class BatchedDenseSolve(Op):
    """Operands A [B, N, N], b [B, N] or [B, N, K]: DenseSolve of each."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "batched_dense_solve"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, b = operands
        require_square("A", a, 3)
        fits = len(b.shape) in (2, 3) and b.shape[:2] == a.shape[:2]
        require(fits, f"b is {b}; [B, N] or [B, N, K] for A {a} is needed")
        return b.shape, require_floats(operands)


@dataclass(frozen=True)
class Cholesky(Op):
    """Operand A [n, n], symmetric and positive definite: the lower triangle L with A = L Lt."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require_square("A", operands[0])
        return operands[0].shape, require_floats(operands)


@dataclass(frozen=True)
class TriangularSolve(Op):
    """Operands A [n, n], of which one triangle is read, and B [n] or [n, k]: X with A X = B, or At X = B."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "trisolve(lower={lower},trans={transpose})"
    lower: bool
    transpose: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _solved(operands)


@dataclass(frozen=True)
class Det(Op):
    """Operand A [n, n]: its determinant, a scalar []."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _scalar(operands)


@dataclass(frozen=True)
class LogDet(Op):
    """Operand A [n, n]: the logarithm of its determinant's magnitude, a scalar []."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _scalar(operands)


@dataclass(frozen=True)
class Svd(Op):
    """Operand A [m, n]: a factor of its thin singular value decomposition."""

    text: ClassVar[str] = "svd({part:?})"
    part: SvdPart

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        m, n = require_rank("A", operands[0], 2)
        k = min(m, n)
        shapes: dict[SvdPart, Shape] = {SvdPart.U: (m, k), SvdPart.S: (k,), SvdPart.VT: (k, n)}
        return shapes[self.part], require_floats(operands)


@dataclass(frozen=True)
class Qr(Op):
    """Operand A [m, n]: a factor of its thin QR decomposition."""

    text: ClassVar[str] = "qr({part:?})"
    part: QrPart

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        m, n = require_rank("A", operands[0], 2)
        k = min(m, n)
        return (m, k) if self.part is QrPart.Q else (k, n), require_floats(operands)


@dataclass(frozen=True)
class Eigh(Op):
    """Operand A [n, n], symmetric: [n + n^2], the eigenvalues, smallest first, then the eigenvectors as columns."""

    text: ClassVar[str] = "eigh()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n = require_square("A", operands[0])
        return (n + n * n,), require_floats(operands)


@dataclass(frozen=True)
class EighBackward(Op):
    """Operands the output of Eigh [n + n^2] and its gradient: the gradient for A, [n, n]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "eigh_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n = _unpacked(operands, 1)
        return (n, n), require_floats(operands)


@dataclass(frozen=True)
class EighBatch(Op):
    """Operand A [B, n, n]: Eigh of each, [B, n + n^2]."""

    text: ClassVar[str] = "eigh_batch()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n = require_square("A", operands[0], 3)
        return (operands[0].shape[0], n + n * n), require_floats(operands)


@dataclass(frozen=True)
class EighBatchBackward(Op):
    """Operands the output of EighBatch [B, n + n^2] and its gradient: the gradient for A, [B, n, n]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "eigh_batch_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n = _unpacked(operands, 2)
        return (operands[0].shape[0], n, n), require_floats(operands)


def _scalar(operands: Sequence[TensorType]) -> tuple[Shape, DType]:
    require_square("A", operands[0])
    return (), require_floats(operands)


def _solved(operands: Sequence[TensorType]) -> tuple[Shape, DType]:
    a, b = operands
    n = require_square("A", a)
    require(len(b.shape) in (1, 2) and b.shape[0] == n, f"b is {b}; [{n}] or [{n}, K] is needed")
    return b.shape, require_floats(operands)


def _unpacked(operands: Sequence[TensorType], rank: int) -> int:
    """The n of packed eigenvalues and eigenvectors, n + n^2 numbers."""
    forward, gradient = operands
    packed = require_rank("the output of the decomposition", forward, rank)[-1]
    n = (math.isqrt(4 * packed + 1) - 1) // 2
    require(n + n * n == packed, f"{packed} packed numbers are not n + n^2 for any n")
    require_shape("its gradient", gradient, forward.shape)
    return n


KINDS: tuple[type[Op], ...] = (
    *(DenseSolve, BatchedDenseSolve, Cholesky, TriangularSolve, Det, LogDet, Svd, Qr),
    *(Eigh, EighBackward, EighBatch, EighBatchBackward),
)
