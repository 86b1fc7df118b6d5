"""Layers on the manifold of symmetric positive definite (SPD) matrices.

Huang and Van Gool, A Riemannian Network for SPD Matrix Learning, 2017; Brooks et al., Riemannian batch normalization
for SPD neural networks, 2019. AIRM is the affine-invariant metric. The vocabulary computes these in f64; ours: operands
of any one float dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_equal_squares, require_square
from rlx_edge.ir.ops.checks import require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class SpdMatFn(Enum):
    """Functions of a matrix, applied to its eigenvalues; the values are the vocabulary's names."""

    LOGM = "Logm"
    EXPM = "Expm"
    SQRTM = "Sqrtm"
    INVSQRTM = "Invsqrtm"


@dataclass(frozen=True)
class BiMap(Op):
    """Operands W [m, n], X [n, n]: W X Wt, [m, m]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "bimap()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        w, x = operands
        m, n = require_rank("W", w, 2)
        require_shape("X", x, (n, n))
        return (m, m), require_floats(operands)


@dataclass(frozen=True)
class ReEig(Op):
    """Operand X [n, n]: its eigenvalues raised to `eps` at least."""

    text: ClassVar[str] = "reeig(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return require_equal_squares(operands, "X")


@dataclass(frozen=True)
class LogEig(Op):
    """Operand X [n, n]: the logarithm of its eigenvalues, which are raised to `eps` before."""

    text: ClassVar[str] = "logeig(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return require_equal_squares(operands, "X")


@dataclass(frozen=True)
class ReEigBackward(Op):
    """Operands the eigenvalues [n] and eigenvectors [n, n] of X, dY [n, n]: the gradient of ReEig for X."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "reeig_backward(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _of_eigenvalues(operands)


@dataclass(frozen=True)
class LogEigBackward(Op):
    """Operands the eigenvalues [n] and eigenvectors [n, n] of X, dY [n, n]: the gradient of LogEig for X."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "logeig_backward(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _of_eigenvalues(operands)


def _of_eigenvalues(operands: Sequence[TensorType]) -> tuple[Shape, DType]:
    values, vectors, dy = operands
    n = require_square("the eigenvectors", vectors)
    require_shape("the eigenvalues", values, (n,))
    require_shape("dY", dy, (n, n))
    return (n, n), require_floats(operands)


@dataclass(frozen=True)
class SpdBatchNorm(Op):
    """Operands X [B, n, n], mean M [n, n], bias G [n, n]: G^1/2 (M^-1/2 X M^-1/2) G^1/2 of each X."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spd_batch_norm(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *matrices = operands
        n = _batch(x, *matrices)
        return (x.shape[0], n, n), require_floats(operands)


@dataclass(frozen=True)
class SpdBatchNormBackwardX(Op):
    """Operands M [n, n], G [n, n], dY [B, n, n]: the gradient of SpdBatchNorm for X, like dY."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spd_batch_norm_backward_x(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        mean, bias, dy = operands
        _batch(dy, mean, bias)
        return dy.shape, require_floats(operands)


@dataclass(frozen=True)
class SpdBatchNormBackwardG(Op):
    """Operands X [B, n, n], M [n, n], G [n, n], dY [B, n, n]: the gradient of SpdBatchNorm for G, [n, n]."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "spd_batch_norm_backward_g(eps={eps})"
    eps: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, mean, bias, dy = operands
        n = _batch(x, mean, bias)
        require_shape("dY", dy, x.shape)
        return (n, n), require_floats(operands)


@dataclass(frozen=True)
class SpdKarcherMean(Op):
    """Operand X [B, n, n]: the mean of the matrices under AIRM, [n, n]."""

    text: ClassVar[str] = "spd_karcher_mean(iters={iters}, tol={tol})"
    iters: int
    tol: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n = _batch(operands[0])
        return (n, n), require_floats(operands)


@dataclass(frozen=True)
class SpdKarcherMeanWeighted(Op):
    """Operands X [B, n, n], weights [B]: the weighted mean of the matrices under AIRM, [n, n]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spd_karcher_mean_weighted(iters={iters}, tol={tol})"
    iters: int
    tol: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, weights = operands
        n = _batch(x)
        require_shape("weights", weights, x.shape[:1])
        return (n, n), require_floats(operands)


def _batch(batch: TensorType, *matrices: TensorType) -> int:
    """The n of matrices [B, n, n]. Raises ShapeError unless the others are [n, n]."""
    n = require_square("the batch", batch, 3)
    for matrix in matrices:
        require_shape("a matrix", matrix, (n, n))
    return n


@dataclass(frozen=True)
class SpdLogMap(Op):
    """Operands base [n, n], x [n, n]: the tangent at base that leads to x, under AIRM."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spd_log_map()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return require_equal_squares(operands, "base x")


@dataclass(frozen=True)
class SpdExpMap(Op):
    """Operands base [n, n], v [n, n]: where the tangent v at base leads, under AIRM."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spd_exp_map()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return require_equal_squares(operands, "base v")


@dataclass(frozen=True)
class SpdParallelTransport(Op):
    """Operands from, to, v [n, n]: the tangent v carried from one base to another, E v Et, E = (to from^-1)^1/2."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spd_parallel_transport()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return require_equal_squares(operands, "from to v")


@dataclass(frozen=True)
class SpdLogMapBackward(Op):
    """Operands base, x, dY [n, n]: the gradients of SpdLogMap for base and x, [2, n, n]."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spd_log_map_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape, dtype = require_equal_squares(operands, "base x dY")
        return (2, *shape), dtype


@dataclass(frozen=True)
class SpdExpMapBackward(Op):
    """Operands base, v, dY [n, n]: the gradients of SpdExpMap for base and v, [2, n, n]."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spd_exp_map_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape, dtype = require_equal_squares(operands, "base v dY")
        return (2, *shape), dtype


@dataclass(frozen=True)
class SpdParallelTransportBackward(Op):
    """Operands from, to, v, dY [n, n]: the gradients of SpdParallelTransport for the first three, [3, n, n]."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "spd_parallel_transport_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape, dtype = require_equal_squares(operands, "from to v dY")
        return (3, *shape), dtype


@dataclass(frozen=True)
class SpdMatrixFnBatch(Op):
    """Operand X [B, n, n]: the function of each matrix."""

    text: ClassVar[str] = "spd_matrix_fn_batch(kind={kind:?})"
    kind: SpdMatFn

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _batch(operands[0])
        return operands[0].shape, require_floats(operands)


@dataclass(frozen=True)
class SpdMatrixFnBatchBackward(Op):
    """Operands X, dY [B, n, n]: the gradient of SpdMatrixFnBatch for X."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spd_matrix_fn_batch_backward(kind={kind:?})"
    kind: SpdMatFn

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        _batch(x)
        require_shape("dY", dy, x.shape)
        return x.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (
    *(BiMap, ReEig, LogEig, ReEigBackward, LogEigBackward),
    *(SpdBatchNorm, SpdBatchNormBackwardX, SpdBatchNormBackwardG, SpdKarcherMean, SpdKarcherMeanWeighted),
    *(SpdLogMap, SpdExpMap, SpdParallelTransport),
    *(SpdLogMapBackward, SpdExpMapBackward, SpdParallelTransportBackward),
    *(SpdMatrixFnBatch, SpdMatrixFnBatchBackward),
)
