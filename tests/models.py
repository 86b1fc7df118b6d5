"""Small int8 models that the tests make themselves, with random weights from a seed."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Concat,
    Dequantize,
    Layout,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
)

PROBABILITIES = QuantParams.per_tensor(1 / 256, -128)


class ModelMaker:
    """Adds layers with random weights; scales keep the outputs within the range mostly."""

    def __init__(self, name: str, seed: int) -> None:
        self.builder = GraphBuilder(name)
        self.rng = np.random.default_rng(seed)

    def input(self, shape: tuple[int, ...], name: str = "x", dtype: DType = DType.I8) -> int:
        quant = self.quant() if dtype is DType.I8 else None
        return self.builder.input(name, TensorType(shape, dtype, quant))

    def quant(self, scale: float = 0.05) -> QuantParams:
        factor = self.rng.uniform(0.5, 2.0)
        return QuantParams.per_tensor(float(np.float32(scale * factor)), int(self.rng.integers(-128, 128)))

    def quant_of(self, node: int) -> QuantParams:
        quant = self.builder[node].type.quant
        assert quant is not None
        return quant

    def conv(
        self,
        x: int,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        name: str = "conv",
        out: QuantParams | None = None,
        top: int = 0,
    ) -> int:
        """A convolution with padding kernel // 2 and `top` rows more, per-channel scales, and a fused ReLU at times."""
        in_channels = self.builder[x].type.shape[3]
        taps = kernel * kernel * in_channels // groups
        weights = self._weights((channels, kernel, kernel, in_channels // groups))
        w_quant = self._weight_scales(channels)
        x_quant = self.quant_of(x)
        out = out or self._output_quant(x_quant, w_quant, taps)
        clamp = (out.zero_point, 127) if self.rng.random() < 0.5 and out.zero_point < 127 else None
        half = kernel // 2
        op = QConv2d(
            *((kernel, kernel), (stride, stride), (half + top, half, half, half), (1, 1), groups),
            *(x_quant.zero_point, 0, out.zero_point, real_multipliers(x_quant, w_quant, out)),
            *(Layout.NHWC, Requant.TFLM, clamp),
        )
        operands = [x, self.builder.param(f"{name}/w", weights, w_quant), self._bias(f"{name}/b", channels)]
        return self.builder.add(op, operands, name, out)

    def dense(self, x: int, columns: int, name: str = "dense") -> int:
        taps = self.builder[x].type.shape[1]
        w_quant = QuantParams((float(np.float32(0.01)),), (0,))
        x_quant = self.quant_of(x)
        out = self._output_quant(x_quant, w_quant, taps)
        mult = real_multipliers(x_quant, w_quant, out)
        op = QMatMul(x_quant.zero_point, 0, out.zero_point, mult, Requant.TFLM)
        weights = np.ascontiguousarray(self._weights((columns, taps)).T)
        operands = [x, self.builder.param(f"{name}/w", weights, w_quant), self._bias(f"{name}/b", columns)]
        return self.builder.add(op, operands, name, out)

    def add(self, a: int, b: int, name: str = "add", fn: BinaryOp = BinaryOp.ADD) -> int:
        scale = 2 * max(self.quant_of(a).scale, self.quant_of(b).scale)
        out = QuantParams.per_tensor(float(np.float32(scale)), 3)
        return self.builder.add(Binary(fn, Requant.TFLM), [a, b], name, out)

    def pool(self, x: int, size: int, kind: ReduceOp = ReduceOp.MEAN, name: str = "pool") -> int:
        op = Pool(kind, (size, size), (size, size), (0, 0), Layout.NHWC, requant=Requant.TFLM)
        return self.builder.add(op, [x], name, self.quant_of(x))

    def mean(self, x: int, name: str = "mean") -> int:
        op = Reduce(ReduceOp.MEAN, (1, 2), False, Requant.TFLM)
        return self.builder.add(op, [x], name, self.quant(self.quant_of(x).scale * 0.7))

    def flatten(self, x: int, name: str = "flatten") -> int:
        return self.builder.add(Reshape((self.builder[x].type.shape[0], -1)), [x], name, self.quant_of(x))

    def softmax(self, x: int, name: str = "probabilities") -> int:
        return self.builder.add(Softmax(-1, requant=Requant.TFLM), [x], name, PROBABILITIES)

    def _weights(self, shape: tuple[int, ...]) -> Array:
        return self.rng.integers(-127, 128, shape).astype(np.int8)

    def _weight_scales(self, channels: int) -> QuantParams:
        scales = self.rng.uniform(0.002, 0.02, channels).astype(np.float32)
        return QuantParams(tuple(map(float, scales)), (0,) * channels, 0)

    def _output_quant(self, x: QuantParams, w: QuantParams, taps: int) -> QuantParams:
        scale = x.scale * max(w.scales) * 50 * np.sqrt(taps)
        return QuantParams.per_tensor(float(np.float32(scale)), int(self.rng.integers(-128, 20)))

    def _bias(self, name: str, channels: int) -> int:
        return self.builder.param(name, self.rng.integers(-3000, 3001, channels).astype(np.int32))


def tiny_model(seed: int = 1) -> Graph:
    """The golden model: convolution, depthwise, residual add, pooling, dense, softmax; 6x6x2 in, 3 classes out."""
    maker = ModelMaker("tiny", seed)
    x = maker.input((1, 6, 6, 2))
    a = maker.conv(x, 4, name="conv")
    b = maker.conv(a, 4, groups=4, name="depthwise")
    c = maker.add(a, b, name="residual")
    d = maker.pool(c, 3, name="pool")
    e = maker.dense(maker.flatten(d), 3)
    return maker.builder.build([maker.softmax(e)])


def random_model(seed: int) -> Graph:
    """A branchy model of random width: convolutions, adds, concat, pad, pools, two outputs, sometimes two inputs."""
    maker = ModelMaker(f"random{seed}", seed)
    rng = maker.rng
    batch, size = int(rng.integers(1, 3)), int(rng.integers(4, 10))
    x = maker.input((batch, size, size, int(rng.integers(1, 5))))
    trunk = maker.conv(x, int(rng.integers(1, 9)), name="stem")
    for index in range(int(rng.integers(1, 4))):
        width = maker.builder[trunk].type.shape[3]
        left = maker.conv(trunk, width, groups=width if rng.random() < 0.5 else 1, name=f"left{index}")
        if rng.random() < 0.5:
            trunk = maker.add(trunk, left, f"add{index}", rng.choice([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]))
        else:
            right = maker.conv(trunk, int(rng.integers(1, 5)), 1, name=f"right{index}", out=maker.quant_of(left))
            trunk = maker.builder.add(Concat(3), [left, right], f"join{index}", maker.quant_of(left))
    if rng.random() < 0.5:
        pad = Pad(((0, 0), (1, 0), (0, 2), (0, 0)))
        trunk = maker.builder.add(pad, [trunk], "pad", maker.quant_of(trunk))
    pooled = maker.pool(trunk, 2, ReduceOp.MAX if rng.random() < 0.5 else ReduceOp.MEAN)
    side = maker.mean(trunk)
    head = maker.dense(maker.flatten(pooled), int(rng.integers(2, 6)))
    return maker.builder.build([maker.softmax(head), side])


def float_edges_model(seed: int = 3) -> Graph:
    """float32 in and out around an int8 core: Quantize, dense, Dequantize."""
    maker = ModelMaker("float_edges", seed)
    x = maker.input((1, 12), dtype=DType.F32)
    quant = QuantParams.per_tensor(float(np.float32(0.013)), -7)
    q = maker.builder.add(Quantize.to(quant, Requant.TFLM), [x], "quantized", quant)
    y = maker.dense(q, 5)
    return maker.builder.build([maker.builder.add(Dequantize.of(maker.quant_of(y)), [y], "real")])


def samples(graph: Graph, count: int, seed: int = 0) -> dict[str, Array]:
    """Random samples for every input: [count, *shape]."""
    rng = np.random.default_rng(seed)
    made = {}
    for node in graph.inputs:
        shape = (count, *node.type.shape)
        integers = rng.integers(-128, 128, shape)
        made[node.name] = (
            integers.astype(np.int8) if node.type.dtype is DType.I8 else (integers / 50).astype(np.float32)
        )
    return made
