"""Convolution and pooling from ONNX: where windows stand on images.

The IR's windows are two-dimensional. A one-dimensional one is a window of height 1 on images of height 1; a
three-dimensional pool is taken apart, first over rows and columns, then over depth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx_edge.formats.onnx_node import TENSOR_LIMIT, Builder, OnnxNode, RefusedError
from rlx_edge.ir import DType, Shape
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Conv,
    Conv3d,
    ConvTranspose2d,
    Op,
    Pad,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
)

WINDOW_LIMIT = 1 << 16
"""Elements of a pool's window, which no weights of the file bound: 256 by 256."""

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """A window on the axes after [N, C]: one number an axis; `pads` those before, then those after each axis."""

    image: Shape
    kernel: Numbers
    stride: Numbers
    dilation: Numbers
    pads: Numbers

    @property
    def axes(self) -> int:
        return len(self.kernel)

    def flat(self) -> Geometry:
        """A one-dimensional window as a two-dimensional one of height 1."""
        if self.axes != 1:
            return self
        pads = (0, self.pads[0], 0, self.pads[1])
        image = (*self.image[:2], 1, *self.image[2:])
        return Geometry(image, (1, *self.kernel), (1, *self.stride), (1, *self.dilation), pads)


def _geometry(node: OnnxNode, kernel: Numbers) -> Geometry:
    shape, axes = node.shape(0), len(kernel)
    if len(shape) != 2 + axes or not 1 <= axes <= 3:
        raise RefusedError(
            f"operand of shape {list(shape)} for a window {list(kernel)}; [N, C] and 1 to 3 axes are supported"
        )
    stride, dilation = node.integers("strides", (1,) * axes), node.integers("dilations", (1,) * axes)
    if len(stride) != axes or len(dilation) != axes or min(*kernel, *stride, *dilation) < 1:
        raise RefusedError(
            f"attributes strides={list(stride)} and dilations={list(dilation)}: a positive number an axis"
        )
    pads = _padding(node, shape, kernel, stride, dilation)
    padded = [shape[2 + i] + pads[i] + pads[axes + i] for i in range(axes)]
    _bound(math.prod([*shape[:2], *padded]), "the padded image")
    return Geometry(shape, kernel, stride, dilation, pads)


def _bound(elements: int, what: str) -> None:
    """What only exists while the model runs is bounded like a tensor."""
    if elements > TENSOR_LIMIT:
        raise RefusedError(f"{what} has more than {TENSOR_LIMIT} elements")


def _padding(node: OnnxNode, image: Shape, kernel: Numbers, stride: Numbers, dilation: Numbers) -> Numbers:
    """Before, then after each axis, from `pads` or from `auto_pad` and the image's size."""
    rule = node.text("auto_pad", "NOTSET")
    none = (0,) * 2 * len(kernel)
    pads = node.integers("pads", none)
    if len(pads) != len(none) or min(pads) < 0:
        raise RefusedError(f"attribute pads={list(pads)}: two numbers an axis are needed, none negative")
    if rule == "NOTSET":
        return pads
    if any(pads):
        raise RefusedError(f"attributes pads={list(pads)} and auto_pad={rule} together are not supported")
    if rule == "VALID":
        return none
    if rule not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"attribute auto_pad={rule} is not supported")
    totals = [
        max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        for size, k, s, d in zip(image[2:], kernel, stride, dilation, strict=True)
    ]
    return _shared(totals, more_before=rule == "SAME_LOWER")


def _shared(totals: Sequence[int], more_before: bool) -> Numbers:
    """Totals split into before and after; the odd one goes to the side that the rule says."""
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*large, *small) if more_before else (*small, *large)


def _on_image(node: OnnxNode, x: int, g: Geometry, op: Op, operands: Sequence[int], suffix: str | None) -> int:
    """An op of two axes on an operand of one (g.axes 1) or two; the result has as many axes as the operand."""
    if g.axes == 2:
        return _last(node, op, [x, *operands], suffix)
    image = node.step(Reshape(g.flat().image), [x], "image")
    window = node.step(op, [image, *operands], "windows")
    n, c, _, w = node.type_of(window).shape
    return _last(node, Reshape((n, c, w)), [window], suffix)


def _last(node: OnnxNode, op: Op, operands: Sequence[int], suffix: str | None) -> int:
    return node.result(op, operands) if suffix is None else node.step(op, operands, suffix)


def _flat_weights(node: OnnxNode) -> int:
    """Weights of a one-dimensional window, with a height of 1."""
    values, shape = node.known(1), node.shape(1)
    if len(shape) != 3:
        return node.operand(1)
    flat = (*shape[:2], 1, shape[2])
    if values is not None and values.dtype.kind == "f":
        return node.parameter("weights", values.reshape(flat))
    return node.step(Reshape(flat), [node.operand(1)], "weights")


def _with_bias(node: OnnxNode, axes: int, product: int, channels: int) -> int:
    """Add of a bias [C_out, 1, ..]."""
    values, shape = node.known(2), (channels, *(1,) * axes)
    if values is not None and values.dtype.kind == "f":
        bias = node.parameter("bias", values.reshape(shape))
    else:
        bias = node.step(Reshape(shape), [node.operand(2)], "bias")
    return node.result(Binary(BinaryOp.ADD), [product, bias])


def _check_weights(node: OnnxNode) -> Numbers:
    weights = node.shape(1)
    kernel = node.integers("kernel_shape", weights[2:])
    if kernel != weights[2:]:
        raise RefusedError(f"attribute kernel_shape={list(kernel)} on weights of shape {list(weights)}")
    if node.dtype(0) is not DType.F32 or node.dtype(1) is not DType.F32:
        raise RefusedError(f"operands of {node.dtype(0).value} and {node.dtype(1).value}; f32 is needed")
    return kernel


def conv(node: OnnxNode) -> int:
    """Conv (Conv3d for three axes) plus, for a bias, Add of a parameter [C_out, 1, ..]."""
    g = _geometry(node, _check_weights(node))
    groups, suffix = node.integer("group", 1), "conv" if node.given(2) else None
    x = node.operand(0)
    if g.axes == 3:
        op: Op = Conv3d(g.stride, g.pads, g.dilation, groups)
        product = _last(node, op, [x, node.operand(1)], suffix)
    else:
        flat = g.flat()
        op = Conv(flat.kernel, flat.stride, flat.pads, flat.dilation, groups)
        product = _on_image(node, x, g, op, [_flat_weights(node)], suffix)
    return _with_bias(node, g.axes, product, node.shape(1)[0]) if node.given(2) else product


def conv_transpose(node: OnnxNode) -> int:
    """ConvTranspose2d; `output_shape` and SAME padding say how much of the full result is cut off."""
    kernel = _check_weights(node)
    axes, shape = len(kernel), node.shape(0)
    if axes > 2 or len(shape) != 2 + axes:
        raise RefusedError(f"operand of shape {list(shape)}; 1-D and 2-D transposed convolutions are supported")
    stride, dilation = node.integers("strides", (1,) * axes), node.integers("dilations", (1,) * axes)
    extra, groups = node.integers("output_padding", (0,) * axes), node.integer("group", 1)
    if len(stride) != axes or len(dilation) != axes or len(extra) != axes:
        raise RefusedError("strides, dilations and output_padding need a number an axis")
    full = [(shape[2 + i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 + extra[i] for i in range(axes)]
    _bound(math.prod([shape[0], node.shape(1)[1], groups, *full]), "the uncut result")
    pads = _cut(node, shape, stride, full)
    g = Geometry(shape, kernel, stride, dilation, pads)
    flat, extra = g.flat(), (0, *extra) if axes == 1 else extra
    op = ConvTranspose2d(flat.kernel, flat.stride, flat.pads, flat.dilation, extra, groups)
    suffix = "conv" if node.given(2) else None
    product = _on_image(node, node.operand(0), g, op, [_flat_weights(node)], suffix)
    return _with_bias(node, axes, product, node.shape(1)[1] * groups) if node.given(2) else product


def _cut(node: OnnxNode, shape: Shape, stride: Numbers, full: Sequence[int]) -> Numbers:
    rule, axes = node.text("auto_pad", "NOTSET"), len(full)
    wanted = node.integers("output_shape", ())
    pads = node.integers("pads", (0,) * 2 * axes)
    if rule not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"attribute auto_pad={rule} is not supported")
    if not wanted and rule in ("NOTSET", "VALID"):
        return pads
    if not wanted:
        wanted = tuple(shape[2 + i] * stride[i] for i in range(axes))
    totals = [size - keep for size, keep in zip(full, wanted[-axes:], strict=True)]
    if min(totals) < 0:
        raise RefusedError(f"an output {list(wanted)} larger than the windows reach, {list(full)}")
    return _shared(totals, more_before=rule != "SAME_UPPER")


def max_pool(node: OnnxNode) -> int:
    if node.integer("storage_order", 0) != 0:
        raise RefusedError("attribute storage_order=1 (column-major indices) is not supported")
    return _pool(node, ReduceOp.MAX, count_include_pad=False)


def average_pool(node: OnnxNode) -> int:
    return _pool(node, ReduceOp.MEAN, node.integer("count_include_pad", 0) != 0)


def _pool(node: OnnxNode, kind: ReduceOp, count_include_pad: bool) -> int:
    g = _geometry(node, node.integers("kernel_shape", ()))
    if any(step != 1 for step in g.dilation):
        raise RefusedError(f"attribute dilations={list(g.dilation)} is not supported")
    if math.prod(g.kernel) > WINDOW_LIMIT:
        raise RefusedError(f"a window {list(g.kernel)} of more than {WINDOW_LIMIT} elements")
    x = node.operand(0)
    grown = _with_ceiling(g) if node.integer("ceil_mode", 0) else g
    if grown != g and count_include_pad:
        # Windows that hang over the padded image count what they cover of it: make the padding part of the image.
        x, grown, count_include_pad = _padded(node, x, g, grown), _inside(g, grown), False
    return _pools(node, x, grown, kind, count_include_pad, None)


def _pools(node: OnnxNode, x: int, g: Geometry, kind: ReduceOp, count_include_pad: bool, suffix: str | None) -> int:
    """One Pool; for three axes one over rows and columns, with depth as channels, then one over depth."""
    if g.axes < 3:
        flat = g.flat()
        op = Pool(kind, flat.kernel, flat.stride, flat.pads, count_include_pad=count_include_pad)
        return _on_image(node, x, g, op, [], suffix)
    n, c, d, h, w = g.image
    planes = node.step(Reshape((n, c * d, h, w)), [x], "planes")
    inner = Pool(kind, g.kernel[1:], g.stride[1:], (*g.pads[1:3], *g.pads[4:]), count_include_pad=count_include_pad)
    pooled = node.step(inner, [planes], "rows_columns")
    rows, columns = node.type_of(pooled).shape[2:]
    columns_of = node.step(Reshape((n, c, d, rows * columns)), [pooled], "depths")
    outer = Pool(kind, (g.kernel[0], 1), (g.stride[0], 1), (g.pads[0], 0, g.pads[3], 0),
                 count_include_pad=count_include_pad)  # fmt: skip
    deep = node.step(outer, [columns_of], "depth")
    return _last(node, Reshape((n, c, node.type_of(deep).shape[2], rows, columns)), [deep], suffix)


def _with_ceiling(g: Geometry) -> Geometry:
    """ceil_mode adds a window that hangs over the end, if it starts on the image or on the padding before it."""
    pads = list(g.pads)
    for i in range(g.axes):
        size = g.image[2 + i]
        room = size + pads[i] + pads[g.axes + i] - g.kernel[i]
        windows = -(-room // g.stride[i]) + 1
        if (windows - 1) * g.stride[i] >= size + pads[i]:
            windows -= 1
        pads[g.axes + i] = max((windows - 1) * g.stride[i] + g.kernel[i] - size - pads[i], 0)
    return replace(g, pads=tuple(pads))


def _padded(node: OnnxNode, x: int, g: Geometry, grown: Geometry) -> int:
    sides = [(0, 0), (0, 0), *((g.pads[i], g.pads[g.axes + i]) for i in range(g.axes))]
    return node.step(Pad(tuple(sides)), [x], "padded")


def _inside(g: Geometry, grown: Geometry) -> Geometry:
    """The window on the image that has its padding in it: what hangs over beyond is left as padding."""
    image = (*g.image[:2], *(g.image[2 + i] + g.pads[i] + g.pads[g.axes + i] for i in range(g.axes)))
    over = (max(grown.pads[g.axes + i] - g.pads[g.axes + i], 0) for i in range(g.axes))
    return replace(grown, image=image, pads=(*(0,) * g.axes, *over))


def lp_pool(node: OnnxNode) -> int:
    """(kernel size * mean of |x|^p)^(1/p), where padding counts as 0."""
    g = _geometry(node, node.integers("kernel_shape", ()))
    if any(step != 1 for step in g.dilation):
        raise RefusedError(f"attribute dilations={list(g.dilation)} is not supported")
    p = node.integer("p", 2)
    if p < 1:
        raise RefusedError(f"attribute p={p} is not supported")
    grown = _with_ceiling(g) if node.integer("ceil_mode", 0) else g
    terms = _power(node, node.step(Activation(ActivationFn.ABS), [node.operand(0)], "size"), float(p), "terms")
    mean = _pools(node, terms, grown, ReduceOp.MEAN, True, "mean")
    count = node.scalar("count", math.prod(g.kernel))
    return _power(node, node.step(Binary(BinaryOp.MUL), [mean, count], "sum"), 1.0 / p, None)


def _power(node: OnnxNode, x: int, exponent: float, suffix: str | None) -> int:
    return _last(node, Binary(BinaryOp.POW), [x, node.scalar("exponent", exponent)], suffix)


def global_pool(kind: ReduceOp) -> Builder:
    """A reduction over the whole image, keeping its axes."""

    def build(node: OnnxNode) -> int:
        return node.result(Reduce(kind, _image_axes(node), keep_dim=True), [node.operand(0)])

    return build


def global_lp_pool(node: OnnxNode) -> int:
    p = node.integer("p", 2)
    if p < 1:
        raise RefusedError(f"attribute p={p} is not supported")
    terms = _power(node, node.step(Activation(ActivationFn.ABS), [node.operand(0)], "size"), float(p), "terms")
    total = node.step(Reduce(ReduceOp.SUM, _image_axes(node), keep_dim=True), [terms], "sum")
    return _power(node, total, 1.0 / p, None)


def _image_axes(node: OnnxNode) -> Numbers:
    if node.rank(0) < 3:
        raise RefusedError(f"operand of shape {list(node.shape(0))}; an image [N, C, ..] is needed")
    return tuple(range(2, node.rank(0)))


OPS: dict[str, Builder] = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "GlobalAveragePool": global_pool(ReduceOp.MEAN),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_pool(ReduceOp.MAX),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
}
