"""Hypothesis strategies: int8 graphs of a single op with random shapes, parameters and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.target import TARGETS
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, Shape, TensorType, real_multipliers
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Dequantize,
    DequantMatMul,
    Expand,
    Layout,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    QuantScheme,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    SchemeKind,
    Slice,
    Softmax,
    Transpose,
)
from rlx_edge.passes.freeze import freeze
from rlx_edge.reference.fixedpoint import rules_of

Draw = Callable[[st.SearchStrategy], object]

small = st.integers(1, 9)
zero_points = st.one_of(st.sampled_from([-128, 0, 127]), st.integers(-128, 127))
seeds = st.integers(0, 2**32 - 1)
clamps = st.one_of(st.none(), st.tuples(st.integers(-128, 0), st.integers(1, 127)))


def scales(low: float = 1e-3, high: float = 2.0) -> st.SearchStrategy[float]:
    """Scales as files have them: float32 values. Powers of two make ties."""
    powers = st.integers(-9, 0).map(lambda e: 2.0**e).filter(lambda s: low <= s <= high)
    return st.one_of(powers, st.floats(low, high).map(lambda s: float(np.float32(s))))


@st.composite
def params(draw: Draw, low: float = 1e-3, high: float = 2.0) -> QuantParams:
    return QuantParams.per_tensor(draw(scales(low, high)), draw(zero_points))


def activation(shape: Shape, quant: QuantParams) -> TensorType:
    return TensorType(shape, DType.I8, quant)


weight_dtypes = st.sampled_from([DType.I8, DType.I8, DType.I4, DType.I2])


def weight_values(seed: int, shape: Shape, dtype: DType = DType.I8) -> np.ndarray:
    """Weights of all magnitudes, the lowest too; some channels tiny, so that accumulators hit ties."""
    rng = np.random.default_rng(seed)
    if dtype is not DType.I8:
        low, high = dtype.limits
        return rng.integers(rng.choice([low, -high]), high + 1, shape).astype(np.int8)
    limit = rng.integers(1, 129, size=(shape[0],) + (1,) * (len(shape) - 1))
    return rng.integers(-limit, np.minimum(limit + 1, 128), size=shape).astype(np.int8)


def output_scale(x: QuantParams, weight_scales: list[float], taps: int, ratio: float) -> float:
    """A scale for which outputs use the range, times `ratio` (below 1: saturation, and left shifts)."""
    return float(np.float32(x.scale * max(weight_scales) * 40.0 * np.sqrt(taps) * ratio))


@st.composite
def conv_graphs(draw: Draw) -> Graph:
    """QConv2d: plain, grouped or depthwise, any stride, dilation, padding, zero point, batch 1 to 3."""
    kind = draw(st.sampled_from(["plain", "grouped", "depthwise"]))
    groups = 1 if kind == "plain" else draw(st.integers(2, 5))
    in_group = 1 if kind == "depthwise" else draw(st.integers(1, 6))
    out_group = draw(st.integers(1, 2 if kind == "depthwise" else 5))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, 4)) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    h = draw(st.integers(max(1, reach[0] - padding[0] - padding[2]), 9 + reach[0]))
    w = draw(st.integers(max(1, reach[1] - padding[1] - padding[3]), 7 + reach[1]))
    builder = GraphBuilder("conv")
    x_quant = draw(params())
    x = builder.input("x", activation((draw(st.integers(1, 3)), h, w, groups * in_group), x_quant))
    c_out = groups * out_group
    per_channel = draw(st.booleans())
    weight_scales = draw(st.lists(scales(1e-3, 0.5), min_size=c_out, max_size=c_out))
    weight_scales = weight_scales if per_channel else weight_scales[:1]
    dtype = draw(weight_dtypes)
    w_zp = draw(st.sampled_from([0, 0, 0, -5, 100])) if dtype is DType.I8 else 0
    w_quant = QuantParams(tuple(weight_scales), (w_zp,) * len(weight_scales), 0 if per_channel else None)
    values = weight_values(draw(seeds), (c_out, *kernel, in_group), dtype)
    bias = np.random.default_rng(draw(seeds)).integers(-2000, 2001, c_out).astype(np.int32)
    taps = kernel[0] * kernel[1] * in_group
    out_quant = QuantParams.per_tensor(
        output_scale(x_quant, weight_scales, taps, draw(st.sampled_from([0.002, 0.25, 1.0, 8.0, 1e6]))),
        draw(zero_points),
    )
    op = QConv2d(
        *(kernel, stride, padding, dilation, groups),
        *(x_quant.zero_point, w_zp, out_quant.zero_point, real_multipliers(x_quant, w_quant, out_quant)),
        *(Layout.NHWC, Requant.TFLM, draw(clamps)),
    )
    operands = [x, builder.param("w", values, w_quant, dtype=dtype), builder.param("b", bias)]
    return builder.build([builder.add(op, operands, "y", out_quant)])


@st.composite
def dense_graphs(draw: Draw) -> Graph:
    """QMatMul with one scale or one per column."""
    rows, k, n = draw(st.integers(1, 4)), draw(st.integers(1, 40)), draw(st.integers(1, 13))
    builder = GraphBuilder("dense")
    x_quant = draw(params())
    x = builder.input("x", activation((rows, k), x_quant))
    per_channel = draw(st.booleans())
    weight_scales = draw(st.lists(scales(1e-3, 0.5), min_size=n, max_size=n))
    weight_scales = weight_scales if per_channel else weight_scales[:1]
    dtype = draw(weight_dtypes)
    w_zp = draw(st.sampled_from([0, 0, -3])) if dtype is DType.I8 else 0
    w_quant = QuantParams(tuple(weight_scales), (w_zp,) * len(weight_scales), 1 if per_channel else None)
    values = np.ascontiguousarray(weight_values(draw(seeds), (n, k), dtype).T)
    bias = np.random.default_rng(draw(seeds)).integers(-2000, 2001, n).astype(np.int32)
    out_quant = QuantParams.per_tensor(
        output_scale(x_quant, weight_scales, k, draw(st.sampled_from([0.002, 1.0, 8.0]))), draw(zero_points)
    )
    mult = real_multipliers(x_quant, w_quant, out_quant)
    rule = draw(st.sampled_from([Requant.TFLM, Requant.TFLITE_REF]))
    op = QMatMul(x_quant.zero_point, w_zp, out_quant.zero_point, mult, rule, draw(clamps))
    operands = [x, builder.param("w", values, w_quant, dtype=dtype), builder.param("b", bias)]
    return builder.build([builder.add(op, operands, "y", out_quant)])


@st.composite
def pool_graphs(draw: Draw) -> Graph:
    """Windows of a few pixels, at times of hundreds, which kernels add up in 16 bits for a while."""
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    if draw(st.sampled_from([False, False, False, True])):
        kernel = (draw(st.integers(5, 20)), draw(st.integers(5, 20)))
    padding = tuple(draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4))
    h, w = (draw(st.integers(size, max(9, size + 1))) for size in kernel)
    builder = GraphBuilder("pool")
    quant = draw(params())
    x = builder.input("x", activation((draw(st.integers(1, 3)), h, w, draw(small)), quant))
    op = Pool(
        draw(st.sampled_from([ReduceOp.MEAN, ReduceOp.MAX])),
        kernel,
        (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        padding,
        Layout.NHWC,
        draw(st.booleans()),
        draw(st.sampled_from([Requant.TFLM, Requant.TFLITE_UINT8])),
        draw(clamps),
    )
    return builder.build([builder.add(op, [x], "y", quant)])


@st.composite
def binary_graphs(draw: Draw) -> Graph:
    """Add, Sub and Mul with broadcasting, and with a constant operand at times."""
    out = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("binary")
    a_quant, b_quant = draw(params(1e-2)), draw(params(1e-2))
    a_shape = tuple(draw(st.sampled_from([size, 1])) for size in out) if draw(st.booleans()) else out
    b_shape = out if a_shape != out else tuple(draw(st.sampled_from([size, 1])) for size in out)
    b_shape = b_shape[draw(st.integers(0, len(b_shape) - 1)) :] if a_shape == out else b_shape
    a = builder.input("a", activation(a_shape, a_quant))
    if draw(st.booleans()):
        values = np.random.default_rng(draw(seeds)).integers(-128, 128, b_shape).astype(np.int8)
        b = builder.param("b", values, b_quant)
    else:
        b = builder.input("b", activation(b_shape, b_quant))
    fn = draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]))
    natural = a_quant.scale * b_quant.scale * 60 if fn is BinaryOp.MUL else 2 * max(a_quant.scale, b_quant.scale)
    ratio = draw(st.sampled_from([0.05, 1.0, 3.0]))
    out_quant = QuantParams.per_tensor(float(np.float32(natural * ratio)), draw(zero_points))
    op = Binary(fn, Requant.TFLM, draw(clamps))
    return builder.build([builder.add(op, [a, b], "y", out_quant)])


@st.composite
def mean_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    if draw(st.sampled_from([False, False, False, True])):  # an image of hundreds of pixels
        shape, axes = (1, draw(st.integers(10, 20)), draw(st.integers(10, 20)), draw(st.integers(1, 9))), [1, 2]
    builder = GraphBuilder("mean")
    quant = draw(params(1e-2))
    x = builder.input("x", activation(shape, quant))
    ratio = draw(st.sampled_from([0.01, 0.5, 1.0, 1.7]))
    out_quant = QuantParams.per_tensor(float(np.float32(quant.scale * ratio)), draw(zero_points))
    op = Reduce(ReduceOp.MEAN, tuple(axes), draw(st.booleans()), Requant.TFLM)
    return builder.build([builder.add(op, [x], "y", out_quant)])


@st.composite
def softmax_graphs(draw: Draw) -> Graph:
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.integers(1, 300)))
    builder = GraphBuilder("softmax")
    x = builder.input("x", activation(shape, draw(params(1e-3, 8.0))))
    op = Softmax(-1, draw(st.sampled_from([1.0, 0.5])), Requant.TFLM)
    return builder.build([builder.add(op, [x], "y", QuantParams.per_tensor(1 / 256, -128))])


@st.composite
def pad_graphs(draw: Draw) -> Graph:
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    pads = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(rank)]
    if rank == 4:
        pads[0] = (0, 0)
    quant = draw(params())
    builder = GraphBuilder("pad")
    x = builder.input("x", activation(shape, quant))
    return builder.build(
        [builder.add(Pad(tuple(pads), value=draw(st.sampled_from([0.0, -1.5, 0.1, 2.0]))), [x], "y", quant)]
    )


@st.composite
def concat_graphs(draw: Draw) -> Graph:
    rank = draw(st.integers(1, 5))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    quant = draw(params())
    builder = GraphBuilder("concat")
    operands = []
    for index in range(draw(st.integers(1, 3))):
        shape[axis] = draw(st.integers(1, 4))
        operands.append(builder.input(f"x{index}", activation(tuple(shape), quant)))
    return builder.build([builder.add(Concat(axis), operands, "y", quant)])


@st.composite
def transpose_graphs(draw: Draw) -> Graph:
    rank = draw(st.integers(1, 4))
    builder = GraphBuilder("transpose")
    quant = draw(params())
    x = builder.input("x", activation(tuple(draw(st.integers(1, 5)) for _ in range(rank)), quant))
    perm = tuple(draw(st.permutations(range(rank))))
    return builder.build([builder.add(Transpose(perm), [x], "y", quant)])


@st.composite
def narrow_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    start = draw(st.integers(0, shape[axis] - 1))
    return moving_graph("narrow", shape, Narrow(axis, start, draw(st.integers(1, shape[axis] - start))), draw)


@st.composite
def slice_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    start, step = draw(st.integers(0, shape[axis] - 1)), draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    most = 1 + (start if step < 0 else shape[axis] - 1 - start) // abs(step)
    return moving_graph("slice", shape, Slice(axis, start, draw(st.integers(1, most)), step), draw)


@st.composite
def expand_graphs(draw: Draw) -> Graph:
    target = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    kept = target[draw(st.integers(0, len(target) - 1)) :]
    return moving_graph("expand", tuple(draw(st.sampled_from([1, size])) for size in kept), Expand(target), draw)


@st.composite
def reverse_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=4, unique_by=lambda a: a % len(shape)))
    return moving_graph("reverse", shape, Reverse(tuple(axes)), draw)


def moving_graph(name: str, shape: Shape, op: Op, draw: Draw) -> Graph:
    builder = GraphBuilder(name)
    quant = draw(params())
    return builder.build([builder.add(op, [builder.input("x", activation(shape, quant))], "y", quant)])


@st.composite
def requantize_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("requantize")
    x = builder.input("x", activation(shape, draw(params())))
    target = draw(params())
    return builder.build([builder.add(Quantize.to(target, Requant.TFLM, draw(clamps)), [x], "y", target)])


@st.composite
def clamp_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("clamp")
    quant = draw(params())
    x = builder.input("x", activation(shape, quant))
    low, high = sorted([draw(st.floats(-6, 6)), draw(st.floats(-6, 6))])
    return builder.build([builder.add(Clamp(low, high), [x], "y", quant)])


@st.composite
def activation_graphs(draw: Draw) -> Graph:
    """Any function of one int8, under any rule that has it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    builder = GraphBuilder("activation")
    x = builder.input("x", activation(shape, draw(params(1e-3, 0.1))))
    fn = draw(st.sampled_from([fn for fn in ActivationFn if fn is not ActivationFn.TABLE]))
    fixed = {ActivationFn.SIGMOID: (1 / 256, -128), ActivationFn.TANH: (1 / 128, 0)}
    target = QuantParams.per_tensor(*fixed[fn]) if fn in fixed else draw(params(1e-2))
    rule = draw(st.sampled_from(rules_of(Activation)))
    op = Activation(fn, 0.125 if fn is ActivationFn.LEAKY_RELU else None, rule)
    return builder.build([builder.add(op, [x], "y", target)])


