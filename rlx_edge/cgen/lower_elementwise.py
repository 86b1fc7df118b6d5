"""Elementwise ops as kernel calls."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from rlx_edge.cgen import kernels
from rlx_edge.cgen.lower_windows import bounds, float_bits
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.cgen.rows import image_views, rows_of
from rlx_edge.ir import DType, FrozenAdd, FrozenScale, FrozenTable, Graph, Node, Requant, Shape, TensorType
from rlx_edge.ir.ops import Activation, Binary, BinaryOp, Clamp, Dequantize, Quantize
from rlx_edge.reference.integer import clamp_bounds, quant_of

_KERNELS = {BinaryOp.ADD: kernels.ADD, BinaryOp.SUB: kernels.SUB, BinaryOp.MUL: kernels.MUL}
_KERNELS_ONNX = {BinaryOp.ADD: kernels.ADD_ONNX, BinaryOp.SUB: kernels.SUB_ONNX, BinaryOp.MUL: kernels.MUL_ONNX}


def binary(graph: Graph, node: Node) -> tuple[Call, ...]:
    """One call an image. Shapes are padded in front to [N, H, W, C]; an axis that broadcasts has stride 0."""
    op, out = node.op, _four(node.type.shape)
    assert isinstance(op, Binary)
    a, b = graph.operands(node)
    strides = [_strides(_four(operand.type.shape), out) for operand in (a, b)]
    onnx = op.requant is Requant.ONNX
    scales = _float_scales(a.type, b.type, node.type) if onnx else _binary_scales(op.frozen)
    params = scales | bounds(op.clamp)
    params |= {"a_zp": quant_of(a.type).zero_point, "b_zp": quant_of(b.type).zero_point}
    params |= {"out_zp": quant_of(node.type).zero_point} | _inner_strides(strides, out)
    calls = []
    for image in range(out[0]):
        inputs = tuple(
            View(_base(graph, operand), pitch, image * per_image)
            for operand, (per_image, pitch, _, _) in zip((a, b), strides, strict=True)
        )
        pitch = out[2] * out[3]
        kernel = (_KERNELS_ONNX if onnx else _KERNELS)[op.fn]
        calls.append(Call(kernel, params, inputs, View(node.id, pitch, image * out[1] * pitch), out[1]))
    return tuple(calls)


def _four(shape: Shape) -> tuple[int, int, int, int]:
    n, h, w, c = (1,) * (4 - len(shape)) + shape
    return n, h, w, c


def _strides(shape: Shape, out: Shape) -> tuple[int, int, int, int]:
    steps = [0, 0, 0, 0]
    size = 1
    for axis in (3, 2, 1, 0):
        steps[axis] = size if shape[axis] == out[axis] else 0
        size *= shape[axis]
    n, h, w, c = steps
    return n, h, w, c


def _inner_strides(strides: list[tuple[int, int, int, int]], out: Shape) -> dict[str, int]:
    """Strides along W and C; the two are joined where neither operand broadcasts within a row."""
    (_, _, a_w, a_c), (_, _, b_w, b_c) = strides
    width, channels = out[2], out[3]
    joined = all((w, c) in ((channels, 1), (0, 0)) for w, c in ((a_w, a_c), (b_w, b_c)))
    if joined:
        a_w = b_w = 0
        width, channels = 1, width * channels
    return dict(width=width, channels=channels, a_stride_w=a_w, a_stride_c=a_c, b_stride_w=b_w, b_stride_c=b_c)


def _binary_scales(frozen: object) -> dict[str, int]:
    names = ("left_shift", "a_multiplier", "a_shift", "b_multiplier", "b_shift")
    if isinstance(frozen, FrozenScale):
        return dict.fromkeys(names, 0) | dict(out_multiplier=frozen.multipliers[0], out_shift=frozen.shifts[0])
    assert isinstance(frozen, FrozenAdd)
    return dict(
        left_shift=frozen.left_shift,
        a_multiplier=frozen.a.multipliers[0],
        a_shift=frozen.a.shifts[0],
        b_multiplier=frozen.b.multipliers[0],
        b_shift=frozen.b.shifts[0],
        out_multiplier=frozen.out.multipliers[0],
        out_shift=frozen.out.shifts[0],
    )


def _float_scales(a: TensorType, b: TensorType, out: TensorType) -> dict[str, int]:
    """Rule onnx: the bits of the scales."""
    names = ("a_multiplier", "b_multiplier", "out_multiplier")
    bits = [float_bits(quant_of(type).scale) for type in (a, b, out)]
    return dict(zip(names, bits, strict=True)) | dict.fromkeys(("left_shift", "a_shift", "b_shift", "out_shift"), 0)


def _base(graph: Graph, operand: Node) -> int | Constant:
    values = graph.constant(operand)
    return operand.id if values is None else Constant("operand", values)


def quantize(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Quantize)
    target = quant_of(node.type)
    width = rows_of(node.type)[2]
    if x.type.dtype is DType.F32:
        params = dict(width=width, scale_bits=float_bits(target.scale), zero_point=target.zero_point)
        kernel = kernels.QUANTIZE_ONNX if op.requant is Requant.ONNX else kernels.QUANTIZE
        return _rowwise(graph, node, kernel, params | bounds(op.clamp))
    if isinstance(op.frozen, FrozenTable):
        low, high = op.clamp or (-128, 127)
        table = Constant("table", np.array(op.frozen.codes, np.int8).clip(low, high))
        return _rowwise(graph, node, kernels.LOOKUP, dict(width=width), {"table": table})
    assert isinstance(op.frozen, FrozenScale)
    params = dict(width=width, x_zp=quant_of(x.type).zero_point, out_zp=target.zero_point)
    params |= dict(multiplier=op.frozen.multipliers[0], shift=op.frozen.shifts[0])
    return _rowwise(graph, node, kernels.REQUANTIZE, params | bounds(op.clamp))


def dequantize(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Dequantize)
    x = graph.nodes[node.inputs[0]]
    source = quant_of(x.type)
    params = dict(width=rows_of(x.type)[2], scale_bits=float_bits(source.scale), zero_point=source.zero_point)
    return _rowwise(graph, node, kernels.DEQUANTIZE, params | bounds(None))


def clamp(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Clamp)
    params = dict(width=rows_of(node.type)[2], x_zp=0, out_zp=0, multiplier=0, shift=0)
    return _rowwise(graph, node, kernels.CLAMP, params | bounds(clamp_bounds(node.op, quant_of(node.type))))


def activation(graph: Graph, node: Node) -> tuple[Call, ...]:
    assert isinstance(node.op, Activation) and isinstance(node.op.frozen, FrozenTable)
    table = Constant("table", np.array(node.op.frozen.codes, np.int8))
    return _rowwise(graph, node, kernels.LOOKUP, dict(width=rows_of(node.type)[2]), {"table": table})


def _rowwise(
    graph: Graph,
    node: Node,
    kernel: kernels.Kernel,
    params: dict[str, int],
    constants: Mapping[str, Constant] = MappingProxyType({}),
) -> tuple[Call, ...]:
    x = graph.nodes[node.inputs[0]]
    rows = rows_of(node.type)[1]
    return tuple(
        Call(kernel, params, (source,), target, rows, constants)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )
