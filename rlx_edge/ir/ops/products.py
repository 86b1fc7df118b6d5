"""Sums of products beyond MatMul and Conv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class DotGeneral(Op):
    """Sums over pairs of contracting axes, for each index of pairs of batch axes, as XLA's DotGeneral does.

    Axes of the output: the batch axes in their order, the other axes of lhs, the other axes of rhs.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "dot_general"
    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (lhs, rhs), sides = operands, []
        require(lhs.dtype == rhs.dtype, f"operands of different dtypes, {lhs.dtype.value} and {rhs.dtype.value}")
        require(lhs.dtype is not DType.BOOL, "a sum of products of bools")
        for name, operand, batch, contracting in (
            ("lhs", lhs, self.lhs_batch, self.lhs_contracting),
            ("rhs", rhs, self.rhs_batch, self.rhs_contracting),
        ):
            axes, rank = (*batch, *contracting), len(operand.shape)
            known = len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes)
            require(known, f"axes {list(axes)} of {name} {operand}; each is named once, from 0 to {rank - 1}")
            sides.append([[operand.shape[axis] for axis in group] for group in (batch, contracting)])
        require(sides[0] == sides[1], f"batch and contracting axes of lhs {sides[0]} and rhs {sides[1]} differ")
        free = [
            operand.shape[axis]
            for operand, axes in zip(operands, self.free_axes(operands), strict=True)
            for axis in axes
        ]
        return (*sides[0][0], *free), lhs.dtype

    def free_axes(self, operands: Sequence[TensorType]) -> tuple[list[int], list[int]]:
        """The axes of lhs and of rhs that are neither batch nor contracting."""
        taken = ((*self.lhs_batch, *self.lhs_contracting), (*self.rhs_batch, *self.rhs_contracting))
        ranks = [range(len(operand.shape)) for operand in operands]
        return ([a for a in ranks[0] if a not in taken[0]], [a for a in ranks[1] if a not in taken[1]])

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return out.elements * math.prod(operands[0].shape[axis] for axis in self.lhs_contracting)


@dataclass(frozen=True)
class LoraMatMul(Op):
    """Operands x [M, K], w [K, N], a [K, R], b [R, N]: x w + scale * (x a) b, a product with a low-rank adapter."""

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "lora_matmul(scale={scale})"
    scale: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w, a, b = (require_rank(name, operand, 2) for name, operand in zip("xwab", operands, strict=True))
        require_shape("w", operands[1], (x[1], w[1]))
        require_shape("a", operands[2], (x[1], a[1]))
        require_shape("b", operands[3], (a[1], w[1]))
        return (x[0], b[1]), require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        (m, k), (_, n), (_, r) = (operand.shape for operand in operands[:3])
        return m * (k * n + k * r + r * n)


@dataclass(frozen=True)
class PartitionedConv(Op):
    """Operands x [.., L], ir [M]: the whole linear convolution along the last axis, [.., L + M - 1].

    `block` is how long a partition is where it is computed by Fourier transforms; it changes no result.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "partitioned_conv(block={block})"
    block: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, response = operands
        require(bool(x.shape), "x is a scalar; a last axis of samples is needed")
        require(self.block >= 1, f"partitions of {self.block}; at least 1 is needed")
        (taps,) = require_rank("ir", response, 1)
        return (*x.shape[:-1], x.shape[-1] + taps - 1), require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return operands[0].elements * operands[1].elements


KINDS: tuple[type[Op], ...] = (DotGeneral, LoraMatMul, PartitionedConv)
