"""Convolutions, dense layers and pooling as TFLite operators.

TFLite places windows by a rule, SAME or VALID, instead of by numbers. Other paddings become an operator of their own
before a VALID window; that is the same integer, because padded positions hold the zero point (or -128 for a maximum).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_tflite_context import GROUPED_CONV_VERSION, INT8_VERSIONS, Exporter, quant_of
from rlx_edge.formats.tflite_shapes import same_padding
from rlx_edge.ir import Array, DType, Node, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Layout, Pool, QConv2d, QMatMul, ReduceOp
from rlx_edge.ir.ops.conv import pad_sides

Pair = tuple[int, int]


# ---- Where windows lie ----------------------------------------------------------------------------------------------


def _axis_padding(size: int, out: int, reach: int, stride: int, before: int) -> set[int]:
    """The padding rules that give windows of `reach` pixels these places along one axis.

    What is padded after the last window's end is never read, so only the number of outputs counts there.
    """
    found = set()
    if before == 0 and size >= reach and (size - reach) // stride + 1 == out:
        found.add(tflite.Padding.VALID)
    if before == same_padding(size, reach, stride)[0] and -(-size // stride) == out:
        found.add(tflite.Padding.SAME)
    return found


def padding_rule(image: Sequence[int], out: Sequence[int], reach: Pair, stride: Pair, before: Pair) -> int | None:
    """VALID or SAME where one of them places windows like this on an NHWC image, else None."""
    rows, columns = (_axis_padding(image[1 + i], out[1 + i], reach[i], stride[i], before[i]) for i in (0, 1))
    both = rows & columns
    return tflite.Padding.VALID if tflite.Padding.VALID in both else next(iter(both), None)


def _padded(ex: Exporter, node: Node, reach: Pair, stride: Pair, before: Pair, code: int) -> int:
    """The operand with explicit padding by this code, as wide as a VALID window needs it."""
    x = ex.graph.operands(node)[0]
    quant, shape, out = quant_of(x.type), x.type.shape, node.type.shape
    pads = [(0, 0), (0, 0), (0, 0), (0, 0)]
    for i in (0, 1):
        end = (out[1 + i] - 1) * stride[i] + reach[i]
        pads[1 + i] = (before[i], max(end - before[i] - shape[1 + i], 0))
    grown = tuple(first + size + last for size, (first, last) in zip(shape, pads, strict=True))
    output = ex.scratch(node, "padded", TensorType(grown, DType.I8, quant))
    return ex.emit_pad(node, ex.tensor(x), pads, code, output)


def _require_nhwc(layout: Layout) -> None:
    if layout is not Layout.NHWC:
        raise UnsupportedError("NCHW images; .tflite is NHWC: prepare the graph first (rlx_edge.passes.prepare)")


# ---- Convolution and dense ------------------------------------------------------------------------------------------


def _centered(values: Array, zero_point: int) -> Array:
    """Weights for a zero point of 0. Raises UnsupportedError where they leave int8."""
    moved = values.astype(np.int64) - zero_point
    if moved.min() < -128 or moved.max() > 127:
        raise UnsupportedError(
            f"weights with the zero point {zero_point}, which reach {moved.min()}..{moved.max()} around it; "
            "TFLite's int8 kernels have symmetric weights"
        )
    return moved.astype(np.int8)


def _constant(ex: Exporter, node: Node, what: str) -> Array:
    values = ex.graph.constant(node)
    if values is None:
        raise UnsupportedError(f"{what} that the model computes ({node.name!r})")
    return values


def _dtype(ex: Exporter, node: Node, values: Array, refused: str = "") -> DType:
    """What the file's weights are: of fewer than 8 bits where INT4 holds the values, and nothing says `refused`."""
    dtype = ex.graph.operands(node)[1].type.dtype
    low, high = DType.I4.limits
    if dtype is DType.I8 or (not refused and low <= values.min() and values.max() <= high):
        return dtype
    why = refused or f"values from {values.min()} to {values.max()} around their zero point, which INT4 does not hold"
    ex.notes.append(f"{node.name!r} has its {dtype.value} weights as INT8, a byte each, of equal results: {why}")
    return DType.I8


