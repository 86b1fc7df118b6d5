"""Matrix products of floats of 8 and 4 bits, which are held as codes beside scales.

The types of codes carry the logical shape and u8; how codes lie in bytes is each machine's own. What the vocabulary's
file leaves open and is ours: the formats and layouts other than `F4E2M1` and `BlockMxE8M0` (it speaks of FP8 and of one
scale for a tensor), that a scale for a tensor is f32 [1], and that scales of blocks are u8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class ScaledFormat(Enum):
    """What a code means: F, the bits, and those of exponent and mantissa."""

    F8E4M3 = "F8E4M3"
    F4E2M1 = "F4E2M1"


MX_BLOCK = 32
"""Elements that share a scale: OCP Microscaling Formats (MX) Specification 1.0, 2023, section 5."""


class ScaleLayout(Enum):
    """Which elements share a scale. Blocks lie along the last axis, the one that is summed over."""

    PER_TENSOR = "PerTensor"
    BLOCK_MX_E8M0 = "BlockMxE8M0"
    """A power of two for each block of `MX_BLOCK`."""

    def scales(self, codes: Shape) -> tuple[Shape, DType]:
        """The type of the scales for codes of this shape."""
        if self is ScaleLayout.PER_TENSOR:
            return (1,), DType.F32
        require(bool(codes), "a scalar has no blocks")
        return (*codes[:-1], -(-codes[-1] // MX_BLOCK)), DType.U8


def require_codes(layout: ScaleLayout, name: str, codes: TensorType, scales: TensorType) -> None:
    """Raises ShapeError unless the codes are u8, and the scales of the type that the layout has for them."""
    require_dtype(name, codes, DType.U8)
    shape, dtype = layout.scales(codes.shape)
    require_shape(f"the scales of {name}", scales, shape)
    require_dtype(f"the scales of {name}", scales, dtype)


@dataclass(frozen=True)
class ScaledMatMul(Op):
    """Operands lhs [m, k], rhs [n, k] (u8), their scales, and with `has_bias` bias [n] f32: lhs rhs^t, [m, n] f32."""

    lhs_format: ScaledFormat
    rhs_format: ScaledFormat
    scale_layout: ScaleLayout
    has_bias: bool

    @property
    def arity(self) -> Arity:
        return exact(4 + self.has_bias)

    def display(self) -> str:
        return f"scaled_matmul({product_text(self)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        lhs, rhs, lhs_scales, rhs_scales, *bias = operands
        (m, k), (n, _) = require_rank("lhs", lhs, 2), require_rank("rhs", rhs, 2)
        require_shape("rhs", rhs, (n, k))
        require_codes(self.scale_layout, "lhs", lhs, lhs_scales)
        require_codes(self.scale_layout, "rhs", rhs, rhs_scales)
        for operand in bias:
            require_shape("bias", operand, (n,))
            require_dtype("bias", operand, DType.F32)
        return (m, n), DType.F32


@dataclass(frozen=True)
class ScaledGroupedMatMul(Op):
    """Operands input [M, K], weight [E, N, K] (u8), their scales, expert_idx [M], and with `has_bias` bias [E, N] f32.

    Each row of the input times the weights of its expert, [M, N] f32.
    """

    lhs_format: ScaledFormat
    rhs_format: ScaledFormat
    scale_layout: ScaleLayout
    has_bias: bool

    @property
    def arity(self) -> Arity:
        return exact(5 + self.has_bias)

    def display(self) -> str:
        return f"scaled_grouped_matmul({product_text(self)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        rows, weight, row_scales, weight_scales, expert_idx, *bias = operands
        (m, k), (experts, n, _) = require_rank("input", rows, 2), require_rank("weight", weight, 3)
        require_shape("weight", weight, (experts, n, k))
        require_codes(self.scale_layout, "input", rows, row_scales)
        require_codes(self.scale_layout, "weight", weight, weight_scales)
        require_shape("expert_idx", expert_idx, (m,))
        require_dtype("expert_idx", expert_idx, DType.F32)
        for operand in bias:
            require_shape("bias", operand, (experts, n))
            require_dtype("bias", operand, DType.F32)
        return (m, n), DType.F32


def product_text(op: ScaledMatMul | ScaledGroupedMatMul) -> str:
    bias = ",bias" if op.has_bias else ""
    return f"{op.lhs_format.value}\N{MULTIPLICATION SIGN}{op.rhs_format.value},{op.scale_layout.value}{bias}"


@dataclass(frozen=True)
class ScaledQuantize(Op):
    """Operands x (f32 or f16), its scales: the codes of x / scale, u8 like x."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "scaled_quantize({format},{scale_layout})"
    format: ScaledFormat
    scale_layout: ScaleLayout

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, scales = operands
        require_dtype("x", x, DType.F32, DType.F16)
        require_codes(self.scale_layout, "x", TensorType(x.shape, DType.U8), scales)
        return x.shape, DType.U8


@dataclass(frozen=True)
class ScaledQuantScale(Op):
    """Operand x: the scales that ScaledQuantize needs for it."""

    text: ClassVar[str] = "scaled_quant_scale({format},{scale_layout})"
    format: ScaledFormat
    scale_layout: ScaleLayout

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require_floats(operands)
        return self.scale_layout.scales(operands[0].shape)


@dataclass(frozen=True)
class ScaledDequantize(Op):
    """Operands codes (u8), their scales: the values of the codes times scale, f32 like codes."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "scaled_dequantize({format},{scale_layout})"
    format: ScaledFormat
    scale_layout: ScaleLayout

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        codes, scales = operands
        require_codes(self.scale_layout, "codes", codes, scales)
        return codes.shape, DType.F32


KINDS: tuple[type[Op], ...] = (
    *(ScaledMatMul, ScaledGroupedMatMul),
    *(ScaledQuantize, ScaledQuantScale, ScaledDequantize),
)
