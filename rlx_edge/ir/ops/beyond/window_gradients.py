"""Gradients of pooling and convolution, with the attributes of the op that they are the gradient of.

Images are [N, C, H, W], volumes [N, C, D, H, W]. `padding` is one number an axis, or all those before, then after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, exact
from rlx_edge.ir.ops.beyond.needs import windows
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class MaxPoolBackward(Op):
    """Operands x, dy: each element of dy put where its window of x has the maximum; like x."""

    operand_count: ClassVar[Arity] = exact(2)
    rank: ClassVar[int]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        n, c, *sizes = require_rank("x", x, self.rank)
        require_shape("dy", dy, (n, c, *windows(tuple(sizes), self.kernel_size, self.stride, self.padding)))
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class MaxPool2dBackward(MaxPoolBackward):
    """MaxPoolBackward of images."""

    text: ClassVar[str] = "maxpool2d_backward({kernel_size:?})"
    rank: ClassVar[int] = 4


@dataclass(frozen=True)
class MaxPool3dBackward(MaxPoolBackward):
    """MaxPoolBackward of volumes."""

    text: ClassVar[str] = "maxpool3d_backward({kernel_size:?})"
    rank: ClassVar[int] = 5


@dataclass(frozen=True)
class _Convolution(Op):
    """What the gradients of a convolution have: its attributes, which relate the types of x, w and dy."""

    operand_count: ClassVar[Arity] = exact(2)
    rank: ClassVar[int]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def check_windows(self, x: TensorType, dy: TensorType, c_out: int) -> None:
        n, _, *sizes = require_rank("x", x, self.rank)
        out = windows(tuple(sizes), self.kernel_size, self.stride, self.padding, self.dilation)
        require_shape("dy", dy, (n, c_out, *out))


@dataclass(frozen=True)
class _ConvBackwardInput(_Convolution, Declared):
    """Operands dy [N, C_out, ..], w [C_out, C_in/groups, ..]: the gradient for x, whose shape is declared."""

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        dy, w = operands
        require_rank("the output", out, self.rank)
        require_shape("w", w, (*require_rank("w", w, self.rank)[:2], *self.kernel_size))
        fits = self.groups > 0 and out.shape[1] == w.shape[1] * self.groups and w.shape[0] % self.groups == 0
        require(fits, f"the output is {out} in {self.groups} groups, but w is {w}")
        self.check_windows(out, dy, w.shape[0])
        require_floats([dy, w, out])


@dataclass(frozen=True)
class _ConvBackwardWeight(_Convolution):
    """Operands x [N, C_in, ..], dy [N, C_out, ..]: the gradient for w, [C_out, C_in/groups, ..]."""

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        c_in, c_out = require_rank("x", x, self.rank)[1], require_rank("dy", dy, self.rank)[1]
        fits = self.groups > 0 and c_in % self.groups == 0 and c_out % self.groups == 0
        require(fits, f"{c_in} input and {c_out} output channels in {self.groups} groups")
        self.check_windows(x, dy, c_out)
        return (c_out, c_in // self.groups, *self.kernel_size), require_floats(operands)


@dataclass(frozen=True)
class Conv2dBackwardInput(_ConvBackwardInput):
    """The gradient of Conv for x: operands dy [N, C_out, H', W'], w [C_out, C_in/groups, kH, kW]."""

    text: ClassVar[str] = "conv2d_backward_input({kernel_size:?})"
    rank: ClassVar[int] = 4


@dataclass(frozen=True)
class Conv2dBackwardWeight(_ConvBackwardWeight):
    """The gradient of Conv for w: operands x [N, C_in, H, W], dy [N, C_out, H', W']."""

    text: ClassVar[str] = "conv2d_backward_weight({kernel_size:?})"
    rank: ClassVar[int] = 4


@dataclass(frozen=True)
class Conv3dBackwardInput(_ConvBackwardInput):
    """The gradient of Conv3d for x: operands dy [N, C_out, D', H', W'], w [C_out, C_in/groups, kD, kH, kW]."""

    text: ClassVar[str] = "conv3d_backward_input({kernel_size:?})"
    rank: ClassVar[int] = 5


@dataclass(frozen=True)
class Conv3dBackwardWeight(_ConvBackwardWeight):
    """The gradient of Conv3d for w: operands x [N, C_in, D, H, W], dy [N, C_out, D', H', W']."""

    text: ClassVar[str] = "conv3d_backward_weight({kernel_size:?})"
    rank: ClassVar[int] = 5


KINDS: tuple[type[Op], ...] = (
    *(MaxPool2dBackward, Conv2dBackwardInput, Conv2dBackwardWeight),
    *(MaxPool3dBackward, Conv3dBackwardInput, Conv3dBackwardWeight),
)