@st.composite
def quantize_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("quantize")
    x = builder.input("x", TensorType(shape, DType.F32))
    target = draw(params(1e-6, 1e4))
    return builder.build([builder.add(Quantize.to(target, Requant.TFLM, draw(clamps)), [x], "y", target)])


@st.composite
def dequantize_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("dequantize")
    quant = draw(params(1e-6, 1e4))
    x = builder.input("x", activation(shape, quant))
    return builder.build([builder.add(Dequantize.of(quant), [x], "y")])


@st.composite
def reshape_graphs(draw: Draw) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = GraphBuilder("reshape")
    quant = draw(params())
    x = builder.input("x", activation(shape, quant))
    return builder.build([builder.add(Reshape((1, -1)), [x], "y", quant)])


def under_onnx(graphs: Callable[[], st.SearchStrategy[Graph]]) -> Callable[[], st.SearchStrategy[Graph]]:
    """The same graphs under the rule onnx. A mean pool and a softmax get output parameters of their own at times."""

    @st.composite
    def changed(draw: Draw) -> Graph:
        graph = draw(graphs())
        nodes = list(graph.nodes)
        last = nodes[graph.outputs[0]]
        mean = isinstance(last.op, Pool) and last.op.kind is ReduceOp.MEAN
        quant = last.type.quant
        if mean and draw(st.booleans()):
            quant = draw(params())
        if isinstance(last.op, Softmax):
            quant = draw(st.sampled_from([quant, QuantParams.per_tensor(float(np.float32(1 / 255)), -128)]))
        type = replace(last.type, quant=quant)
        nodes[last.id] = replace(last, op=replace(last.op, requant=Requant.ONNX), type=type)
        return replace(graph, nodes=tuple(nodes))

    return changed


@st.composite
def dequant_matmul_graphs(draw: Draw) -> Graph:
    """DequantMatMul of every scheme that is computed, with a last block that is shorter at times."""
    rows, k, n = draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(1, 9))
    kind = draw(st.sampled_from([SchemeKind.INT8_BLOCK, SchemeKind.INT8_BLOCK_ASYM, SchemeKind.INT4_BLOCK]))
    block = draw(st.sampled_from([k, 1, 3, 8, 16]))
    dtype = DType.I4 if kind is SchemeKind.INT4_BLOCK else DType.I8
    rng = np.random.default_rng(draw(seeds))
    grid = (-(-k // block), n)
    zeros = np.zeros(grid) if kind is SchemeKind.INT8_BLOCK or draw(st.booleans()) else rng.uniform(-8, 8, grid)
    builder = GraphBuilder("dequant_matmul")
    operands = [
        builder.input("x", TensorType((rows, k), DType.F32)),
        builder.param("w", rng.integers(*dtype.limits, (k, n), endpoint=True).astype(np.int8), dtype=dtype),
        builder.param("scale", (rng.normal(size=grid) * 10.0 ** rng.integers(-6, 6, grid)).astype(np.float32)),
        builder.param("zp", zeros.astype(np.float32)),
    ]
    if draw(st.booleans()):
        operands.append(builder.param("bias", rng.normal(size=n).astype(np.float32)))
    clamp = draw(st.sampled_from([None, (0.0, float("inf")), (-1.5, 6.0)]))
    return builder.build([builder.add(DequantMatMul(QuantScheme(kind, block), clamp), operands, "y")])


OPS: dict[str, Callable[[], st.SearchStrategy[Graph]]] = {
    "conv": conv_graphs,
    "dense": dense_graphs,
    "pool": pool_graphs,
    "binary": binary_graphs,
    "mean": mean_graphs,
    "softmax": softmax_graphs,
    "pad": pad_graphs,
    "concat": concat_graphs,
    "transpose": transpose_graphs,
    "narrow": narrow_graphs,
    "slice": slice_graphs,
    "expand": expand_graphs,
    "reverse": reverse_graphs,
    "requantize": requantize_graphs,
    "clamp": clamp_graphs,
    "activation": activation_graphs,
    "quantize": quantize_graphs,
    "dequantize": dequantize_graphs,
    "dequant_matmul": dequant_matmul_graphs,
    "conv_onnx": under_onnx(conv_graphs),
    "dense_onnx": under_onnx(dense_graphs),
    "pool_onnx": under_onnx(pool_graphs),
    "binary_onnx": under_onnx(binary_graphs),
    "mean_onnx": under_onnx(mean_graphs),
    "softmax_onnx": under_onnx(softmax_graphs),
    "requantize_onnx": under_onnx(requantize_graphs),
    "quantize_onnx": under_onnx(quantize_graphs),
}
"""Every op with a kernel. A reshape has none: it is tested in whole models."""


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Random values for every input: the whole int8 range; float32 of all magnitudes, with ties and special values."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for node in graph.inputs:
        shape = node.type.shape
        if node.type.dtype is DType.I8:
            inputs[node.name] = rng.integers(-128, 128, shape).astype(np.int8)
            continue
        values = (rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8, shape)).astype(np.float32)
        ties = (rng.integers(-300, 300, shape) + 0.5).astype(np.float32)
        special = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32), shape)
        scale = graph.output_nodes[0].type.quant
        ties = ties * np.float32(scale.scale if scale else 1.0)
        inputs[node.name] = np.choose(rng.integers(0, 3, shape), [values, ties, special]).astype(np.float32)
    return inputs


def draw_legal(data: st.DataObject, op: str) -> Graph:
    """A graph of that op, frozen, whose accumulators are proven not to overflow; others are refused, and drawn anew."""
    try:
        graph = freeze(data.draw(OPS[op]()))
        legalize(graph, TARGETS["portable"])
    except UnsupportedError:
        assume(False)
    return graph
