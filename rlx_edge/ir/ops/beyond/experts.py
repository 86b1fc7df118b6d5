"""Mixtures of experts: each row times the weights of the expert that its index names.

expert_idx [M] is f32, as the indices of TopK are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.ops.dequant import QuantScheme, SchemeKind
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class GroupedMatMul(Op):
    """Operands input [M, K], weight [E, K, N], expert_idx [M]: row i is input[i] weight[expert_idx[i]], [M, N]."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "grouped_matmul"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        rows, weight, expert_idx = operands
        m, k = _checked_rows(rows, expert_idx)
        experts, _, n = require_rank("weight", weight, 3)
        require_shape("weight", weight, (experts, k, n))
        return (m, n), require_floats([rows, weight])


@dataclass(frozen=True)
class DequantGroupedMatMul(Declared):
    """Operands input [M, K], weight (u8, the experts' packed one after the other), expert_idx [M].

    As GroupedMatMul, with weights as GGUF packs them. Their bytes do not tell N: the output [M, N] is declared.
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "dequant_grouped_matmul({scheme})"
    scheme: QuantScheme

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        rows, weight, expert_idx = operands
        m, _ = _checked_rows(rows, expert_idx)
        _require_kind(self.scheme, SchemeKind.GGUF)
        require_dtype("weight", weight, DType.U8)
        require_shape("the output", out, (m, require_rank("the output", out, 2)[1]))
        require_floats([rows, out])


@dataclass(frozen=True)
class DequantGroupedMatMulMlx(Op):
    """Operands input [M, K], weight (u8, packed), scales and biases [E, N, groups], expert_idx [M]: [M, N].

    As GroupedMatMul, with weights that are code * scale + bias of their group.
    """

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "dequant_grouped_matmul_mlx({scheme})"
    scheme: QuantScheme

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        rows, weight, scales, biases, expert_idx = operands
        m, k = _checked_rows(rows, expert_idx)
        _require_kind(self.scheme, SchemeKind.MLX_AFFINE)
        require_dtype("weight", weight, DType.U8)
        _, n, groups = require_rank("scales", scales, 3)
        require_shape("biases", biases, scales.shape)
        require(groups > 0 and k % groups == 0, f"{groups} groups of {k} weights")
        return (m, n), require_floats([rows, scales, biases])


@dataclass(frozen=True)
class DequantMoEWeights(Declared):
    """Operand packed weights (u8): their values as GroupedMatMul takes them, f32 [E, K, N], which is declared."""

    text: ClassVar[str] = "dequant_moe_weights({scheme})"
    scheme: QuantScheme

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        require_dtype("the operand", operands[0], DType.U8)
        require_rank("the output", out, 3)
        require_dtype("the output", out, DType.F32)


def _require_kind(scheme: QuantScheme, kind: SchemeKind) -> None:
    require(scheme.kind is kind, f"weights of the scheme {scheme}; {kind.value} is needed")


def _checked_rows(rows: TensorType, expert_idx: TensorType) -> Shape:
    shape = require_rank("input", rows, 2)
    require_shape("expert_idx", expert_idx, shape[:1])
    require_dtype("expert_idx", expert_idx, DType.F32)
    return shape


KINDS: tuple[type[Op], ...] = (GroupedMatMul, DequantGroupedMatMul, DequantGroupedMatMulMlx, DequantMoEWeights)
