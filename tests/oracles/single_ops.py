"""Random models of one int8 operator each, as hypothesis strategies: every operator that is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tflite
from hypothesis import strategies as st

from oracles.tflite_writer import Array, OpSpec, TensorSpec, write_model

Draw = Callable[[st.SearchStrategy[Any]], Any]

ACTIVATIONS = [getattr(tflite.ActivationFunctionType, name) for name in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")]
PADDINGS = [tflite.Padding.SAME, tflite.Padding.VALID]


@dataclass(frozen=True)
class Case:
    """A `.tflite` file and one set of inputs, in the file's order."""

    model: bytes
    inputs: tuple[Array, ...]
    tensors: tuple[TensorSpec, ...] = field(default=(), repr=False)
    operator: OpSpec | None = field(default=None, repr=False)
    input_tensors: tuple[int, ...] = field(default=(), repr=False)


class Build:
    """Collects the tensors of one model around one operator."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.tensors: list[TensorSpec] = []
        self.inputs: list[int] = []
        self.arrays: list[Array] = []

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def scale(self, low: float = 1e-3, high: float = 1.0) -> float:
        """A float32 scale, evenly spread over orders of magnitude."""
        return float(np.float32(np.exp(self.draw(st.floats(np.log(low), np.log(high))))))

    def zero_point(self) -> int:
        return int(self.draw(st.sampled_from([-128, -1, 0, 5, 127]) | st.integers(-128, 127)))

    def activation(self) -> int:
        return int(self.draw(st.sampled_from(ACTIVATIONS)))

    def padding(self) -> int:
        return int(self.draw(st.sampled_from(PADDINGS)))

    def add(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def int8(self, shape: tuple[int, ...]) -> Array:
        """Random values with many at both ends."""
        values = self.rng.integers(-128, 128, shape)
        ends = self.rng.choice([-128, -127, 127], shape)
        return np.where(self.rng.random(shape) < 0.2, ends, values).astype(np.int8)

    def input(self, shape: tuple[int, ...], scale: float, zero: int) -> int:
        index = self.add(TensorSpec(f"in{len(self.inputs)}", shape, "INT8", (scale,), (zero,)))
        self.inputs.append(index)
        self.arrays.append(self.int8(shape))
        return index

    def add_input(self, values: Array, scale: float, zero: int) -> int:
        """An input with these values."""
        index = self.input(values.shape, scale, zero)
        self.arrays[-1] = values
        return index

    def constant(self, name: str, values: Array, type: str, **quant: Any) -> int:
        return self.add(TensorSpec(name, values.shape, type, data=values, **quant))

    def integers(self, name: str, values: Any) -> int:
        return self.constant(name, np.array(values, np.int32), "INT32")

    def output(self, shape: Sequence[int], scale: float, zero: int) -> int:
        return self.add(TensorSpec("out", tuple(shape), "INT8", (scale,), (zero,)))

    def case(self, op: OpSpec) -> Case:
        data = write_model(self.tensors, [op], self.inputs, op.outputs)
        return Case(data, tuple(self.arrays), tuple(self.tensors), op, tuple(self.inputs))

    def weights(self, shape: tuple[int, ...], axis: int, zero: int = 0) -> tuple[int, list[float]]:
        """INT8 weights with one scale (and this zero point), or one per index of `axis`; their scales."""
        count = shape[axis] if self.draw(st.booleans()) else 1
        zero = zero if count == 1 else 0
        base = self.scale(1e-3, 1e-1)
        scales = [float(np.float32(base * f)) for f in self.rng.uniform(0.2, 1.0, count)]
        values = np.maximum(self.int8(shape), -127).astype(np.int8)
        index = self.constant(
            "weights", values, "INT8", scales=tuple(scales), zero_points=(zero,) * count, axis=axis if count > 1 else 0
        )
        return index, scales

    def bias(self, channels: int, x_scale: float, w_scales: list[float]) -> list[int]:
        """The bias operand, or none."""
        if not self.draw(st.booleans()):
            return []
        values = self.rng.integers(-(2**14), 2**14, channels).astype(np.int32)
        scales = tuple(float(np.float32(x_scale) * np.float32(s)) for s in w_scales)
        return [self.constant("bias", values, "INT32", scales=scales, zero_points=(0,) * len(scales))]

    def accumulator_output(self, shape: Sequence[int], x_scale: float, w_scales: list[float], terms: int) -> int:
        """An output whose scale makes sums of `terms` products fill int8, more or less."""
        spread = x_scale * max(w_scales) * 60.0 * np.sqrt(terms)
        return self.output(shape, float(np.float32(spread * self.scale(0.05, 4.0))), self.zero_point())


def extent(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Rows or columns of an output, by TFLite's rule."""
    if padding == tflite.Padding.SAME:
        return -(-size // stride)
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def _window(build: Build) -> tuple[dict[str, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Strides, dilations and padding as option fields; the kernel, the image and the output in (rows, columns)."""
    kernel = (build.integer(1, 4), build.integer(1, 4))
    stride = (build.integer(1, 3), build.integer(1, 3))
    dilation = (build.integer(1, 3), build.integer(1, 3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = build.padding()
    smallest = reach if padding == tflite.Padding.VALID else [1, 1]
    size = (build.integer(smallest[0], smallest[0] + 6), build.integer(smallest[1], smallest[1] + 6))
    out = tuple(extent(size[i], kernel[i], stride[i], dilation[i], padding) for i in (0, 1))
    fields = {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
    }
    return fields, kernel, size, (out[0], out[1])


@st.composite
def conv_2d(draw: Draw) -> Case:
    b = Build(draw)
    fields, kernel, size, out = _window(b)
    groups, per_group, c_out = b.integer(1, 3), b.integer(1, 5), b.integer(1, 3)
    batch, x_scale = b.integer(1, 3), b.scale()
    x = b.input((batch, *size, groups * per_group), x_scale, b.zero_point())
    w, scales = b.weights((groups * c_out, *kernel, per_group), axis=0)
    bias = b.bias(groups * c_out, x_scale, scales)
    y = b.accumulator_output((batch, *out, groups * c_out), x_scale, scales, kernel[0] * kernel[1] * per_group)
    fields["FusedActivationFunction"] = b.activation()
    return b.case(OpSpec("CONV_2D", [x, w, *bias], [y], "Conv2DOptions", fields))


@st.composite
def depthwise_conv_2d(draw: Draw) -> Case:
    b = Build(draw)
    fields, kernel, size, out = _window(b)
    channels, multiplier = b.integer(1, 5), b.integer(1, 3)
    batch, x_scale = b.integer(1, 3), b.scale()
    x = b.input((batch, *size, channels), x_scale, b.zero_point())
    w, scales = b.weights((1, *kernel, channels * multiplier), axis=3)
    bias = b.bias(channels * multiplier, x_scale, scales)
    y = b.accumulator_output((batch, *out, channels * multiplier), x_scale, scales, kernel[0] * kernel[1])
    fields |= {"DepthMultiplier": multiplier, "FusedActivationFunction": b.activation()}
    return b.case(OpSpec("DEPTHWISE_CONV_2D", [x, w, *bias], [y], "DepthwiseConv2DOptions", fields))


@st.composite
def fully_connected(draw: Draw) -> Case:
    b = Build(draw)
    k, n, x_scale = draw(st.integers(1, 40) | st.just(1000)), b.integer(1, 9), b.scale()
    keep = b.draw(st.booleans())
    lead = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    x = b.input((*lead, k), x_scale, b.zero_point())
    w, scales = b.weights((n, k), axis=0, zero=draw(st.sampled_from([0, 0, 0, -3, 127])))
    bias = b.bias(n, x_scale, scales) or draw(st.sampled_from([[], [-1]]))
    shape = (*lead, n) if keep else (int(np.prod(lead)), n)
    y = b.accumulator_output(shape, x_scale, scales, k)
    fields = {"FusedActivationFunction": b.activation(), "KeepNumDims": int(keep)}
    return b.case(OpSpec("FULLY_CONNECTED", [x, w, *bias], [y], "FullyConnectedOptions", fields))


def _broadcast_pair(build: Build) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, and the shape they give."""
    full = [build.integer(1, 4) for _ in range(build.integer(1, 4))]
    shapes = [[1 if build.integer(0, 3) == 0 else d for d in full] for _ in range(2)]
    if build.integer(0, 3) == 0:
        shapes[1] = shapes[1][build.integer(0, len(full) - 1) :]
    if build.integer(0, 1):
        shapes.reverse()
    return tuple(shapes[0]), tuple(shapes[1]), np.broadcast_shapes(*map(tuple, shapes))


def _binary(kind: str, options: str) -> Callable[[], st.SearchStrategy[Case]]:
    @st.composite
    def build(draw: Draw) -> Case:
        b = Build(draw)
        first, second, out = _broadcast_pair(b)
        scales = b.scale(), b.scale()
        operands = [b.input(first, scales[0], b.zero_point())]
        if b.integer(0, 3):
            operands.append(b.input(second, scales[1], b.zero_point()))
        else:
            operands.append(b.constant("k", b.int8(second), "INT8", scales=(scales[1],), zero_points=(b.zero_point(),)))
        natural = max(scales) if kind != "MUL" else scales[0] * scales[1] * 100
        y = b.output(out, float(np.float32(natural * b.scale(0.2, 4.0))), b.zero_point())
        return b.case(OpSpec(kind, operands, [y], options, {"FusedActivationFunction": b.activation()}))

    return build


def _pool(kind: str) -> Callable[[], st.SearchStrategy[Case]]:
    @st.composite
    def build(draw: Draw) -> Case:
        b = Build(draw)
        fields, kernel, size, _ = _window(b)
        stride, padding = (fields["StrideH"], fields["StrideW"]), fields["Padding"]
        out = [extent(size[i], kernel[i], stride[i], 1, padding) for i in (0, 1)]
        batch, channels, scale, zero = b.integer(1, 3), b.integer(1, 5), b.scale(1e-3, 0.2), b.zero_point()
        x = b.input((batch, *size, channels), scale, zero)
        y = b.output((batch, *out, channels), scale, zero)
        options = {"FilterHeight": kernel[0], "FilterWidth": kernel[1], "Padding": padding}
        options |= {"StrideH": stride[0], "StrideW": stride[1], "FusedActivationFunction": b.activation()}
        return b.case(OpSpec(kind, [x], [y], "Pool2DOptions", options))

    return build


@st.composite
def mean(draw: Draw) -> Case:
    b = Build(draw)
    shape = (*(b.integer(1, 6) for _ in range(b.integer(0, 3))), draw(st.integers(1, 6) | st.integers(40, 400)))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    keep = bool(b.integer(0, 1)) or len(axes) == len(shape)
    out = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
    signed = [axis - len(shape) if b.integer(0, 1) else axis for axis in axes]
    scale = b.scale()
    out_scale = scale if b.integer(0, 2) == 0 else float(np.float32(scale * b.scale(0.2, 4.0)))
    operands = [b.input(shape, scale, b.zero_point()), b.integers("axes", signed)]
    y = b.output(out, out_scale, b.zero_point())
    return b.case(OpSpec("MEAN", operands, [y], "ReducerOptions", {"KeepDims": int(keep)}))


@st.composite
def softmax(draw: Draw) -> Case:
    b = Build(draw)
    # TFLite's kernel aborts when a row's sum of exponentials reaches 512 times the largest.
    shape = (*(b.integer(1, 3) for _ in range(b.integer(1, 3))), draw(st.integers(1, 20) | st.integers(100, 511)))
    x = b.input(shape, b.scale(1e-3, 2.0), b.zero_point())
    y = b.output(shape, 1 / 256, -128)
    beta = draw(st.sampled_from([1.0, 0.5, 2.0]))
    return b.case(OpSpec("SOFTMAX", [x], [y], "SoftmaxOptions", {"Beta": beta}))


@st.composite
def reshape(draw: Draw) -> Case:
    b = Build(draw)
    dims = [b.integer(1, 4) for _ in range(4)]
    new = draw(st.sampled_from([(dims[0] * dims[1], dims[2] * dims[3]), (int(np.prod(dims)),), (*dims[::-1], 1)]))
    scale, zero = b.scale(), b.zero_point()
    operands = [b.input(tuple(dims), scale, zero), b.integers("shape", new)]
    return b.case(OpSpec("RESHAPE", operands, [b.output(new, scale, zero)]))


@st.composite
def pad(draw: Draw) -> Case:
    b = Build(draw)
    shape = tuple(b.integer(1, 4) for _ in range(b.integer(1, 4)))
    pads = [[b.integer(0, 2), b.integer(0, 2)] for _ in shape]
    scale, zero = b.scale(), b.zero_point()
    operands = [b.input(shape, scale, zero), b.integers("pads", pads)]
    out = [before + size + after for size, (before, after) in zip(shape, pads, strict=True)]
    if b.integer(0, 1):
        operands.append(b.constant("value", b.int8((1,)), "INT8", scales=(scale,), zero_points=(zero,)))
    y = b.output(out, scale, zero)
    return b.case(OpSpec("PAD" if len(operands) == 2 else "PADV2", operands, [y]))


@st.composite
def concatenation(draw: Draw) -> Case:
    b = Build(draw)
    shape = [b.integer(1, 4) for _ in range(b.integer(1, 4))]
    axis = b.integer(0, len(shape) - 1)
    scale, zero = b.scale(), b.zero_point()
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    operands = [b.input((*shape[:axis], size, *shape[axis + 1 :]), scale, zero) for size in sizes]
    shape[axis] = sum(sizes)
    fields = {"Axis": axis - len(shape) if b.integer(0, 1) else axis}
    return b.case(OpSpec("CONCATENATION", operands, [b.output(shape, scale, zero)], "ConcatenationOptions", fields))


def _limit(kind: str) -> Callable[[], st.SearchStrategy[Case]]:
    """A bound: one number of the operand's parameters."""

    @st.composite
    def build(draw: Draw) -> Case:
        b = Build(draw)
        shape, scale, zero = tuple(b.integer(1, 4) for _ in range(b.integer(1, 5))), b.scale(), b.zero_point()
        x = b.input(shape, scale, zero)
        limit = b.constant("limit", b.int8((1,)), "INT8", scales=(scale,), zero_points=(zero,))
        return b.case(OpSpec(kind, [x, limit], [b.output(shape, scale, zero)], "MaximumMinimumOptions"))

    return build


@st.composite
def requantize(draw: Draw) -> Case:
    b = Build(draw)
    shape, scale = (b.integer(1, 40),), b.scale()
    x = b.input(shape, scale, b.zero_point())
    y = b.output(shape, float(np.float32(scale * b.scale(0.05, 20.0))), b.zero_point())
    return b.case(OpSpec("QUANTIZE", [x], [y]))


@st.composite
def quantize(draw: Draw) -> Case:
    b = Build(draw)
    shape, scale = (b.integer(1, 40),), b.scale()
    halves = b.rng.integers(-300, 300, shape) / 2 * scale  # many ties
    values = np.where(b.rng.random(shape) < 0.5, halves, b.rng.normal(0, 80 * scale, shape))
    x = b.add(TensorSpec("in0", shape, "FLOAT32"))
    b.inputs.append(x)
    b.arrays.append(values.astype(np.float32))
    return b.case(OpSpec("QUANTIZE", [x], [b.output(shape, scale, b.zero_point())]))


@st.composite
def dequantize(draw: Draw) -> Case:
    b = Build(draw)
    shape = (b.integer(1, 40),)
    x = b.input(shape, b.scale(), b.zero_point())
    return b.case(OpSpec("DEQUANTIZE", [x], [b.add(TensorSpec("out", shape, "FLOAT32"))]))


SINGLE_OPS: Mapping[str, st.SearchStrategy[Case]] = {
    "CONV_2D": conv_2d(),
    "DEPTHWISE_CONV_2D": depthwise_conv_2d(),
    "FULLY_CONNECTED": fully_connected(),
    "ADD": _binary("ADD", "AddOptions")(),
    "SUB": _binary("SUB", "SubOptions")(),
    "MUL": _binary("MUL", "MulOptions")(),
    "AVERAGE_POOL_2D": _pool("AVERAGE_POOL_2D")(),
    "MAX_POOL_2D": _pool("MAX_POOL_2D")(),
    "MAXIMUM": _limit("MAXIMUM")(),
    "MINIMUM": _limit("MINIMUM")(),
    "MEAN": mean(),
    "SOFTMAX": softmax(),
    "RESHAPE": reshape(),
    "PAD": pad(),
    "CONCATENATION": concatenation(),
    "QUANTIZE f32": quantize(),
    "QUANTIZE i8": requantize(),
    "DEQUANTIZE": dequantize(),
}
"""One strategy an operator (and dtype); each draws a Case."""
