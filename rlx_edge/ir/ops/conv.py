"""Convolution and pooling, and the geometry that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import Requant
from rlx_edge.ir.ops.base import Layout, Op, ShapeError
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

    arity: ClassVar[tuple[int, int | None]] = (2, 2)
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    layout: Layout = Layout.NCHW

    def display(self) -> str:
        return f"conv2d({list(self.kernel_size)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return conv_infer(self, *operands), operands[0].dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return conv_macs(operands[1], out)


@dataclass(frozen=True)
class Pool(Op):
    """Mean or maximum over windows. Padding never wins a maximum; it counts in a mean only with `count_include_pad`."""

    kind: ReduceOp
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    layout: Layout = Layout.NCHW
    count_include_pad: bool = False
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None

    def display(self) -> str:
        return f"pool_{self.kind.value}({list(self.kernel_size)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        n, h, w, c = image_dims(operands[0].shape, self.layout)
        rows, columns = window_output(self, h, w)
        top, left, bottom, right = pad_sides(self.padding)
        if max(top, bottom) >= self.kernel_size[0] or max(left, right) >= self.kernel_size[1]:
            raise ShapeError("padding as wide as the window: some windows would hold no pixel")
        return image_shape(n, rows, columns, c, self.layout), operands[0].dtype
