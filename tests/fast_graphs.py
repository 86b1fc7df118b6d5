"""Hypothesis strategies: int8 graphs of one op as fast kernels meet them, so that most of their conditions hold.

op_graphs.py draws anything that is legal; these keep to weights without a zero point, no dilation and right shifts,
and vary what packing and tiling depend on: channels, kernel sizes, widths, borders, ties, saturation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from op_graphs import activation, clamps, output_scale, params, pool_graphs, scales, seeds, weight_values, zero_points

from rlx_edge.cgen.plan import Call
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, FrozenScale, Graph, GraphBuilder, QuantParams, Requant, real_multipliers
from rlx_edge.ir.ops import Binary, BinaryOp, Layout, QConv2d, QMatMul
from rlx_edge.passes.freeze import freeze

Draw = Callable[[st.SearchStrategy], object]

channels = st.one_of(st.integers(1, 9), st.sampled_from([4, 8, 12, 16, 20, 32]))
rules = st.sampled_from([Requant.TFLM, Requant.TFLITE_REF])
SMALL = (6, 9)
"""By how much an image may be higher and wider than a kernel."""


def clamp(out: QuantParams) -> st.SearchStrategy[tuple[int, int] | None]:
    """Often none, often a ReLU's."""
    zero_point = out.zero_point
    return st.one_of(
        st.none(), st.none(), clamps, st.integers(min(zero_point + 1, 127), 127).map(lambda h: (zero_point, h))
    )


ratios = st.sampled_from([0.05, 0.25, 1.0, 1.0, 8.0, 1e4, 1e7])
"""Of the output's range to the accumulators': small ones saturate, the largest need shifts beyond 23 and 31."""


@st.composite
def conv(draw: Draw, weights: DType = DType.I8) -> Graph:
    """QConv2d with one group: 1x1 and other kernels, strides, any padding."""
    kernel = draw(st.sampled_from([(1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (1, 3), (5, 1), (4, 2), (5, 4)]))
    in_c, out_c = draw(channels), draw(channels)
    return _conv(draw, kernel, in_c, out_c, groups=1, weights=weights)


@st.composite
def depthwise(draw: Draw, weights: DType = DType.I8) -> Graph:
    """QConv2d of a channel each; some images have few channels, but lines or columns that are cut into parts."""
    kernel = draw(st.sampled_from([(3, 3), (3, 3), (3, 3), (1, 1), (2, 2), (1, 3), (3, 1), (5, 5)]))
    multiplier = draw(st.sampled_from([1, 1, 1, 1, 2]))
    larger = draw(st.sampled_from([SMALL, SMALL, SMALL, (4, 90), (90, 4), (20, 24)]))
    many = st.one_of(st.integers(2, 9), st.sampled_from([4, 8, 12, 16, 20]))
    groups = draw(many if larger == SMALL else st.integers(2, 5))
    return _conv(draw, kernel, groups, groups * multiplier, groups, larger, weights)


def in_bands(draw: Draw, call: Call) -> Call:
    """The call, sometimes in smaller bands than the generator would choose, of a kernel that goes through them."""
    p = call.params
    name = "band" if "band" in p else "tile_w" if p.get("along_y") else "tile_h"
    if name not in p or draw(st.booleans()):
        return call
    return replace(call, params={**p, name: draw(st.integers(1, p[name]))})


def _conv(
    draw: Draw,
    kernel: tuple[int, int],
    in_c: int,
    out_c: int,
    groups: int,
    larger: tuple[int, int] = SMALL,
    weights: DType = DType.I8,
) -> Graph:
    stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (2, 1), (3, 3)]))
    padding = tuple(draw(st.integers(0, kernel[i % 2] - 1 if kernel[i % 2] < 4 else 4)) for i in range(4))
    size = [
        draw(st.integers(max(1, k - padding[i] - padding[i + 2]), k + limit))
        for i, (k, limit) in enumerate(zip(kernel, larger, strict=True))
    ]
    builder = GraphBuilder("conv")
    x_quant, weight_scales, weight_quant = _scales(draw, out_c, axis=0)
    x = builder.input("x", activation((draw(st.sampled_from([1, 1, 2])), *size, in_c), x_quant))
    values = weight_values(draw(seeds), (out_c, *kernel, in_c // groups), weights)
    bias = np.random.default_rng(draw(seeds)).integers(-2000, 2001, out_c).astype(np.int32)
    out_quant = _out_quant(draw, x_quant, weight_scales, kernel[0] * kernel[1] * in_c // groups, weights)
    op = QConv2d(
        *(kernel, stride, padding, (1, 1), groups),
        *(x_quant.zero_point, 0, out_quant.zero_point, real_multipliers(x_quant, weight_quant, out_quant)),
        *(Layout.NHWC, draw(rules), draw(clamp(out_quant))),
    )
    operands = [x, builder.param("w", values, weight_quant, dtype=weights), builder.param("b", bias)]
    return _frozen(builder.build([builder.add(op, operands, "y", out_quant)]))


@st.composite
def dense(draw: Draw, weights: DType = DType.I8) -> Graph:
    """QMatMul without a zero point of its weights."""
    rows = draw(st.integers(1, 5))
    k = draw(st.one_of(st.integers(1, 40), st.sampled_from([16, 32, 64])))
    n = draw(st.integers(1, 13))
    builder = GraphBuilder("dense")
    x_quant, weight_scales, weight_quant = _scales(draw, n, axis=1)
    x = builder.input("x", activation((rows, k), x_quant))
    values = np.ascontiguousarray(weight_values(draw(seeds), (n, k), weights).T)
    bias = np.random.default_rng(draw(seeds)).integers(-2000, 2001, n).astype(np.int32)
    out_quant = _out_quant(draw, x_quant, weight_scales, k, weights)
    mult = real_multipliers(x_quant, weight_quant, out_quant)
    op = QMatMul(x_quant.zero_point, 0, out_quant.zero_point, mult, draw(rules), draw(clamp(out_quant)))
    operands = [x, builder.param("w", values, weight_quant, dtype=weights), builder.param("b", bias)]
    return _frozen(builder.build([builder.add(op, operands, "y", out_quant)]))


@st.composite
def shifted_left(draw: Draw, kind: str, relu: bool) -> Graph:
    """Ternary weights of scales so large that most channels shift by nothing or to the left. relu: the lowest code is
    the zero point."""
    graph = draw(KINDS[kind](DType.I2))
    node = graph.output_nodes[0]
    assert isinstance(node.op, QConv2d | QMatMul) and isinstance(node.op.frozen, FrozenScale)
    left = draw(st.sampled_from([0, 0, 0, 1, 2]))
    shifts = tuple(min(shift, 0) if i % 3 == 2 else left for i, shift in enumerate(node.op.frozen.shifts))
    op = replace(node.op, frozen=replace(node.op.frozen, shifts=shifts))
    op = replace(op, out_zp=-128, clamp=None) if relu else op
    return replace(graph, nodes=tuple(replace(n, op=op) if n.id == node.id else n for n in graph.nodes))


@st.composite
def add(draw: Draw) -> Graph:
    """Binary ADD or SUB of two tensors of a shape, one of them a constant at times; scales that are equal, too."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    builder = GraphBuilder("add")
    a_quant, b_quant = draw(params(1e-2)), draw(params(1e-2))
    if draw(st.sampled_from([False, False, True])):
        b_quant = QuantParams.per_tensor(a_quant.scale, b_quant.zero_point)
    operands = [builder.input("a", activation(shape, a_quant)), builder.input("b", activation(shape, b_quant))]
    if draw(st.sampled_from([False, False, True])):
        values = np.random.default_rng(draw(seeds)).integers(-128, 128, shape).astype(np.int8)
        operands[1] = builder.param("c", values, b_quant)
    ratio = draw(st.sampled_from([0.1, 1.0, 1.0, 3.0]))
    scale = float(np.float32(2 * max(a_quant.scale, b_quant.scale) * ratio))
    out_quant = QuantParams.per_tensor(scale, draw(zero_points))
    op = Binary(draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB])), draw(rules), draw(clamp(out_quant)))
    return _frozen(builder.build([builder.add(op, operands, "y", out_quant)]))


@st.composite
def joined(draw: Draw) -> Graph:
    """Dense or 1x1 QConv2d whose accumulators come close to 2^23, where kernels that join two channels' weights
    (rlx_gemm_dsp.h) end: 516 weights of +-127 and inputs of -128 give 2^23 - 512, and the bias what is left; or the
    other way round."""
    count, taps = draw(st.integers(1, 6)), 516
    signs = np.array(draw(st.lists(st.sampled_from([-127, 127]), min_size=count, max_size=count)))
    values = np.repeat(signs, taps).reshape(count, taps).astype(np.int8)
    values[:, draw(st.integers(0, taps - 1))] //= draw(st.sampled_from([1, 2]))
    bias = (-np.sign(signs) * draw(st.sampled_from([511, 512, 513, 0]))).astype(np.int32)
    if draw(st.sampled_from([False, False, True])):  # the bias alone comes close to it, and the weights give the rest
        values = np.sign(values)
        bias = np.full(count, draw(st.sampled_from([-1, 1])) * (2**23 - 1 - 128 * taps), np.int32)
    builder = GraphBuilder("joined")
    x_quant, weight_quant = QuantParams.per_tensor(0.5, 0), QuantParams.per_tensor(0.25, 0)
    out_quant = QuantParams.per_tensor(draw(st.sampled_from([32768.0, 8192.0, 8200.0])), draw(zero_points))
    mult = real_multipliers(x_quant, weight_quant, out_quant)
    as_conv = draw(st.booleans())
    shape = (1, draw(st.integers(1, 2)), 3, taps) if as_conv else (draw(st.integers(1, 2)), taps)
    x = builder.input("x", activation(shape, x_quant))
    weights = values.reshape(count, 1, 1, taps) if as_conv else np.ascontiguousarray(values.T)
    operands = [x, builder.param("w", weights, weight_quant), builder.param("b", bias)]
    zero_point = out_quant.zero_point
    op: QConv2d | QMatMul = QMatMul(0, 0, zero_point, mult, draw(rules), None)
    if as_conv:
        op = QConv2d((1, 1), (1, 1), (0,) * 4, (1, 1), 1, 0, 0, zero_point, mult, Layout.NHWC, draw(rules), None)
    return _frozen(builder.build([builder.add(op, operands, "y", out_quant)]))


def extreme_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """-128 nearly everywhere."""
    (x,) = graph.inputs
    values = np.full(x.type.shape, -128, np.int8)
    values.flat[seed % values.size] = -128 + seed % 3
    return {x.name: values}


def _frozen(graph: Graph) -> Graph:
    """Scales that no rule can express are drawn anew."""
    try:
        return freeze(graph)
    except UnsupportedError:
        assume(False)
        raise


def _scales(draw: Draw, count: int, axis: int) -> tuple[QuantParams, list[float], QuantParams]:
    x_quant = draw(params())
    per_channel = draw(st.booleans())
    found = draw(st.lists(scales(1e-3, 0.5), min_size=count, max_size=count))
    found = found if per_channel else found[:1]
    return x_quant, found, QuantParams(tuple(found), (0,) * len(found), axis if per_channel else None)


def _out_quant(draw: Draw, x_quant: QuantParams, weight_scales: list[float], taps: int, weights: DType) -> QuantParams:
    """Small weights: at times for outputs that use the range, so that multipliers come close to 1."""
    ratio = draw(ratios) * draw(st.sampled_from([1.0, weights.limits[1] / 127]))
    return QuantParams.per_tensor(output_scale(x_quant, weight_scales, taps, ratio), draw(zero_points))


KINDS: dict[str, Callable[[DType], st.SearchStrategy[Graph]]] = {
    "conv": conv,
    "depthwise": depthwise,
    "dense": dense,
    "add": lambda _: add(),
    "pool": lambda _: pool_graphs(),
}
"""By the first word of a variant's name: conv_dsp, depthwise_mve ..."""

WIDTHS = {"w4": DType.I4, "w2": DType.I2}
"""By the last word of the name of a variant for weights of fewer bits: conv_dsp_w4 ..."""


def graphs_for(variant: str) -> st.SearchStrategy[Graph]:
    """Graphs that a variant of that name is made for."""
    words = variant.split("_")
    return KINDS[words[0]](WIDTHS.get(words[-1], DType.I8))
