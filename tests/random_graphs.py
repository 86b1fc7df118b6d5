"""Random float graphs for tests of passes: what exporters write, and what they could write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Concat,
    Conv,
    Expand,
    Layout,
    MatMul,
    Narrow,
    Op,
    Pad,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
    Tile,
    Transpose,
)

T = TypeVar("T")


class GraphMaker:
    """Appends one layer at a time to an image; `last` is its newest tensor."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder(f"random{seed}")
        self.layout = Layout.NHWC if seed % 3 == 0 else Layout.NCHW
        c, h, w = int(self.rng.integers(1, 5)), int(self.rng.integers(3, 7)), int(self.rng.integers(3, 7))
        shape = (1, h, w, c) if self.layout is Layout.NHWC else (1, c, h, w)
        self.last = self.builder.input("x", TensorType(shape, DType.F32))
        self.images = [self.last]
        self.named: list[int] = []

    # ---- Building blocks ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        return self.builder[self.last].type.shape

    @property
    def channel_axis(self) -> int:
        return 1 if self.layout is Layout.NCHW else 3

    @property
    def channels(self) -> int:
        return self.shape[self.channel_axis]

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def values(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def constant(self, values: Array) -> int:
        make = self.builder.constant if values.size < 3 and self.chance() else self.builder.param
        return make("c", np.asarray(values, np.float32))

    def number(self, value: float) -> int:
        return self.constant(np.full([(), (1,), (1, 1, 1, 1)][int(self.rng.integers(3))], value, np.float32))

    def op(self, op: Op, *operands: int, name: str = "t") -> int:
        self.last = self.builder.add(op, operands, name, sources=(f"source{len(self.named)}",))
        self.named.append(self.last)
        return self.last

    def binary(self, fn: BinaryOp, a: int, b: int) -> int:
        return self.op(Binary(fn), a, b)

    def commuting(self, fn: BinaryOp, a: int, b: int) -> int:
        return self.binary(fn, a, b) if self.chance() else self.binary(fn, b, a)

    def per_channel(self, values: Array) -> Array:
        """[C] beside an image, with or without the batch axis."""
        shape = [1] * 4
        shape[self.channel_axis] = -1
        return values.reshape(shape if self.chance() else shape[1:])

    def axes(self, *, batch: T, channels: T, rows: T, columns: T) -> tuple[T, ...]:
        return (batch, channels, rows, columns) if self.channel_axis == 1 else (batch, rows, columns, channels)

    # ---- Layers ------------------------------------------------------------------------------------------------------

    def conv(self, groups: int = 1, k: int | None = None, channels: int | None = None) -> None:
        k = k or int(self.rng.integers(1, 4))
        c_out = (channels or int(self.rng.integers(1, 4))) * (groups if channels is None else 1)
        sizes = self.axes(batch=c_out, channels=self.channels // groups, rows=k, columns=k)
        weights = self.values(*sizes, scale=(k * k * self.channels / groups) ** -0.5)
        padding = (k // 2,) * 4 if self.chance(0.7) or min(self.shape) < k else (0, 0, 0, 0)
        stride = (1, 1) if self.chance(0.8) else (2, 1)
        if not self._fits(k, padding):
            return
        self.op(Conv((k, k), stride, padding, (1, 1), groups, self.layout), self.last, self.constant(weights))
        if self.chance():
            self.commuting(BinaryOp.ADD, self.last, self.constant(self.per_channel(self.values(c_out))))

    def _fits(self, k: int, padding: Shape) -> bool:
        rows, columns = (self.shape[2:] if self.channel_axis == 1 else self.shape[1:3])[:2]
        return min(rows, columns) + 2 * padding[0] >= k

    def depthwise(self) -> None:
        self.conv(groups=self.channels)

    def affine(self) -> None:
        """A chain such as batch normalization or a rescaling of the input."""
        for _ in range(int(self.rng.integers(1, 4))):
            fn = (BinaryOp.MUL, BinaryOp.ADD, BinaryOp.SUB, BinaryOp.DIV)[int(self.rng.integers(4))]
            values = np.sign(self.values(self.channels)) * self.rng.uniform(0.5, 2.0, self.channels)
            values = values[:1] if self.chance(0.3) else self.per_channel(values)
            c = self.constant(values.astype(np.float32))
            if fn is BinaryOp.DIV:
                self.binary(fn, self.last, c)
            else:
                self.commuting(fn, self.last, c)

    def clamps(self) -> None:
        for _ in range(int(self.rng.integers(1, 4))):
            low = float(np.float32(self.rng.uniform(-2, 1)))
            kind = int(self.rng.integers(5))
            if kind == 0:
                self.op(Activation(ActivationFn.RELU), self.last)
            elif kind == 1:
                self.op(Clamp(low, low + float(self.rng.uniform(0, 3))), self.last)
            elif kind == 2:
                self.commuting(BinaryOp.MAX, self.last, self.number(0.0 if self.chance() else low))
            elif kind == 3:
                self.commuting(BinaryOp.MIN, self.last, self.number(low + 1.0))
            else:
                self.op(Activation(ActivationFn.SIGMOID), self.last)

    def pool(self) -> None:
        k = int(self.rng.integers(1, 4))
        padding = tuple(int(p) for p in self.rng.integers(0, k, 4)) if self.chance() else (0, 0, 0, 0)
        if self._fits(k, (0,)):
            kind = ReduceOp.MEAN if self.chance() else ReduceOp.MAX
            counted = kind is ReduceOp.MEAN and self.chance()
            self.op(Pool(kind, (k, k), (1, 1), padding, self.layout, counted), self.last)

    def global_pool(self) -> None:
        size = self.shape[2:] if self.channel_axis == 1 else self.shape[1:3]
        x = self.last
        pooled = self.op(Pool(ReduceOp.MEAN, size, (1, 1), (0, 0), self.layout), x)
        self.binary(BinaryOp.MUL, x, self.op(Activation(ActivationFn.SIGMOID), pooled))

    def pad(self) -> None:
        sides = [(int(a), int(b)) for a, b in self.rng.integers(0, 2, (2, 2))]
        value = float(self.rng.choice([0.0, 0.0, -0.5, -math.inf if self._fits(2, (0,)) else 0.5]))
        channels = (0, 1) if value == 0.0 and self.chance(0.2) else (0, 0)
        pads = self.axes(batch=(0, 0), channels=channels, rows=sides[0], columns=sides[1])
        self.op(Pad(pads, value=value), self.last)
        if value == -math.inf:
            self.op(Pool(ReduceOp.MAX, (2, 2), (1, 1), (0, 0), self.layout), self.last)

    def residual(self) -> None:
        others = [i for i in self.images if self.builder[i].type == self.builder[self.last].type]
        if others:
            self.commuting(BinaryOp.ADD, self.last, others[int(self.rng.integers(len(others)))])

    def join(self) -> None:
        others = [i for i in self.images if self._beside(self.builder[i].type.shape)]
        if others:
            self.op(Concat(self.channel_axis), self.last, others[int(self.rng.integers(len(others)))])

    def _beside(self, shape: Shape) -> bool:
        return all(a == b for i, (a, b) in enumerate(zip(shape, self.shape, strict=True)) if i != self.channel_axis)

    def there_and_back(self) -> None:
        perm = tuple(int(axis) for axis in self.rng.permutation(4))
        self.op(Transpose(perm), self.last)
        self.op(Activation(ActivationFn.TANH if self.chance() else ActivationFn.RELU), self.last)
        self.op(Transpose(tuple(int(axis) for axis in np.argsort(perm))), self.last)

    def other_layout(self) -> None:
        """As exporters from Keras have it: the rest of the model in the other layout."""
        to_last = self.layout is Layout.NCHW
        self.op(Transpose((0, 2, 3, 1) if to_last else (0, 3, 1, 2)), self.last)
        self.layout = Layout.NHWC if to_last else Layout.NCHW
        self.images = []

    def reshapes(self) -> None:
        shape = self.shape
        joined = (shape[0], shape[1], -1) if self.chance() else (shape[0], -1, shape[3])
        self.op(Reshape(joined), self.last)
        self.op(Activation(ActivationFn.RELU), self.last)
        self.op(Reshape((-1,)), self.last)
        self.op(Reshape(shape), self.last)

    def shuffle(self) -> None:
        n, c, h, w = self.shape
        if self.channel_axis == 1 and c % 2 == 0:
            self.op(Reshape((n, 2, c // 2, h, w)), self.last)
            self.op(Transpose((0, 2, 1, 3, 4)), self.last)
            self.op(Reshape((n, c, h, w)), self.last)

    def nothing(self) -> None:
        shape = self.shape
        ops = (Reshape(shape), Transpose((0, 1, 2, 3)), Cast(DType.F32), Expand(shape), Tile((1,) * 4), Concat(2))
        more = (Pad(((0, 0),) * 4), Narrow(1, 0, shape[1]), Reduce(ReduceOp.MEAN, (0,), True))
        chosen = (*ops, *more)
        self.op(chosen[int(self.rng.integers(len(chosen)))], self.last)

    def twice(self) -> None:
        """The same computed twice, from equal constants that are stored twice."""
        x, values = self.last, self.values(1)
        first = self.binary(BinaryOp.MUL, x, self.builder.param("a", values))
        second = self.binary(BinaryOp.MUL, x, self.builder.param("b", values.copy()))
        self.binary(BinaryOp.ADD, self.op(Activation(ActivationFn.RELU), first), second)

    def constants(self) -> None:
        """A factor that the file computes from constants."""
        a, b = self.builder.param("a", self.values(1, 1, 2)), self.builder.param("b", self.values(1, 1, 2))
        c = self.builder.add(Binary(BinaryOp.ADD), [a, b], "sum")
        factor = self.builder.add(Reduce(ReduceOp.MAX, (2,), False), [c], "largest")
        self.commuting(BinaryOp.MUL, self.last, factor)

    def expanded(self) -> None:
        factor = self.builder.add(Expand(self.shape), [self.number(0.75)], "expanded")
        self.commuting(BinaryOp.ADD, self.last, factor)

    def mean_scale(self) -> None:
        size = (2, 3) if self.channel_axis == 1 else (1, 2)
        x = self.last
        self.commuting(BinaryOp.ADD, x, self.op(Reduce(ReduceOp.MEAN, size, True), x))

    # ---- Ends --------------------------------------------------------------------------------------------------------

    def image(self) -> None:
        pass

    def dense(self) -> None:
        flat = self.op(Reshape((1, -1)), self.last)
        columns = self.builder[flat].type.shape[1]
        if self.chance():
            self.binary(BinaryOp.MUL, self.last, self.constant(self.values(columns)))
        self.op(MatMul(), self.last, self.constant(self.values(columns, 3, scale=columns**-0.5)))
        self.commuting(BinaryOp.ADD, self.last, self.constant(self.values(3)))

    def probabilities(self) -> None:
        self.op(Softmax(self.channel_axis), self.last)

    def flat(self) -> None:
        self.op(Reshape((1, -1)), self.last)

    def rows(self) -> None:
        self.op(Reduce(ReduceOp.MEAN, (3,), False), self.last)

    def made(self) -> Graph:
        outputs = [self.last]
        if self.named and self.chance(0.3):
            other = self.named[int(self.rng.integers(len(self.named)))]
            outputs += [other] if other != self.last else []
        return self.builder.build(outputs)


_M = GraphMaker
LAYERS: tuple[Callable[[GraphMaker], None], ...] = (
    *(_M.conv, _M.depthwise, _M.affine, _M.clamps, _M.pool, _M.global_pool, _M.pad, _M.residual, _M.join),
    *(_M.there_and_back, _M.other_layout, _M.reshapes, _M.shuffle, _M.nothing, _M.twice, _M.constants, _M.expanded),
    _M.mean_scale,
)
ENDS: tuple[Callable[[GraphMaker], None], ...] = (_M.image, _M.dense, _M.probabilities, _M.flat, _M.rows)


@st.composite
def float_graphs(draw: st.DrawFn) -> Graph:
    """Up to eight layers on an image, and an end; at times with an output in between."""
    maker = GraphMaker(draw(st.integers(0, 1 << 20)))
    for layer in draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=8)):
        layer(maker)
        maker.images.append(maker.last)
    draw(st.sampled_from(ENDS))(maker)
    if not maker.named:
        maker.op(Activation(ActivationFn.RELU), maker.last)
    return maker.made()
