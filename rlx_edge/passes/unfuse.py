"""Kinds that stand for several others, as these: the same bits, since the reference defines them so.

Fused kinds, regions, and kinds that only move elements, in a form that works in any layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx_edge.ir import DType, Graph, QuantParams, Requant
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    CmpOp,
    Compare,
    Expand,
    Gather,
    LayerNorm,
    MatMul,
    Op,
    Reduce,
    ReduceOp,
    Reshape,
    RmsNorm,
    Trilu,
    Where,
)
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.ir.ops.modulation import LayerNorm2d
from rlx_edge.ir.ops.ordering import Histogram, Roll
from rlx_edge.ir.ops.pointwise import StopGradient
from rlx_edge.ir.ops.regions import (
    BatchElementwiseRegion,
    ChainStep,
    ElementwiseRegion,
    RegionPrologue,
    Source,
    TransformRegion,
)
from rlx_edge.ir.ops.volumes import Interpolate3d, ResizeNearest2x
from rlx_edge.passes.parts import PartRule, Parts, replace_kinds
from rlx_edge.reference.ordering import histogram_edges

ADD, MUL, SUB = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL), Binary(BinaryOp.SUB)

EXACT_COUNTS = 1 << 24
"""Below it, float32 holds every whole number."""


def unfuse(graph: Graph) -> Graph:
    """The same function without the kinds of RULES."""
    return replace_kinds(graph, RULES)


# ---- Fused kinds ----------------------------------------------------------------------------------------------------


def swiglu(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, FusedSwiGLU)
    (x,) = parts.operands
    axis, half = len(parts.node.type.shape) - 1, parts.node.type.shape[-1]
    low, high = (parts.narrow(x, axis, start, half) for start in (0, half))
    up, gate = (high, low) if op.gate_first else (low, high)
    made = parts.add(MUL, up, parts.add(Activation(ActivationFn.SILU), gate))
    return made if op.cast_to is None else parts.add(Cast(op.cast_to), made)


def matmul_bias_act(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, FusedMatMulBiasAct)
    x, w, bias = parts.operands
    return _activated(parts, parts.add(ADD, parts.add(MatMul(), x, w), bias), op.activation)


def matmul_residual(parts: Parts) -> int | None:
    lhs, rhs, residual = parts.operands
    return parts.add(ADD, parts.add(MatMul(), lhs, rhs), residual)


def conv_bias_act(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, FusedConvBiasAct)
    x, w, bias, *residual = parts.operands
    made = parts.add(ADD, parts.add(op.conv, x, w), parts.reshape(bias, (1, *parts.shape(bias), 1, 1)))
    for term in residual:
        made = parts.add(ADD, made, term)
    return _activated(parts, made, op.activation)


def residual_norm(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, FusedResidualLN | FusedResidualRmsNorm)
    total, *terms, gamma, beta = parts.operands
    for term in terms:
        total = parts.add(ADD, total, term)
    norm = LayerNorm(-1, op.eps) if isinstance(op, FusedResidualLN) else RmsNorm(-1, op.eps)
    return parts.add(norm, total, gamma, beta)


def layer_norm2d(parts: Parts) -> int | None:
    assert isinstance(parts.node.op, LayerNorm2d)
    if parts.node.type.dtype is not DType.F32:  # LayerNorm gives float32.
        return None
    return parts.add(LayerNorm(1, parts.node.op.eps), *parts.operands)


def _activated(parts: Parts, x: int, fn: ActivationFn | None) -> int:
    return x if fn is None else parts.add(Activation(fn), x)


# ---- Regions --------------------------------------------------------------------------------------------------------


def elementwise_region(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, ElementwiseRegion)
    inputs = list(parts.operands)
    if op.prologue is RegionPrologue.RESIZE_NEAREST_2X:
        inputs[op.prologue_input] = _doubled(parts, inputs[op.prologue_input])
    return _chain(parts, op.chain, [_filling(parts, x) for x in inputs])


def batch_elementwise_region(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, BatchElementwiseRegion)
    resized = op.prologue is RegionPrologue.RESIZE_NEAREST_2X
    made = [_chain(parts, op.chain, [_doubled(parts, x) if resized else x]) for x in parts.operands]
    rows = [parts.add(Reshape((1, *parts.shape(x))), x) for x in made]
    return parts.add(Reshape(parts.node.type.shape), parts.join(rows, 0))


def transform_region(parts: Parts) -> int | None:
    assert isinstance(parts.node.op, TransformRegion)
    return _chain(parts, parts.node.op.steps, parts.operands)


def _chain(parts: Parts, chain: Sequence[ChainStep], inputs: Sequence[int]) -> int:
    results: list[int] = []
    for step in chain:
        x = [(inputs if o.source is Source.INPUT else results)[o.index] for o in step.operands]
        if isinstance(step.op, Where):
            x[0] = _holds(parts, x[0])
        results.append(_doubled(parts, x[0]) if isinstance(step.op, ResizeNearest2x) else parts.add(step.op, *x))
    return results[-1]


def _holds(parts: Parts, x: int) -> int:
    """Where a tensor is not 0."""
    dtype = parts.builder[x].type.dtype
    if dtype is DType.BOOL:
        return x
    return parts.add(Compare(CmpOp.NE), x, parts.constant("zero", np.zeros((), dtype.numpy)))


def _filling(parts: Parts, x: int) -> int:
    """The tensor's elements in row-major order, again and again, in the node's shape."""
    shape, elements = parts.node.type.shape, parts.builder[x].type.elements
    times = parts.node.type.elements // elements
    if times > 1:
        x = parts.add(Expand((times, elements)), parts.add(Reshape((1, elements)), x))
    return parts.reshape(x, shape)


# ---- Moves ----------------------------------------------------------------------------------------------------------


def roll(parts: Parts) -> int | None:
    op = parts.node.op
    assert isinstance(op, Roll)
    (x,) = parts.operands
    for shift, dim in zip(op.shifts, op.dims, strict=True):
        size = parts.shape(x)[dim]
        at = -shift % size
        if at:
            x = parts.join([parts.narrow(x, dim, at, size - at), parts.narrow(x, dim, 0, at)], dim)
    return x if x != parts.operands[0] else parts.add(Reshape(parts.shape(x)), x)


def resize_nearest_2x(parts: Parts) -> int | None:
    return _doubled(parts, parts.operands[0])


def interpolate3d(parts: Parts) -> int | None:
    assert isinstance(parts.node.op, Interpolate3d)
    return _resampled(parts, parts.operands[0], dict(enumerate(parts.node.op.size, start=2)))


def _doubled(parts: Parts, x: int) -> int:
    """An image [N, C, H, W] twice as high and wide."""
    _, _, height, width = parts.shape(x)
    return _resampled(parts, x, {2: 2 * height, 3: 2 * width})


def _resampled(parts: Parts, x: int, sizes: Mapping[int, int]) -> int:
    """New sizes by axis; place i of an axis holds element floor(i * old / new)."""
    for axis, size in sizes.items():
        indices = (np.arange(size) * parts.shape(x)[axis] // size).astype(np.int32)
        x = parts.add(Gather(axis), x, parts.constant(f"rows{axis}", indices))
    return x


def stop_gradient(parts: Parts) -> int | None:
    return parts.add(Reshape(parts.node.type.shape), parts.operands[0])


def trilu(parts: Parts) -> int | None:
    """On int8: times 1 in the triangle and 0 elsewhere. The multiplier is 1, which every rule computes exactly."""
    op, type = parts.node.op, parts.node.type
    assert isinstance(op, Trilu)
    if type.dtype is not DType.I8 or type.quant is None or type.quant.axis is not None:
        return None
    ones = np.ones(type.shape, np.int8)
    held = np.triu(ones, op.diagonal) if op.upper else np.tril(ones, op.diagonal)
    mask = parts.builder.param(f"{parts.node.name}.triangle", held, QuantParams.per_tensor(1.0, 0))
    return parts.add(Binary(BinaryOp.MUL, Requant.TFLM), parts.operands[0], mask)


def histogram(parts: Parts) -> int | None:
    """Counts from each edge on, less those from the next edge on; the last part holds its upper edge too."""
    op, x = parts.node.op, parts.operands[0]
    assert isinstance(op, Histogram)
    elements = parts.builder[x].type.elements
    if elements >= EXACT_COUNTS:
        return None
    edges = histogram_edges(op)
    column = parts.add(Reshape((elements, 1)), x)
    counts: list[int] = []
    for fn, bounds in ((CmpOp.GE, edges[:-1]), (CmpOp.GT, edges[-1:])):
        over = parts.add(Compare(fn), column, parts.constant(f"edges{len(counts)}", bounds))
        counts.append(parts.add(Reduce(ReduceOp.SUM, (0,), False), parts.add(Cast(DType.F32), over)))
    later = [parts.narrow(counts[0], 0, 1, op.bins - 1)] if op.bins > 1 else []
    return parts.add(SUB, counts[0], parts.join([*later, counts[1]], 0))


RULES: Mapping[type[Op], PartRule] = {
    FusedSwiGLU: swiglu,
    FusedMatMulBiasAct: matmul_bias_act,
    FusedMatMulResidual: matmul_residual,
    FusedConvBiasAct: conv_bias_act,
    FusedResidualLN: residual_norm,
    FusedResidualRmsNorm: residual_norm,
    LayerNorm2d: layer_norm2d,
    ElementwiseRegion: elementwise_region,
    BatchElementwiseRegion: batch_elementwise_region,
    TransformRegion: transform_region,
    Roll: roll,
    ResizeNearest2x: resize_nearest_2x,
    Interpolate3d: interpolate3d,
    StopGradient: stop_gradient,
    Trilu: trilu,
    Histogram: histogram,
}
