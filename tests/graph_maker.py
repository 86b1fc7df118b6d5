"""Builds valid graphs of any kinds, from a seed: what may be written, not what models look like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from rlx_edge.ir import Array, Channels, DType, Graph, GraphBuilder, QuantParams, Shape, TensorType
from rlx_edge.ir.ops import Binary, BinaryOp, Input, Op

NAMES = (
    "x",
    "conv/BiasAdd;conv/Conv2D",
    "a b",
    'say "hi"',
    "größe",
    "",
    "%0",
    "none",
    "graph",
    "N",
    "a\nb",
    "# no",
    "x:0",
)
F32, I8, I32, BOOL = DType.F32, DType.I8, DType.I32, DType.BOOL
FLAG = TensorType((), BOOL)
DEEPEST = 2
"""How deep graphs lie in each other."""

T = TypeVar("T")


PLAIN: dict[type[Op], Callable[[Maker], int]] = {}
"""How a node of each kind is added, with operands that fit: kinds without nested graphs. Filled by `any_graphs`."""

MAKERS: dict[type[Op], Callable[[Maker], int]] = {}
"""The same for all kinds."""


class Maker:
    """Appends nodes to a graph; all choices come from its seed."""

    def __init__(self, seed: int, inputs: Sequence[TensorType] = (), depth: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.depth = depth
        self.builder = GraphBuilder(self.pick(*NAMES))
        self.inputs = [self.builder.input(self.name(), type) for type in inputs]

    def pick(self, *choices: T) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def name(self) -> str:
        return self.pick(*NAMES)

    def shape(self, rank: int | None = None, low: int = 0) -> Shape:
        return tuple(self.number(1, 4) for _ in range(self.number(low, 4) if rank is None else rank))

    def scale(self) -> float:
        value = float(self.rng.uniform(1e-3, 2))
        return self.pick(0.5, value, float(np.float32(value)))

    def quant(self, channels: int = 1, axis: int | None = None, zero: int | None = None) -> QuantParams:
        zeros = tuple(self.number(-128, 127) if zero is None else zero for _ in range(channels))
        return QuantParams(tuple(self.scale() for _ in range(channels)), zeros, axis)

    def values(self, type: TensorType) -> Array:
        if type.dtype is BOOL:
            return self.rng.integers(0, 2, type.shape).astype(bool)
        if type.dtype.is_integer:
            low, high = type.dtype.limits
            return self.rng.integers(max(low, -1000), min(high, 1000) + 1, type.shape).astype(type.dtype.numpy)
        values = np.asarray(self.rng.standard_normal(type.shape), type.dtype.numpy)
        odd = self.rng.choice([np.nan, np.inf, -np.inf, -0.0], type.shape)
        return np.where(self.rng.random(type.shape) < 0.1, odd, values).astype(type.dtype.numpy)

    def tensor(self, shape: Shape, dtype: DType = F32, quant: QuantParams | None = None) -> int:
        """A node of that type: one that is there, or a new leaf."""
        type = TensorType(shape, dtype, quant)
        there = [i for i in range(len(self.builder)) if self.builder[i].type == type]
        if there and self.chance():
            return self.pick(*there)
        if self.chance(0.4) and self.depth == 0:
            return self.builder.input(self.name(), type, self.sources())
        if self.chance() or dtype.bits < 8:
            return self.builder.param(self.name(), self.values(type), quant, self.sources(), dtype)
        return self.builder.constant(self.name(), self.values(type), quant)

    def indices(self, shape: Shape, below: int) -> int:
        values = self.rng.integers(0, below, shape).astype(self.pick(np.int32, np.int64))
        return self.builder.constant(self.name(), values)

    def sources(self) -> tuple[str, ...]:
        return tuple(self.name() for _ in range(self.pick(0, 0, 1, 2)))

    def add(self, op: Op, *operands: int, quant: QuantParams | None = None, type: TensorType | None = None) -> int:
        node = self.builder.add(op, operands, self.name(), quant, self.sources(), type=type)
        if self.builder[node].type.shape and self.chance(0.1):
            size = self.builder[node].type.shape[-1]
            self.builder.keep_channels(node, Channels(tuple(range(1, 2 * size, 2)), 2 * size))
        return node

    def body(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], names: Sequence[str] = ()) -> Graph:
        """A nested graph of these inputs and outputs, with something in it; the last inputs have `names`."""
        inner = Maker(self.number(0, 1 << 30), inputs[: len(inputs) - len(names)], self.depth + 1)
        named = inputs[len(inputs) - len(names) :]
        inner.inputs += [inner.builder.input(name, type) for name, type in zip(names, named, strict=True)]
        kinds = MAKERS if inner.depth < DEEPEST else PLAIN
        for _ in range(self.number(0, 2)):
            inner.node(inner.pick(*(kind for kind in kinds if kind is not Input)))
        return inner.graph([inner.made_of(type) for type in outputs])

    def made_of(self, type: TensorType) -> int:
        """A node of that type, computed of an input where there is one."""
        given = [i for i in self.inputs if self.builder[i].type == type]
        if given and type.dtype is F32:
            return self.add(Binary(self.pick(BinaryOp.ADD, BinaryOp.MUL)), self.pick(*given), self.tensor(type.shape))
        return self.tensor(type.shape, type.dtype, type.quant)

    def node(self, kind: type[Op]) -> int:
        return MAKERS[kind](self)

    def graph(self, outputs: Sequence[int] = ()) -> Graph:
        if self.chance():
            self.builder.metadata[self.name()] = self.pick("", "scale=1/255", 'quotes " and \u2192 \x00\n', "none")
        every = range(len(self.builder))
        return self.builder.build(outputs or [self.pick(*every) for _ in range(self.number(1, 3))])


Make = Callable[[Maker], int]


Make = Callable[[Maker], int]