def _bias(ex: Exporter, node: Node, x: QuantParams, w: QuantParams) -> int:
    """The bias as an INT32 tensor, whose scales are products by definition."""
    bias = ex.graph.operands(node)[2]
    limits = np.finfo(np.float32)
    products = np.clip(np.array(w.scales) * x.scale, limits.tiny, limits.max).astype(np.float32)
    scales = tuple(products.tolist())
    axis = None if len(scales) == 1 else 0
    return ex.weights(bias, _constant(ex, bias, "a bias"), QuantParams(scales, (0,) * len(scales), axis))


def conv(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, QConv2d)
    _require_nhwc(op.layout)
    x, held = ex.graph.operands(node)[:2]
    x_quant, w_quant = quant_of(x.type), quant_of(held.type)
    values = _centered(_constant(ex, held, "weights"), op.w_zp)
    top, left, _, _ = pad_sides(op.padding)
    stride, before = (op.stride[0], op.stride[1]), (top, left)
    reach = tuple((k - 1) * d + 1 for k, d in zip(op.kernel_size, op.dilation, strict=True))
    rule = padding_rule(x.type.shape, node.type.shape, (reach[0], reach[1]), stride, before)
    image = ex.tensor(x)
    if rule is None:
        image = _padded(ex, node, (reach[0], reach[1]), stride, before, op.x_zp)
        rule = tflite.Padding.VALID
    fields: dict[str, Any] = {
        "Padding": rule,
        "StrideH": op.stride[0],
        "StrideW": op.stride[1],
        "DilationHFactor": op.dilation[0],
        "DilationWFactor": op.dilation[1],
    }
    depthwise = op.groups > 1 and values.shape[3] == 1
    if depthwise:
        kind, options, axis = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", 3
        fields["DepthMultiplier"] = values.shape[0] // op.groups
        values = values[..., 0].transpose(1, 2, 0)[np.newaxis]
    else:
        kind, options, axis = "CONV_2D", "Conv2DOptions", 0
    w = ex.weights(held, values, _moved(w_quant, axis), _dtype(ex, node, values))
    operands = [image, w, _bias(ex, node, x_quant, w_quant)]
    ex.emit_bounded(node, op.clamp, kind, operands, options, _version(kind, op), **fields)


def _version(kind: str, op: QConv2d | QMatMul) -> int:
    """0: what follows from the types of the tensors. tflite-runtime finds its reference kernels by one version only."""
    if kind == "CONV_2D" and isinstance(op, QConv2d) and op.groups > 1:
        return GROUPED_CONV_VERSION
    return INT8_VERSIONS[kind] if op.requant is Requant.TFLITE_REF else 0


def _moved(quant: QuantParams, axis: int) -> QuantParams:
    """The weights' parameters with their axis where the operator has it, and zero points of 0."""
    return QuantParams(quant.scales, (0,) * len(quant.scales), None if quant.axis is None else axis)


def dense(ex: Exporter, node: Node) -> None:
    """Kernels take a weight zero point with one scale per tensor only."""
    op = node.op
    assert isinstance(op, QMatMul)
    x, held = ex.graph.operands(node)[:2]
    x_quant, w_quant = quant_of(x.type), quant_of(held.type)
    values = _constant(ex, held, "weights").T
    refused = ""
    if held.type.dtype is not DType.I8 and len(set(w_quant.scales)) == 1 and op.requant is Requant.TFLM:
        w_quant = QuantParams.per_tensor(w_quant.scales[0], op.w_zp)  # Of equal results: tflite_ref's would not be.
    if w_quant.axis is None:
        moved = w_quant
    else:
        values, moved = _centered(values, op.w_zp), _moved(w_quant, 0)
        refused = 'kernels take INT4 weights of a dense layer with one scale only (in a recipe: scales = "tensor")'
    w = ex.weights(held, values, moved, _dtype(ex, node, values, refused))
    operands = [ex.tensor(x), w, _bias(ex, node, x_quant, w_quant)]
    kind = "FULLY_CONNECTED"
    ex.emit_bounded(node, op.clamp, kind, operands, "FullyConnectedOptions", _version(kind, op))


