"""Quantize, dequantize, and the integer matrix multiply and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import WEIGHTS, DType
from rlx_edge.ir.frozen import FrozenScale, FrozenTable, Requant
from rlx_edge.ir.ops.base import Arity, Layout, Op, ShapeError, exact
from rlx_edge.ir.ops.conv import conv_infer, conv_macs
from rlx_edge.ir.ops.rust_text import display
from rlx_edge.ir.tensor import QuantParams, Shape, TensorType


@dataclass(frozen=True)
class Quantize(Op):
    """q = saturate(round(x / scale) + zero_point), rounding half away from zero (under the rule `onnx`: half to even).

    Ours: an int8 operand is requantized from its own parameters to these; `clamp` bounds the result.
    """

    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None
    frozen: FrozenScale | FrozenTable | None = None

    @staticmethod
    def to(quant: QuantParams, requant: Requant, clamp: tuple[int, int] | None = None) -> Quantize:
        """The op that quantizes to these parameters."""
        return Quantize(quant.axis, quant.scales, quant.zero_points, requant, clamp)

    def display(self) -> str:
        return _quantize_text("quantize", self.axis, self.scales)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return operands[0].shape, DType.I8


@dataclass(frozen=True)
class Dequantize(Op):
    """x = (q - zero_point) * scale."""

    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    @staticmethod
    def of(quant: QuantParams) -> Dequantize:
        """The op that undoes these parameters."""
        return Dequantize(quant.axis, quant.scales, quant.zero_points)

    def display(self) -> str:
        return _quantize_text("dequantize", self.axis, self.scales)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        if not operands[0].dtype.is_integer:
            raise ShapeError(f"an integer operand is needed, not {operands[0].dtype.value}")
        return operands[0].shape, DType.F32


def _quantize_text(verb: str, axis: int | None, scales: tuple[float, ...]) -> str:
    return f"{verb}(s={display(scales[0])})" if axis is None else f"{verb}(axis={axis},nch={len(scales)})"


@dataclass(frozen=True)
class QMatMul(Op):
    """x [M, K] i8 times w [K, N] i8 (or of 4 or 2 bits) plus bias [N] i32, requantized to [M, N] i8.

    `mult` = x_scale * w_scale / out_scale, one value or one per output column; with `x_zp`, `w_zp` and `out_zp` it is
    derived from the tensors' parameters, and `verify` checks that it agrees with them.
    """

    operand_count: ClassVar[Arity] = exact(3)
    x_zp: int
    w_zp: int
    out_zp: int
    mult: tuple[float, ...]
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None
    frozen: FrozenScale | None = None

    def display(self) -> str:
        mult = f"mult={display(self.mult[0])}" if len(self.mult) == 1 else f"nch={len(self.mult)}"
        return f"q_matmul(x_zp={self.x_zp},w_zp={self.w_zp},out_zp={self.out_zp},{mult})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w, bias = operands
        if len(x.shape) != 2 or len(w.shape) != 2 or x.shape[1] != w.shape[0]:
            raise ShapeError(f"x {list(x.shape)} and w {list(w.shape)} are not [M, K] and [K, N]")
        check_integer_operands(x, w, bias, channels=w.shape[1])
        return (x.shape[0], w.shape[1]), DType.I8

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return out.elements * operands[1].shape[0]


@dataclass(frozen=True)
class QConv2d(Op):
    """int8 2-D convolution with int32 accumulation; operands x, w (i8, or of 4 or 2 bits), bias.

    NCHW: x [N, C_in, H, W], w [C_out, C_in/groups, kH, kW]. NHWC: x [N, H, W, C_in], w [C_out, kH, kW, C_in/groups].
    bias [C_out] i32. `padding` is (vertical, horizontal) or (top, left, bottom, right). See QMatMul for `mult`.
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "q_conv2d({kernel_size:?})"
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    x_zp: int
    w_zp: int
    out_zp: int
    mult: tuple[float, ...]
    layout: Layout = Layout.NCHW
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None
    frozen: FrozenScale | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w, bias = operands
        shape = conv_infer(self, x, w)
        check_integer_operands(x, w, bias, channels=w.shape[0])
        return shape, DType.I8

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return conv_macs(operands[1], out)


def check_integer_operands(x: TensorType, w: TensorType, bias: TensorType, channels: int) -> None:
    """Raises ShapeError unless x is i8, w is i8, i4 or i2, and bias is i32 [channels]."""
    if x.dtype != DType.I8 or w.dtype not in WEIGHTS:
        raise ShapeError(f"x must be i8, w i8, i4 or i2, not {x.dtype.value} and {w.dtype.value}")
    if bias.dtype != DType.I32 or bias.shape != (channels,):
        raise ShapeError(f"bias must be i32[{channels}], not {bias.dtype.value}{list(bias.shape)}")
