"""Kinds on images [N, C, H, W] and volumes [N, C, D, H, W] that no importer makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Layout, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank
from rlx_edge.ir.ops.conv import window_output
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class ResizeNearest2x(Op):
    """Each pixel of x [N, C, H, W] four times: [N, C, 2 H, 2 W]."""

    text: ClassVar[str] = "resize_nearest_2x"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n, c, h, w = require_rank("x", operands[0], 4)
        return (n, c, 2 * h, 2 * w), operands[0].dtype


@dataclass(frozen=True)
class Interpolate3d(Op):
    """x [N, C, D, H, W] resampled to `size`, nearest: output i of an axis is input floor(i * in / out)."""

    size: tuple[int, ...]

    def display(self) -> str:
        return f"interpolate3d(size=[{','.join(map(str, (*self.size, 0, 0, 0)[:3]))}])"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        shape = require_rank("x", operands[0], 5)
        sound = len(self.size) == 3 and min(self.size) >= 1
        require(sound, f"size {list(self.size)}; three positive numbers are needed")
        return (*shape[:2], *self.size), operands[0].dtype


@dataclass(frozen=True)
class Im2Col(Op):
    """The windows of x [N, C, H, W] as rows: [N * H_out * W_out, C * kH * kW], pixels outside of x being 0."""

    text: ClassVar[str] = "im2col({kernel_size:?})"
    layout: ClassVar[Layout] = Layout.NCHW
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n, c, h, w = require_rank("x", operands[0], 4)
        rows, columns = window_output(self, h, w, self.dilation)
        return (n * rows * columns, c * self.kernel_size[0] * self.kernel_size[1]), operands[0].dtype


@dataclass(frozen=True)
class ConvTranspose3d(Op):
    """Each element of x [N, C_in, D, H, W] spread over a window of the output, by w [C_in, C_out/groups, kD, kH, kW].

    Size along an axis: (n - 1) * stride - 2 * padding + dilation * (k - 1) + 1 + output_padding.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "conv_transpose3d(stride={stride:?})"
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    output_padding: tuple[int, int, int]
    groups: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w = require_rank("x", operands[0], 5), require_rank("w", operands[1], 5)
        numbers = (self.stride, self.dilation, self.padding, self.output_padding)
        require(all(len(three) == 3 for three in numbers), "stride, padding, dilation: three numbers each are needed")
        sound = min(*self.stride, *self.dilation, self.groups) >= 1 and min(*self.padding, *self.output_padding) >= 0
        require(sound, "stride, dilation and groups must be positive, paddings not negative")
        fits = x[1] == w[0] and x[1] % self.groups == 0
        require(fits, f"x {list(x)} in {self.groups} groups with w {list(w)}")
        size = tuple(
            (n - 1) * stride - 2 * pad + dilation * (k - 1) + 1 + more
            for n, k, stride, dilation, pad, more in zip(x[2:], w[2:], *numbers, strict=True)
        )
        require(min(size) >= 1, f"padding {list(self.padding)} leaves nothing of the output")
        return (x[0], w[1] * self.groups, *size), require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return operands[0].elements * (operands[1].elements // operands[1].shape[0])


KINDS: tuple[type[Op], ...] = (ResizeNearest2x, Interpolate3d, Im2Col, ConvTranspose3d)