# ---- Pooling --------------------------------------------------------------------------------------------------------


def pool(ex: Exporter, node: Node) -> None:
    op, x = node.op, ex.graph.operands(node)[0]
    assert isinstance(op, Pool)
    _require_nhwc(op.layout)
    if op.kind not in (ReduceOp.MEAN, ReduceOp.MAX):
        raise UnsupportedError(f"pooling by {op.kind.value} (Mean and Max are exported)")
    if x.type.quant != node.type.quant:
        raise UnsupportedError("operand and output with different quantization parameters; requantize explicitly")
    top, left, bottom, right = pad_sides(op.padding)
    kernel, stride, before = (op.kernel_size[0], op.kernel_size[1]), (op.stride[0], op.stride[1]), (top, left)
    counted = op.kind is ReduceOp.MEAN and op.count_include_pad and max(top, left, bottom, right) > 0
    rule = None if counted else padding_rule(x.type.shape, node.type.shape, kernel, stride, before)
    image = ex.tensor(x)
    if rule is None and (op.kind is ReduceOp.MAX or counted):
        code = quant_of(x.type).zero_point if counted else DType.I8.limits[0]
        image, rule = _padded(ex, node, kernel, stride, before, code), tflite.Padding.VALID
    if rule is None:
        image, kernel, rule = _mean_of_every_pixel(ex, node, op, before), (1, 1), tflite.Padding.VALID
        _emit_pool(ex, node, "MAX_POOL_2D", image, kernel, stride, rule)
    else:
        kind = "MAX_POOL_2D" if op.kind is ReduceOp.MAX else "AVERAGE_POOL_2D"
        _emit_pool(ex, node, kind, image, kernel, stride, rule)


def _emit_pool(ex: Exporter, node: Node, kind: str, x: int, kernel: Pair, stride: Pair, rule: int) -> None:
    assert isinstance(node.op, Pool)
    fields = _pool_fields(kernel, stride, rule)
    ex.emit_bounded(node, node.op.clamp, kind, [x], "Pool2DOptions", **fields)


def _mean_of_every_pixel(ex: Exporter, node: Node, op: Pool, before: Pair) -> int:
    """The mean around every pixel, of which a maximum over single pixels then takes those wanted.

    A mean that leaves the padding out of its count can only be had by SAME, whose padding depends on the stride: at a
    stride of 1 it is the symmetric padding that other frameworks write. Raises UnsupportedError for any other.
    """
    x = ex.graph.operands(node)[0]
    kernel, shape = (op.kernel_size[0], op.kernel_size[1]), x.type.shape
    for i in (0, 1):
        centered = before[i] == (kernel[i] - 1) // 2
        if not centered or -(-shape[1 + i] // op.stride[i]) != node.type.shape[1 + i]:
            raise UnsupportedError(
                f"a mean pooling padded by {list(op.padding)} at stride {list(op.stride)} that does not count its "
                "padding; TFLite has SAME and VALID only"
            )
    output = ex.scratch(node, "every_pixel", TensorType(shape, DType.I8, quant_of(x.type)))
    fields = _pool_fields(kernel, (1, 1), tflite.Padding.SAME)
    return ex.emit("AVERAGE_POOL_2D", [ex.tensor(x)], output, "Pool2DOptions", **fields)


def _pool_fields(kernel: Pair, stride: Pair, rule: int) -> dict[str, Any]:
    return {
        "Padding": rule,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "FilterHeight": kernel[0],
        "FilterWidth": kernel[1],
    }
