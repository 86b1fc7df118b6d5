"""Weights that are synthesized from a learned codebook, and activations that are learned functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.attributes import SynthKind
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class SynthMatMul(Op):
    """Operands x [M, K], indices [N, K / entry_dim] (u8), codebook [num_entries, entry_dim]: x times the weights [K, N]
    that SynthReconstruct makes of the other two."""

    operand_count: ClassVar[Arity] = exact(3)
    kind: SynthKind

    def display(self) -> str:
        return f"synth_matmul(codebook:{self.kind.num_entries}\u00d7{self.kind.entry_dim})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, indices, codebook = operands
        m, k = require_rank("x", x, 2)
        rows, n = synthesized(self.kind, indices, codebook)
        require(rows == k, f"x is {x}, but indices {indices} are of weights [{rows}, {n}]")
        return (m, n), require_floats([x, codebook])

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return out.elements * operands[0].shape[1]


@dataclass(frozen=True)
class SynthReconstruct(Op):
    """Operands indices [N, K / entry_dim] (u8), codebook [num_entries, entry_dim]: weights [K, N].

    Column j is the codebook's rows indices[j, 0], indices[j, 1], .. one after the other.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "synth_reconstruct"
    kind: SynthKind

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        indices, codebook = operands
        return synthesized(self.kind, indices, codebook), require_floats([codebook])


def synthesized(kind: SynthKind, indices: TensorType, codebook: TensorType) -> Shape:
    """[K, N] of the weights. Raises ShapeError."""
    entries, size = kind.num_entries, kind.entry_dim
    require(
        1 <= entries <= 256 and size >= 1, f"{entries} entries of {size} elements; 1 to 256 of 1 or more are needed"
    )
    n, blocks = require_rank("indices", indices, 2)
    require(indices.dtype is DType.U8, f"indices are {indices}; u8 is needed")
    require_shape("codebook", codebook, (entries, size))
    return blocks * size, n


@dataclass(frozen=True)
class SplineActivation(Op):
    """Operands x [.., C], coeff [C, num_basis]: sum over g of coeff[c, g] * exp(-((x[.., c] - center_g) / h)^2).

    The centers are `num_basis` places from grid_min to grid_max, h apart.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spline_activation(basis={num_basis},grid=[{grid_min},{grid_max}])"
    num_basis: int
    grid_min: float
    grid_max: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, coeff = operands
        require(self.num_basis >= 2, f"{self.num_basis} basis functions; at least 2 are needed")
        finite = -float("inf") < self.grid_min < self.grid_max < float("inf")
        require(finite, f"a grid from {self.grid_min:g} to {self.grid_max:g}")
        require(bool(x.shape), "x is a scalar; a last axis of channels is needed")
        require_shape("coeff", coeff, (x.shape[-1], self.num_basis))
        return x.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (SynthMatMul, SynthReconstruct, SplineActivation)
