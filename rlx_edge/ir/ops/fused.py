"""Kinds that stand for several others, made by fusing them: each means the graph that its docstring names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_shape
from rlx_edge.ir.ops.conv import Conv, conv_infer, conv_macs
from rlx_edge.ir.ops.elementwise import ActivationFn
from rlx_edge.ir.ops.linalg import MatMul
from rlx_edge.ir.ops.rust_text import display
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class FusedSwiGLU(Op):
    """x [.., 2 N] -> up * silu(gate) [.., N]: up is the first half of x, or the second with `gate_first`.

    The result is cast to `cast_to`, where that is given.
    """

    cast_to: DType | None
    gate_first: bool

    def display(self) -> str:
        cast = "" if self.cast_to is None else f"cast={self.cast_to.value}"
        return f"fused_swiglu({cast}{',gate_first' if self.gate_first else ''})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (x,) = operands
        dtype = require_floats(operands)
        require(bool(x.shape) and x.shape[-1] % 2 == 0, f"x is {x}; a last axis of two halves is needed")
        return (*x.shape[:-1], x.shape[-1] // 2), self.cast_to or dtype


@dataclass(frozen=True)
class FusedMatMulBiasAct(Op):
    """Operands x, w, bias [N]: activation(MatMul(x, w) + bias)."""

    operand_count: ClassVar[Arity] = exact(3)
    activation: ActivationFn | None

    def display(self) -> str:
        return f"fused_mm_bias{_suffix(self.activation)}"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape, _ = MatMul().infer(operands[:2])
        require_shape("bias", operands[2], shape[-1:])
        return shape, require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return MatMul().macs(operands[:2], out)


@dataclass(frozen=True)
class FusedMatMulResidual(Op):
    """Operands lhs, rhs, residual of the product's shape: MatMul(lhs, rhs) + residual."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "fused_mm_residual"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape, _ = MatMul().infer(operands[:2])
        require_shape("residual", operands[2], shape)
        return shape, require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return MatMul().macs(operands[:2], out)


@dataclass(frozen=True)
class FusedConvBiasAct(Op):
    """Operands x, w, bias [C_out] and perhaps a residual of the output's shape, all NCHW.

    It is activation(Conv(x, w) + bias + residual), added in this order.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    activation: ActivationFn | None
    has_residual: bool

    @property
    def arity(self) -> Arity:
        return exact(3 + self.has_residual)

    @property
    def conv(self) -> Conv:
        return Conv(self.kernel_size, self.stride, self.padding, self.dilation, self.groups)

    def display(self) -> str:
        return f"fused_conv_bias{'_res' if self.has_residual else ''}{_suffix(self.activation)}"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = conv_infer(self.conv, *operands[:2])
        require_shape("bias", operands[2], shape[1:2])
        for residual in operands[3:]:
            require_shape("residual", residual, shape)
        return shape, require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return conv_macs(operands[1], out)


@dataclass(frozen=True)
class FusedResidualLN(Op):
    """Operands x, residual, perhaps bias, gamma, beta, these [D]: LayerNorm(x + residual + bias) over the last axis."""

    has_bias: bool
    eps: float

    @property
    def arity(self) -> Arity:
        return exact(4 + self.has_bias)

    def display(self) -> str:
        return f"fused_residual{'_bias' if self.has_bias else ''}_ln(eps={display(self.eps)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _residual_type(operands)


@dataclass(frozen=True)
class FusedResidualRmsNorm(Op):
    """Operands x, residual, perhaps bias, gamma, beta, these [D]: RmsNorm(x + residual + bias) over the last axis."""

    has_bias: bool
    eps: float

    @property
    def arity(self) -> Arity:
        return exact(4 + self.has_bias)

    def display(self) -> str:
        return f"fused_residual{'_bias' if self.has_bias else ''}_rms(eps={display(self.eps)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _residual_type(operands)


def _suffix(activation: ActivationFn | None) -> str:
    return "" if activation is None else f"_{activation.value}"


def _residual_type(operands: Sequence[TensorType]) -> tuple[Shape, DType]:
    x, residual, *factors = operands
    require_shape("the residual", residual, x.shape)
    require(bool(x.shape), "x is a scalar; a last axis is needed")
    names = ("bias", "gamma", "beta")[-len(factors) :]
    for name, factor in zip(names, factors, strict=True):
        require_shape(name, factor, x.shape[-1:])
    return x.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (
    *(FusedSwiGLU, FusedMatMulBiasAct, FusedMatMulResidual),
    *(FusedConvBiasAct, FusedResidualLN, FusedResidualRmsNorm),
)
