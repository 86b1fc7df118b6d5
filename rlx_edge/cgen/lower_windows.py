"""Convolutions, matrix products and pooling as kernel calls."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen import kernels
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import compact, image_views
from rlx_edge.ir import Array, FrozenScale, Graph, Node, Requant
from rlx_edge.ir.ops import Pool, QConv2d, QMatMul, ReduceOp
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.reference.integer import quant_of

Bounds = tuple[int, int]


def float_bits(value: float) -> int:
    """The IEEE 754 bits of a float32, as an int32."""
    return int(np.array(value, np.float32).view(np.int32))


def bounds(clamp: Bounds | None) -> dict[str, int]:
    low, high = clamp or (-128, 127)
    return {"low": low, "high": high}


def _scale_tables(frozen: object) -> tuple[dict[str, Constant], int]:
    """Multipliers and shifts as constants, and 1 when there is one per channel."""
    assert isinstance(frozen, FrozenScale)
    pairs = np.array([frozen.multipliers, frozen.shifts], np.int64).T
    table, per_channel = compact_pairs(pairs)
    return {
        "multipliers": Constant("multipliers", table[:, 0].astype(np.int32)),
        "shifts": Constant("shifts", table[:, 1].astype(np.int8)),
    }, per_channel


def compact_pairs(pairs: Array) -> tuple[Array, int]:
    """Rows of (multiplier, shift), reduced to one row when all are equal."""
    _, varies_m = compact(pairs[:, 0])
    _, varies_s = compact(pairs[:, 1])
    per_channel = max(varies_m, varies_s)
    return (pairs if per_channel else pairs[:1]), per_channel


def _weights_of(graph: Graph, node: Node) -> tuple[Array, Array]:
    w, bias = (graph.constant(operand) for operand in graph.operands(node)[1:])
    assert w is not None and bias is not None
    return w, bias


def folded_bias(rows: Array, bias: Array, op: QConv2d | QMatMul) -> Array:
    """bias - x_zp * sum of (w - w_zp), int64: with it a kernel can take x as it is. rows: weights [C_out, taps]."""
    sums = (rows.astype(np.int64) - op.w_zp).sum(axis=1)
    return np.asarray(bias.astype(np.int64) - op.x_zp * sums)


def conv(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    w, bias = _weights_of(graph, node)
    _, in_h, in_w, in_c = x.type.shape
    _, out_h, out_w, out_c = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    tables, per_channel = _scale_tables(op.frozen)
    depthwise = op.groups == in_c and in_c > 1
    folded = folded_bias(w.reshape(out_c, -1), bias, op)
    packed = np.ascontiguousarray(w[..., 0].transpose(1, 2, 0)) if depthwise else w
    params = {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c),
        **dict(k_h=op.kernel_size[0], k_w=op.kernel_size[1], stride_h=op.stride[0], stride_w=op.stride[1]),
        **dict(dilation_h=op.dilation[0], dilation_w=op.dilation[1], pad_top=top, pad_left=left, groups=op.groups),
        **dict(x_zp=op.x_zp, w_zp=op.w_zp, out_zp=op.out_zp, per_channel=per_channel),
        **bounds(op.clamp),
    }
    constants = {"weights": Constant("weights", packed), "bias": Constant("bias", folded.astype(np.int32)), **tables}
    plain, onnx = (kernels.DEPTHWISE, kernels.DEPTHWISE_ONNX) if depthwise else (kernels.CONV, kernels.CONV_ONNX)
    kernel = onnx if op.requant is Requant.ONNX else plain
    return tuple(
        Call(kernel, params, (source,), target, out_h, constants)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def dense(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    w, bias = _weights_of(graph, node)
    rows, in_c = x.type.shape
    tables, per_channel = _scale_tables(op.frozen)
    params = {
        **dict(in_c=in_c, out_c=w.shape[1], w_zp=op.w_zp, out_zp=op.out_zp, per_channel=per_channel),
        **bounds(op.clamp),
    }
    constants = {
        "weights": Constant("weights", np.ascontiguousarray(w.T)),
        "bias": Constant("bias", folded_bias(w.T, bias, op).astype(np.int32)),
        **tables,
    }
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    kernel = kernels.DENSE_ONNX if op.requant is Requant.ONNX else kernels.DENSE
    return (Call(kernel, params, (source,), target, rows, constants),)


def pool(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Pool)
    _, in_h, in_w, channels = x.type.shape
    _, out_h, out_w, _ = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    params = {
        **dict(in_h=in_h, in_w=in_w, channels=channels, out_w=out_w, k_h=op.kernel_size[0], k_w=op.kernel_size[1]),
        **dict(stride_h=op.stride[0], stride_w=op.stride[1], pad_top=top, pad_left=left),
        **dict(x_zp=quant_of(x.type).zero_point, count_pad=int(op.count_include_pad)),
        **dict(half_up=int(op.requant is Requant.TFLITE_UINT8)),
        **bounds(op.clamp),
    }
    kernel = kernels.AVG_POOL if op.kind is ReduceOp.MEAN else kernels.MAX_POOL
    if kernel is kernels.AVG_POOL and op.requant is Requant.ONNX:
        kernel, out = kernels.AVG_POOL_ONNX, quant_of(node.type)
        params |= dict(x_scale=float_bits(quant_of(x.type).scale), out_scale=float_bits(out.scale))
        params |= dict(out_zp=out.zero_point)
    return tuple(
        Call(kernel, params, (source,), target, out_h)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )
