"""Convolution and pooling, and the geometry that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import Requant
from rlx_edge.ir.ops.base import Arity, Layout, Op, ShapeError, exact
from rlx_edge.ir.ops.reduction import ReduceOp
from rlx_edge.ir.tensor import Shape, TensorType


class Window(Protocol):
    """The attributes that place a window on an image."""

    @property
    def kernel_size(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> tuple[int, ...]: ...
    @property
    def padding(self) -> tuple[int, ...]: ...
    @property
    def layout(self) -> Layout: ...


class ConvWindow(Window, Protocol):
    """A window with dilation and groups."""

    @property
    def dilation(self) -> tuple[int, ...]: ...
    @property
    def groups(self) -> int: ...


def pad_sides(padding: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of a padding given as two or four numbers."""
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    if len(padding) == 4:
        return padding[0], padding[1], padding[2], padding[3]
    raise ShapeError(f"padding {list(padding)}: two or four numbers are needed")


def image_dims(shape: Shape, layout: Layout) -> tuple[int, int, int, int]:
    """(N, H, W, C) of an image tensor."""
    if len(shape) != 4:
        raise ShapeError(f"an image of rank 4 is needed, not {list(shape)}")
    n, a, b, c = shape
    return (n, b, c, a) if layout is Layout.NCHW else (n, a, b, c)


def image_shape(n: int, h: int, w: int, c: int, layout: Layout) -> Shape:
    return (n, c, h, w) if layout is Layout.NCHW else (n, h, w, c)


def window_output(op: Window, h: int, w: int, dilation: tuple[int, ...] = (1, 1)) -> tuple[int, int]:
    """Rows and columns of the output. Raises ShapeError for a window that does not fit or makes no sense."""
    top, left, bottom, right = pad_sides(op.padding)
    if len(op.kernel_size) != 2 or len(op.stride) != 2 or len(dilation) != 2:
        raise ShapeError("kernel_size, stride and dilation need two numbers each")
    if min(*op.kernel_size, *op.stride, *dilation) < 1 or min(top, left, bottom, right) < 0:
        raise ShapeError("kernel_size, stride and dilation must be positive, padding not negative")
    out = []
    for size, kernel, stride, step, pad in zip(
        (h, w), op.kernel_size, op.stride, dilation, (top + bottom, left + right), strict=True
    ):
        reach = (kernel - 1) * step + 1
        if size + pad < reach:
            raise ShapeError(f"a window of {reach} over {size} pixels padded by {pad}")
        out.append((size + pad - reach) // stride + 1)
    return out[0], out[1]


def conv_infer(op: ConvWindow, x: TensorType, w: TensorType) -> Shape:
    """Output shape of a 2-D convolution. Raises ShapeError when channels, groups or kernel do not fit."""
    n, height, width, c_in = image_dims(x.shape, op.layout)
    c_out, kh, kw, c_group = image_dims(w.shape, op.layout)
    if (kh, kw) != tuple(op.kernel_size):
        raise ShapeError(f"kernel_size {list(op.kernel_size)} but w is {list(w.shape)} in {op.layout.value}")
    if op.groups < 1 or c_in != c_group * op.groups or c_out % op.groups:
        raise ShapeError(f"{c_in} input and {c_out} output channels in {op.groups} groups with w {list(w.shape)}")
    rows, columns = window_output(op, height, width, op.dilation)
    return image_shape(n, rows, columns, c_out, op.layout)


def conv_macs(w: TensorType, out: TensorType) -> int:
    """Every output element is a dot product over kernel positions and input channels of its group."""
    return out.elements * (w.elements // w.shape[0])


@dataclass(frozen=True)
class Conv(Op):
    """Float 2-D convolution, without bias (add one with Binary Add). Layouts and padding as in QConv2d."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "conv2d({kernel_size:?})"
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    layout: Layout = Layout.NCHW

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return conv_infer(self, *operands), operands[0].dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return conv_macs(operands[1], out)


@dataclass(frozen=True)
class ConvTranspose2d(Op):
    """Each pixel of x spread over a window of the output, without bias; operands x, w.

    NCHW: x [N, C_in, H, W], w [C_in, C_out/groups, kH, kW]. NHWC: x [N, H, W, C_in], w [C_in, kH, kW, C_out/groups].
    Rows of the output: (H - 1) * stride - top - bottom + dilation * (kH - 1) + 1 + output_padding; columns alike.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "conv_transpose2d({kernel_size:?})"
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    layout: Layout = Layout.NCHW

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w = operands
        n, height, width, c_in = image_dims(x.shape, self.layout)
        c_w, kh, kw, c_group = image_dims(w.shape, self.layout)
        if (kh, kw) != tuple(self.kernel_size):
            raise ShapeError(f"kernel_size {list(self.kernel_size)} but w is {list(w.shape)} in {self.layout.value}")
        if self.groups < 1 or c_in != c_w or c_in % self.groups:
            raise ShapeError(f"{c_in} input channels in {self.groups} groups with w {list(w.shape)}")
        rows, columns = spread_output(self, height, width)
        return image_shape(n, rows, columns, c_group * self.groups, self.layout), x.dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return operands[0].elements * (operands[1].elements // operands[1].shape[0])


def spread_output(op: ConvTranspose2d, h: int, w: int) -> tuple[int, int]:
    """Rows and columns of a transposed convolution's output. Raises ShapeError where there are none."""
    top, left, bottom, right = pad_sides(op.padding)
    numbers = (op.stride, op.dilation, op.output_padding)
    if any(len(pair) != 2 for pair in numbers) or min(*op.kernel_size, *op.stride, *op.dilation) < 1:
        raise ShapeError("stride, dilation and output_padding need two numbers each, the first two positive")
    if min(top, left, bottom, right, *op.output_padding) < 0:
        raise ShapeError("padding and output_padding must not be negative")
    out = []
    for axis, (size, pad) in enumerate(((h, top + bottom), (w, left + right))):
        reach = (op.kernel_size[axis] - 1) * op.dilation[axis] + 1
        out.append((size - 1) * op.stride[axis] + reach + op.output_padding[axis] - pad)
    if min(out) < 1:
        raise ShapeError(f"padding {list(op.padding)} leaves nothing of the output")
    return out[0], out[1]


@dataclass(frozen=True)
class Conv3d(Op):
    """3-D convolution without bias: x [N, C_in, D, H, W], w [C_out, C_in/groups, kD, kH, kW].

    `padding` is three numbers, or six: those before, then those after each axis.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "conv3d(stride={stride:?})"
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, w = operands
        if len(x.shape) != 5 or len(w.shape) != 5:
            raise ShapeError(f"x {list(x.shape)} and w {list(w.shape)}; rank 5 is needed")
        if len(self.stride) != 3 or len(self.dilation) != 3 or len(self.padding) not in (3, 6):
            raise ShapeError("stride and dilation need three numbers each, padding three or six")
        if min(*self.stride, *self.dilation, self.groups) < 1 or min(self.padding) < 0:
            raise ShapeError("stride, dilation and groups must be positive, padding not negative")
        if x.shape[1] != w.shape[1] * self.groups or w.shape[0] % self.groups:
            raise ShapeError(f"x {list(x.shape)} in {self.groups} groups with w {list(w.shape)}")
        out = []
        for axis in range(3):
            reach = (w.shape[2 + axis] - 1) * self.dilation[axis] + 1
            room = x.shape[2 + axis] + self.padding[axis] + self.padding[axis - 3] - reach
            if room < 0:
                raise ShapeError(f"a window of {reach} over {x.shape[2 + axis]} elements")
            out.append(room // self.stride[axis] + 1)
        return (x.shape[0], w.shape[0], *out), x.dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return conv_macs(operands[1], out)


@dataclass(frozen=True)
class Pool(Op):
    """Mean or maximum over windows. Padding never wins a maximum; it counts in a mean only with `count_include_pad`."""

    text: ClassVar[str] = "pool_{kind:?}({kernel_size:?})"
    kind: ReduceOp
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    layout: Layout = Layout.NCHW
    count_include_pad: bool = False
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n, h, w, c = image_dims(operands[0].shape, self.layout)
        rows, columns = window_output(self, h, w)
        top, left, bottom, right = pad_sides(self.padding)
        if max(top, bottom) >= self.kernel_size[0] or max(left, right) >= self.kernel_size[1]:
            raise ShapeError("padding as wide as the window: some windows would hold no pixel")
        return image_shape(n, rows, columns, c, self.layout), operands[0].dtype
