"""Random int8 graphs in which much is for nothing: dead and constant channels, chains of tables, clamps, paddings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Dequantize,
    Layout,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
    Transpose,
)

PROBABILITIES = QuantParams.per_tensor(1 / 256, -128)


class LeanMaker:
    """Appends layers to an image; `last` is the newest tensor. Every choice comes from the seed."""

    def __init__(self, seed: int, rule: Requant = Requant.TFLM) -> None:
        self.rng = np.random.default_rng(seed)
        self.rule = rule
        self.builder = GraphBuilder(f"lean{seed}")
        h, w, c = (int(self.rng.integers(low, 7)) for low in (3, 3, 1))
        self.last = self.builder.input("x", TensorType((1, h, w, c), DType.I8, self.quant()))
        self.images = [self.last]

    # ---- Building blocks ---------------------------------------------------------------------------------------------

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def number(self, low: int, high: int) -> int:
        """low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def quant(self, scale: float = 0.05) -> QuantParams:
        zero = -128 if self.chance(0.3) else self.number(-128, 127)
        return QuantParams.per_tensor(float(np.float32(scale * self.rng.uniform(0.5, 2.0))), zero)

    def type_of(self, node: int) -> TensorType:
        return self.builder[node].type

    def quant_of(self, node: int) -> QuantParams:
        quant = self.type_of(node).quant
        assert quant is not None
        return quant

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type_of(self.last).shape

    def op(self, op: Op, *operands: int, name: str, quant: QuantParams | None) -> int:
        self.last = self.builder.add(op, operands, name, quant, (name,))
        return self.last

    def clamp(self) -> tuple[int, int] | None:
        return None if self.chance(0.6) else (self.number(-128, 0), self.number(0, 127))

    def weights(self, shape: tuple[int, ...], zero: int, in_axis: int) -> Array:
        """[C_out, ...], with output channels, input channels and taps that have no weights."""
        values = self.rng.integers(-127, 128, shape)
        values[self.rng.random(shape[0]) < 0.25] = zero
        dead = self.rng.random(shape[in_axis]) < 0.25
        np.moveaxis(values, in_axis, 0)[dead] = zero
        if self.chance(0.3):
            values[self.rng.random(shape) < 0.7] = zero
        if len(shape) == 4 and self.chance(0.3):
            values[:, self.number(0, shape[1] - 1) :, :] = zero
        return values.astype(np.int8)

    def bias(self, channels: int, reach: int) -> Array:
        """At times so far from 0 that the channel saturates for every input."""
        values = self.rng.integers(-3000, 3001, channels)
        far = self.rng.random(channels) < 0.2
        values[far] += self.rng.choice([-1, 1], int(far.sum())) * reach
        return values.astype(np.int32)

    def output_quant(self, x: QuantParams, w: QuantParams, taps: int) -> QuantParams:
        return self.quant(float(x.scale * max(w.scales) * 30 * np.sqrt(taps)))

    def weight_quant(self, channels: int, zero: int, axis: int) -> QuantParams:
        if self.chance(0.3):
            return QuantParams.per_tensor(0.01, zero)
        scales = self.rng.uniform(0.002, 0.02, channels).astype(np.float32)
        return QuantParams(tuple(map(float, scales)), (zero,) * channels, axis)

    # ---- Layers ------------------------------------------------------------------------------------------------------

    def conv(self, groups: int = 1, channels: int | None = None) -> None:
        _, h, w, c = self.shape
        kernel, step = (self.number(1, min(3, h)), self.number(1, min(3, w))), (self.number(1, 2), self.number(1, 2))
        dilation = (1, 1) if self.chance(0.8) else (2, 2)
        padding = tuple(self.number(0, k) for k in (*kernel, *kernel)) if self.chance(0.6) else (0, 0, 0, 0)
        room = (h + padding[0] + padding[2], w + padding[1] + padding[3])
        if any((k - 1) * d + 1 > size for k, d, size in zip(kernel, dilation, room, strict=True)):
            return
        channels = channels or groups * self.number(1, 6 if groups == 1 else 2)
        zero = 0 if self.chance(0.8) else self.number(-5, 5)
        x, w_quant = self.quant_of(self.last), self.weight_quant(channels, zero, 0)
        weights = self.weights((channels, *kernel, c // groups), zero, 3)
        out = self.output_quant(x, w_quant, weights[0].size)
        mult = real_multipliers(x, w_quant, out)
        op = QConv2d(
            *(kernel, step, padding, dilation, groups, x.zero_point, zero, out.zero_point),
            *(mult, Layout.NHWC, self.rule, self.clamp()),
        )
        w_node = self.builder.param("w", weights, w_quant)
        bias = self.builder.param("b", self.bias(channels, 20_000 * weights[0].size))
        self.op(op, self.last, w_node, bias, name="conv", quant=out)

    def depthwise(self) -> None:
        self.conv(self.shape[3], self.shape[3] * self.number(1, 2))

    def grouped(self) -> None:
        self.conv(2 if self.shape[3] % 2 == 0 else self.shape[3])

    def residual(self) -> None:
        others = [i for i in self.images if self.type_of(i).shape == self.shape]
        a, b = self.last, others[self.number(0, len(others) - 1)] if others else self.last
        self.binary(a, b)

    def binary(self, a: int, b: int) -> None:
        fn = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL][self.number(0, 2)]
        scale = 2 * max(self.quant_of(a).scale, self.quant_of(b).scale)
        self.op(Binary(fn, self.rule, self.clamp()), a, b, name="binary", quant=self.quant(scale))

    def constant(self) -> None:
        """Add, Sub or Mul with a number, or with one a channel."""
        shape = [(1,), (1, 1, 1, 1), self.shape[3:], self.shape][self.number(0, 3)]
        one = np.full(shape, self.number(-128, 127), np.int8)
        values = one if self.chance() else self.rng.integers(-128, 128, shape).astype(np.int8)
        c, x = self.builder.param("c", values, self.quant()), self.last
        self.binary(*((x, c) if self.chance() else (c, x)))

    def gate(self) -> None:
        """x times a function of x."""
        x = self.last
        self.function()
        self.binary(x, self.last)

    def squeeze(self) -> None:
        """x times its mean."""
        x = self.last
        mean = Reduce(ReduceOp.MEAN, (1, 2), True, self.rule)
        self.binary(x, self.op(mean, x, name="mean", quant=self.quant()))

    def function(self) -> None:
        fn = [ActivationFn.RELU, ActivationFn.TANH, ActivationFn.ABS, ActivationFn.SIGMOID][self.number(0, 3)]
        quant = self.quant_of(self.last) if fn is ActivationFn.RELU else self.quant(0.01)
        self.op(Activation(fn, requant=Requant.RLX), self.last, name="function", quant=quant)

    def requantize(self) -> None:
        same = self.chance(0.2)
        quant = self.quant_of(self.last) if same else self.quant(self.quant_of(self.last).scale)
        self.op(Quantize.to(quant, self.rule, self.clamp()), self.last, name="requantize", quant=quant)

    def through_float(self) -> None:
        real = self.op(Dequantize.of(self.quant_of(self.last)), self.last, name="real", quant=None)
        quant = self.quant(0.03)
        self.op(Quantize.to(quant, self.rule, self.clamp()), real, name="codes", quant=quant)

    def bounds(self) -> None:
        quant = self.quant_of(self.last)
        low = float(np.float32(self.rng.uniform(-3, 1)))
        self.op(Clamp(low, low + float(self.rng.uniform(0, 5))), self.last, name="bounds", quant=quant)

    def pad(self) -> None:
        sides = tuple((self.number(0, 2), self.number(0, 2)) for _ in range(2))
        value = 0.0 if self.chance(0.7) else float(self.rng.uniform(-6, 6))
        channels = (0, self.number(1, 2)) if self.chance(0.1) else (0, 0)
        op = Pad(((0, 0), *sides, channels), value=value)
        self.op(op, self.last, name="pad", quant=self.quant_of(self.last))

    def pool(self) -> None:
        _, h, w, _ = self.shape
        kernel = (self.number(1, min(3, h)), self.number(1, min(3, w)))
        padding = tuple(self.number(0, k - 1) for k in (*kernel, *kernel)) if self.chance() else (0, 0)
        kind = ReduceOp.MEAN if self.chance() else ReduceOp.MAX
        counted = kind is ReduceOp.MEAN and self.chance(0.3)
        step = (self.number(1, 2), self.number(1, 2))
        op = Pool(kind, kernel, step, padding, Layout.NHWC, counted, self.rule, self.clamp())
        self.op(op, self.last, name="pool", quant=self.quant_of(self.last))

    def join(self) -> None:
        first, quant = self.last, self.quant_of(self.last)
        parts = [first]
        for _ in range(self.number(1, 2)):
            self.last = first
            self.requantize() if self.chance() else self.function()
            parts.append(self.op(Quantize.to(quant, self.rule), self.last, name="alike", quant=quant))
        axis = 3 if self.chance(0.8) else 1
        self.op(Concat(axis), *parts, name="join", quant=quant)

    def turn(self) -> None:
        perm = (0, 2, 1, 3) if self.chance(0.8) else (0, 3, 2, 1)
        self.op(Transpose(perm), self.last, name="turn", quant=self.quant_of(self.last))

    def shapes(self) -> None:
        n, h, w, c = self.shape
        quant = self.quant_of(self.last)
        shape = [(n, h * w, 1, c), (n, 1, h, w * c), (h, w, c), (n, h, w, 1, c)][self.number(0, 3)]
        self.op(Reshape(shape), self.last, name="shape", quant=quant)
        if self.chance():
            self.op(Clamp(-1.0, 2.0), self.last, name="bounds", quant=quant)
        if len(shape) != 4:
            self.op(Reshape((n, h, w, c)), self.last, name="back", quant=quant)

    # ---- Ends --------------------------------------------------------------------------------------------------------

    def image(self) -> None:
        pass

    def dense(self) -> None:
        flat = self.op(Reshape((1, -1)), self.last, name="flat", quant=self.quant_of(self.last))
        for channels in (self.number(1, 6), self.number(2, 4)):
            taps = self.type_of(flat).shape[1]
            x, w_quant = self.quant_of(flat), self.weight_quant(channels, 0, 1)
            weights = np.ascontiguousarray(self.weights((channels, taps), 0, 1).T)
            out = self.output_quant(x, w_quant, taps)
            op = QMatMul(x.zero_point, 0, out.zero_point, real_multipliers(x, w_quant, out), self.rule, self.clamp())
            w = self.builder.param("w", weights, w_quant)
            bias = self.builder.param("b", self.bias(channels, 20_000 * taps))
            flat = self.op(op, flat, w, bias, name="dense", quant=out)

    def means(self) -> None:
        axes = [(1, 2), (2,), (3,), (1, 2, 3)][self.number(0, 3)]
        op = Reduce(ReduceOp.MEAN, axes, self.chance(), self.rule)
        self.op(op, self.last, name="means", quant=self.quant())

    def probabilities(self) -> None:
        self.dense()
        self.op(Softmax(-1, requant=self.rule), self.last, name="probabilities", quant=PROBABILITIES)

    def made(self) -> Graph:
        computed = [i for i in range(len(self.builder)) if self.builder[i].inputs]
        outputs = [self.last if computed else self.op(Clamp(-1.0, 1.0), self.last, name="y", quant=self.quant_of(0))]
        if computed and self.chance(0.3):
            other = computed[self.number(0, len(computed) - 1)]
            outputs += [other] if other != self.last and self.type_of(other).dtype is DType.I8 else []
        return self.builder.build(outputs)


_M = LeanMaker
LAYERS: tuple[Callable[[LeanMaker], None], ...] = (
    *(_M.conv, _M.conv, _M.conv, _M.depthwise, _M.depthwise, _M.grouped, _M.residual, _M.constant, _M.gate),
    *(_M.squeeze, _M.function, _M.requantize, _M.through_float, _M.bounds, _M.pad, _M.pad, _M.pool, _M.join),
    *(_M.turn, _M.shapes),
)
ENDS: tuple[Callable[[LeanMaker], None], ...] = (_M.image, _M.conv, _M.dense, _M.dense, _M.means, _M.probabilities)


def lean_graph(seed: int, rule: Requant = Requant.TFLM) -> Graph:
    """One to nine layers on an image of up to 6x6x6, and an end; at times with an output in between."""
    maker = LeanMaker(seed, rule)
    for _ in range(maker.number(1, 9)):
        if len(maker.shape) == 4 and maker.type_of(maker.last).elements <= 2000:
            LAYERS[maker.number(0, len(LAYERS) - 1)](maker)
            maker.images.append(maker.last)
    ENDS[maker.number(0, len(ENDS) - 1)](maker)
    return maker.made()
