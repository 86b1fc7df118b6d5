"""Makers of nodes of every kind of the front page, for `any_graphs`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from graph_maker import BOOL, I8, I32, Make, Maker

from rlx_edge.ir import (
    DType,
    QuantParams,
    Requant,
    Shape,
    TensorType,
    real_multipliers,
)
from rlx_edge.ir.frozen import FrozenScale, FrozenTable
from rlx_edge.ir.ops import (
    EMA,
    Activation,
    ActivationFn,
    ArgMax,
    ArgMin,
    ArgSort,
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    CmpOp,
    Compare,
    Concat,
    Constant,
    Conv,
    Conv3d,
    ConvTranspose2d,
    CumProd,
    Cumsum,
    Dequantize,
    DequantMatMul,
    Expand,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    Gather,
    GatherElements,
    GatherNd,
    GroupNorm,
    Input,
    LayerNorm,
    Layout,
    MatMul,
    Narrow,
    Op,
    Pad,
    PadMode,
    Param,
    PerBatch,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    QuantScheme,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    RmsNorm,
    ScatterElements,
    ScatterNd,
    ScatterNdReduction,
    SchemeKind,
    Slice,
    Softmax,
    SteKind,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Where,
)


def input_(m: Maker) -> int:
    return m.builder.input(m.name(), TensorType(m.shape(), m.pick(*DType)), m.sources())


def param(m: Maker) -> int:
    dtype = m.pick(*DType)
    shape = m.shape()
    axis = m.number(0, len(shape) - 1) if shape else None
    quant = m.quant(1 if axis is None else shape[axis], axis, 0) if dtype.is_integer and m.chance() else None
    values = m.values(TensorType(shape, dtype))
    return m.builder.param(m.name(), values, quant, m.sources(), dtype)


def constant(m: Maker) -> int:
    dtype = m.pick(*(dtype for dtype in DType if dtype.bits >= 8))
    values = m.values(TensorType(m.shape(), dtype))
    return m.builder.constant(m.name(), np.full_like(values, 1) if m.chance(0.3) else values)


def int8(m: Maker, shape: Shape) -> tuple[int, QuantParams]:
    quant = m.quant()
    return m.tensor(shape, I8, quant), quant


def quantize(m: Maker) -> int:
    shape = m.shape(low=1)
    quant = m.pick(m.quant(), m.quant(shape[-1], len(shape) - 1))
    return m.add(Quantize.to(quant, m.pick(*Requant), m.pick(None, (-5, 7))), m.tensor(shape), quant=quant)


def dequantize(m: Maker) -> int:
    x, quant = int8(m, m.shape())
    return m.add(Dequantize.of(quant), x)


def weights(m: Maker, shape: Shape, axis: int) -> tuple[int, QuantParams]:
    quant = m.quant(shape[axis], axis, 0) if m.chance() else m.quant(zero=0)
    return m.tensor(shape, m.pick(I8, DType.I4, DType.I2), quant), quant


def frozen(m: Maker, channels: int) -> FrozenScale | None:
    return m.pick(None, FrozenScale((1 << 30,) * channels, tuple(range(channels))))


def q_matmul(m: Maker) -> int:
    rows, k, n = m.shape(3)
    (x, a), (w, b), out = int8(m, (rows, k)), weights(m, (k, n), 1), m.quant()
    mult = real_multipliers(a, b, out)
    op = QMatMul(a.zero_point, 0, out.zero_point, mult, m.pick(*Requant), m.pick(None, (-1, 3)), frozen(m, n))
    return m.add(op, x, w, m.tensor((n,), I32), quant=out)


def q_conv2d(m: Maker) -> int:
    groups, k, c = m.shape(3)
    (x, a), (w, b), out = int8(m, (1, 4, 4, c * groups)), weights(m, (2 * groups, k, k, c), 0), m.quant()
    mult = real_multipliers(a, b, out)
    zeros = (a.zero_point, 0, out.zero_point, mult)
    op = QConv2d((k, k), (1, 2), (1, 0, 1, 1), (1, 1), groups, *zeros, Layout.NHWC, m.pick(*Requant))
    return m.add(op, x, w, m.tensor((2 * groups,), I32), quant=out)


def dequant_matmul(m: Maker) -> int:
    rows, k, n = m.shape(3)
    block = m.number(1, 3)
    kind, stored = m.pick(
        (SchemeKind.INT8_BLOCK, I8), (SchemeKind.INT4_BLOCK, DType.I4), (SchemeKind.INT8_BLOCK_ASYM, I8)
    )
    grid = (-(-k // block), n)
    operands = [m.tensor((rows, k)), m.tensor((k, n), stored), m.tensor(grid), m.tensor(grid)]
    bias = [m.tensor((n,))] if m.chance() else []
    return m.add(DequantMatMul(QuantScheme(kind, block), m.pick(None, (0.0, 6.0))), *operands, *bias)


def fake_quantize(m: Maker) -> int:
    shape = m.shape(low=1)
    axis = m.pick(None, len(shape) - 1)
    mode = m.pick(PerBatch(), EMA(0.9), EMA(m.scale()), Fixed())
    state = [] if isinstance(mode, PerBatch) else [m.tensor((shape[axis] if axis is not None else 1,))]
    return m.add(FakeQuantize(m.number(2, 8), axis, m.pick(*SteKind), mode), m.tensor(shape), *state)


def fake_quantize_backward(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(FakeQuantizeBackward(m.number(2, 8), None, m.pick(*SteKind)), m.tensor(shape), m.tensor(shape))


def lsq(kind: type[Op], gradient: bool) -> Make:
    def make(m: Maker) -> int:
        shape = m.shape(low=1)
        axis = m.pick(None, 0)
        operands = [m.tensor(shape), m.tensor((1 if axis is None else shape[0],))]
        return m.add(kind(m.number(2, 8), axis), *operands, *([m.tensor(shape)] if gradient else []))

    return make


def conv(m: Maker) -> int:
    groups, k, c = m.shape(3)
    layout = m.pick(*Layout)
    first = layout is Layout.NCHW
    x = m.tensor((2, c * groups, 4, 4) if first else (2, 4, 4, c * groups))
    w = m.tensor((groups, c, k, k) if first else (groups, k, k, c))
    return m.add(Conv((k, k), (1, 1), m.pick((0, 0), (1, 2, 1, 0)), (1, 1), groups, layout), x, w)


def conv_transpose2d(m: Maker) -> int:
    groups, k, c = m.shape(3)
    w = m.tensor((c * groups, 2, k, k))
    return m.add(ConvTranspose2d((k, k), (2, 1), (0, 0), (1, 1), (1, 0), groups), m.tensor((1, c * groups, 3, 3)), w)


def conv3d(m: Maker) -> int:
    c, k = m.shape(2)
    return m.add(Conv3d((1, 1, 2), (0, 0, 1), (1, 1, 1), 1), m.tensor((1, c, 4, 4, 4)), m.tensor((2, c, k, k, k)))


def pool(m: Maker) -> int:
    k, layout = m.number(1, 3), m.pick(*Layout)
    op = Pool(m.pick(ReduceOp.MEAN, ReduceOp.MAX), (k, k), (1, 2), (0, k - 1, 0, 0), layout, m.chance())
    if m.chance():
        return m.add(op, m.tensor((1, 4, 4, 4)))
    x, quant = int8(m, (1, 4, 4, 4))
    return m.add(replace(op, clamp=(-3, 100), requant=m.pick(*Requant)), x, quant=quant)


def matmul(m: Maker) -> int:
    batch, a, b, c = m.shape(4)
    return m.add(MatMul(), m.tensor((batch, a, b)), m.tensor(m.pick((b, c), (1, b, c))))


def broadcast(m: Maker) -> tuple[Shape, Shape]:
    shape = m.shape()
    return shape, tuple(m.pick(1, size) for size in shape[m.number(0, len(shape)) :])


def binary(m: Maker) -> int:
    a, b = broadcast(m)
    if m.chance():
        return m.add(Binary(m.pick(BinaryOp.ADD, BinaryOp.POW, BinaryOp.ATAN2)), m.tensor(a), m.tensor(b))
    if m.chance():
        return m.add(Binary(m.pick(BinaryOp.SHL, BinaryOp.BIT_XOR, BinaryOp.MOD)), m.tensor(a, I32), m.tensor(b, I32))
    op = Binary(m.pick(BinaryOp.ADD, BinaryOp.MUL), m.pick(*Requant), m.pick(None, (-128, 3)), frozen(m, 1))
    return m.add(op, int8(m, a)[0], int8(m, b)[0], quant=m.quant())


def activation(m: Maker) -> int:
    if m.chance(0.3):
        table = FrozenTable(tuple(int(code) for code in m.rng.integers(-128, 128, 256)))
        return m.add(Activation(ActivationFn.TABLE, frozen=table), int8(m, m.shape())[0], quant=m.quant())
    fn = m.pick(*(fn for fn in ActivationFn if fn is not ActivationFn.TABLE))
    return m.add(Activation(fn, m.scale() if fn is ActivationFn.LEAKY_RELU else None), m.tensor(m.shape()))


def clamp(m: Maker) -> int:
    x, quant = (m.tensor(m.shape()), None) if m.chance() else int8(m, m.shape())
    return m.add(Clamp(m.pick(-np.inf, -1.0, 0.0), m.pick(np.inf, m.scale())), x, quant=quant)


def compare(m: Maker) -> int:
    a, b = broadcast(m)
    return m.add(Compare(m.pick(*CmpOp)), m.tensor(a), m.tensor(b))


def where(m: Maker) -> int:
    a, b = broadcast(m)
    return m.add(Where(), m.tensor(b, BOOL), m.tensor(a), m.tensor(b))


def reduce(m: Maker) -> int:
    shape = m.shape(low=1)
    axes = tuple(axis for axis in range(len(shape)) if m.chance())
    if m.chance():
        return m.add(Reduce(m.pick(*ReduceOp), axes, m.chance()), m.tensor(shape))
    return m.add(
        Reduce(ReduceOp.MEAN, axes, m.chance(), m.pick(*Requant), frozen(m, 1)), int8(m, shape)[0], quant=m.quant()
    )


def softmax(m: Maker) -> int:
    return m.add(Softmax(-1, m.pick(1.0, 0.5)), m.tensor(m.shape(low=1)))


def along(kind: Callable[..., Op]) -> Make:
    """Kinds with an axis and a flag."""

    def make(m: Maker) -> int:
        shape = m.shape(low=1)
        return m.add(kind(m.number(-len(shape), len(shape) - 1), m.chance()), m.tensor(shape))

    return make


def topk(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(TopK(m.number(1, shape[-1])), m.tensor(shape))


def layer_norm(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(LayerNorm(-1, 1e-5), m.tensor(shape), m.tensor(shape[-1:]), m.tensor(shape[-1:]))


def rms_norm(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(RmsNorm(0, m.scale()), m.tensor(shape), m.tensor(shape[:1]))


def group_norm(m: Maker) -> int:
    groups, c = m.shape(2)
    factors = m.tensor((groups * c,)), m.tensor((groups * c,))
    return m.add(GroupNorm(groups, 1e-5), m.tensor((2, groups * c, *m.shape())), *factors)


def reshape(m: Maker) -> int:
    shape = m.shape()
    target = m.pick((-1,), shape[::-1], (1, -1), (*shape, 1))
    return m.add(Reshape(target), m.tensor(shape))


def transpose(m: Maker) -> int:
    shape = m.shape()
    return m.add(Transpose(tuple(int(axis) for axis in m.rng.permutation(len(shape)))), m.tensor(shape))


def pad(m: Maker) -> int:
    shape = m.shape()
    mode = m.pick(PadMode.CONSTANT, PadMode.REPLICATE)
    return m.add(
        Pad(tuple((m.number(0, 2), m.number(0, 2)) for _ in shape), mode, m.pick(0.0, m.scale())), m.tensor(shape)
    )


def concat(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(Concat(0), *(m.tensor((m.number(1, 3), *shape[1:])) for _ in range(m.number(1, 3))))


def narrow(m: Maker) -> int:
    shape = m.shape(low=1)
    start = m.number(0, shape[0] - 1)
    return m.add(Narrow(0, start, m.number(1, shape[0] - start)), m.tensor(shape))


def slice_(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(Slice(-1, shape[-1] - 1, shape[-1], -1), m.tensor(shape))


def expand(m: Maker) -> int:
    shape, smaller = broadcast(m)
    return m.add(Expand(shape), m.tensor(smaller))


def tile(m: Maker) -> int:
    shape = m.shape()
    return m.add(Tile(tuple(m.number(1, 2) for _ in shape)), m.tensor(shape))


def reverse(m: Maker) -> int:
    shape = m.shape()
    return m.add(Reverse(tuple(axis for axis in range(len(shape)) if m.chance())), m.tensor(shape))


def trilu(m: Maker) -> int:
    return m.add(Trilu(m.chance(), m.number(-2, 2)), m.tensor(m.shape(3)))


def gather(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(Gather(0), m.tensor(shape), m.indices(m.shape(m.number(0, 2)), shape[0]))


def gather_elements(m: Maker) -> int:
    shape = m.shape(low=1)
    return m.add(GatherElements(0), m.tensor(shape), m.indices(shape, shape[0]))


def gather_nd(m: Maker) -> int:
    shape = m.shape(3)
    batch = m.number(0, 1)
    return m.add(GatherNd(batch), m.tensor(shape), m.indices((shape[0], 2, 1), shape[batch]))


def scatter_elements(m: Maker) -> int:
    shape = m.shape(low=1)
    op = ScatterElements(0, m.pick(*ScatterNdReduction))
    return m.add(op, m.tensor(shape), m.indices(shape, shape[0]), m.tensor(shape))


def scatter_nd(m: Maker) -> int:
    shape = m.shape(low=1)
    op = ScatterNd(m.pick(*ScatterNdReduction))
    return m.add(op, m.tensor(shape), m.indices((2, 1), shape[0]), m.tensor((2, *shape[1:])))


FRONT_PAGE: dict[type[Op], Make] = {
    **{Input: input_, Param: param, Constant: constant},
    **{Quantize: quantize, Dequantize: dequantize, QMatMul: q_matmul, QConv2d: q_conv2d, DequantMatMul: dequant_matmul},
    **{FakeQuantize: fake_quantize, FakeQuantizeBackward: fake_quantize_backward},
    **{FakeQuantizeLSQ: lsq(FakeQuantizeLSQ, False)},
    **{kind: lsq(kind, True) for kind in (FakeQuantizeLSQBackwardX, FakeQuantizeLSQBackwardScale)},
    **{Conv: conv, ConvTranspose2d: conv_transpose2d, Conv3d: conv3d, Pool: pool, MatMul: matmul},
    **{Binary: binary, Activation: activation, Clamp: clamp, Compare: compare, Where: where},
    Cast: lambda m: m.add(Cast(m.pick(*DType)), m.tensor(m.shape())),
    **{Reduce: reduce, Softmax: softmax, TopK: topk},
    **{kind: along(kind) for kind in (Cumsum, CumProd, ArgMax, ArgMin, ArgSort)},
    **{LayerNorm: layer_norm, RmsNorm: rms_norm, GroupNorm: group_norm},
    **{Reshape: reshape, Transpose: transpose, Pad: pad, Concat: concat, Narrow: narrow, Slice: slice_},
    **{Expand: expand, Tile: tile, Reverse: reverse, Trilu: trilu},
    **{Gather: gather, GatherElements: gather_elements, GatherNd: gather_nd},
    **{ScatterElements: scatter_elements, ScatterNd: scatter_nd},
}
"""The kinds of the front page."""
