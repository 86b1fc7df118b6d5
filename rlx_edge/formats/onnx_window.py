"""Convolution and pooling from ONNX: where windows stand on images."""

from __future__ import annotations

from rlx_edge.formats.onnx_node import OnnxNode, RefusedError
from rlx_edge.ir import Shape
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, Pool, Reduce, ReduceOp

Padding = tuple[int, ...]


def conv(node: OnnxNode) -> int:
    """Conv as Conv plus, for a bias, Add of a parameter [C_out, 1, 1]."""
    image = _image_shape(node)
    weights = node.shape(1)
    if len(weights) != 4:
        raise RefusedError(f"weights of shape {list(weights)}; only 2-D convolutions are supported")
    kernel = node.integers("kernel_shape", weights[2:])
    stride, dilation = node.integers("strides", (1, 1)), node.integers("dilations", (1, 1))
    padding = _padding(node, image, kernel, stride, dilation)
    op = Conv(kernel, stride, padding, dilation, node.integer("group", 1))
    operands = [node.operand(0), node.operand(1)]
    if not node.given(2):
        return node.result(op, operands)
    bias = node.constant(2, "the bias")
    product = node.step(op, operands, "conv")
    return node.result(Binary(BinaryOp.ADD), [product, node.parameter("bias", bias.reshape(-1, 1, 1))])


def max_pool(node: OnnxNode) -> int:
    if node.integer("storage_order", 0) != 0:
        raise RefusedError("attribute storage_order=1 (column-major indices) is not supported")
    return _pool(node, ReduceOp.MAX, count_include_pad=False)


def average_pool(node: OnnxNode) -> int:
    return _pool(node, ReduceOp.MEAN, node.integer("count_include_pad", 0) != 0)


def global_average_pool(node: OnnxNode) -> int:
    """The mean over the whole image, keeping its axes."""
    _image_shape(node)
    return node.result(Reduce(ReduceOp.MEAN, (2, 3), keep_dim=True), [node.operand(0)])


def _pool(node: OnnxNode, kind: ReduceOp, count_include_pad: bool) -> int:
    image = _image_shape(node)
    kernel = node.integers("kernel_shape", ())
    stride = node.integers("strides", (1,) * len(kernel))
    dilation = node.integers("dilations", (1,) * len(kernel))
    if len(kernel) != 2:
        raise RefusedError(f"attribute kernel_shape={list(kernel)}; only 2-D pooling is supported")
    if any(step != 1 for step in dilation):
        raise RefusedError(f"attribute dilations={list(dilation)} is not supported")
    padding = _padding(node, image, kernel, stride, dilation)
    if node.integer("ceil_mode", 0):
        _refuse_ceiling(image, kernel, stride, padding)
    op = Pool(kind, kernel, stride, padding, count_include_pad=count_include_pad)
    return node.result(op, [node.operand(0)])


def _refuse_ceiling(image: Shape, kernel: Padding, stride: Padding, padding: Padding) -> None:
    """ceil_mode says nothing where the windows fill the image exactly; elsewhere it adds windows that hang over."""
    for axis in range(2):
        room = image[2 + axis] + padding[axis] + padding[2 + axis] - kernel[axis]
        if room % stride[axis]:
            raise RefusedError("attribute ceil_mode=1 is not supported where windows hang over the image's end")


def _image_shape(node: OnnxNode) -> Shape:
    shape = node.shape(0)
    if len(shape) != 4:
        raise RefusedError(f"operand of shape {list(shape)}; only images [N, C, H, W] are supported")
    return shape


def _padding(node: OnnxNode, image: Shape, kernel: Padding, stride: Padding, dilation: Padding) -> Padding:
    """(top, left, bottom, right), from `pads` or from `auto_pad` and the image's size."""
    rule = node.text("auto_pad", "NOTSET")
    pads = node.integers("pads", (0, 0, 0, 0))
    if rule == "NOTSET":
        return pads
    if any(pads):
        raise RefusedError(f"attributes pads={list(pads)} and auto_pad={rule} together are not supported")
    if rule == "VALID":
        return (0, 0, 0, 0)
    if rule not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"attribute auto_pad={rule} is not supported")
    before, after = [], []
    for size, k, s, d in zip(image[2:], kernel, stride, dilation, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if rule == "SAME_UPPER" else large)
        after.append(large if rule == "SAME_UPPER" else small)
    return (*before, *after)
