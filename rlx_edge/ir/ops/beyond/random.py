"""Random numbers, and samples of distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op
from rlx_edge.ir.ops.checks import FLOATS, require, require_floats, require_rank, require_shape
from rlx_edge.ir.ops.rust_text import display
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class Sample(Op):
    """Operand logits [batch, classes]: for each row a class drawn by softmax(logits / temperature), [batch] f32.

    Only of the `top_k` likeliest (0: of all), and of those that together reach `top_p` (1: all). Seed 0 takes another
    one with each call.
    """

    top_k: int
    top_p: float
    temperature: float
    seed: int

    def display(self) -> str:
        k = f",k={self.top_k}" if self.top_k > 0 else ""
        p = f",p={display(self.top_p)}" if self.top_p < 1 else ""
        return f"sample(t={display(self.temperature)}{k}{p})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require_floats(operands)
        return require_rank("logits", operands[0], 2)[:1], DType.F32


@dataclass(frozen=True)
class Random(Declared):
    """The output's type is declared; an operand, where there is one, only lends its shape."""

    operand_count: ClassVar[Arity] = Arity(0, 1)

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        require(out.dtype in FLOATS, f"random numbers of {out.dtype.value}; a float is needed")
        for template in operands:
            require_shape("the template", template, out.shape)


@dataclass(frozen=True)
class RngNormal(Random):
    """Of a normal distribution; ONNX RandomNormal and, with an operand, RandomNormalLike."""

    mean: float
    scale: float
    key: int
    op_seed: float | None

    def display(self) -> str:
        return f"rng_normal({display(self.mean)},{display(self.scale)},key={self.key}{_seed(self.op_seed)})"


@dataclass(frozen=True)
class RngUniform(Random):
    """Uniform from low to high; ONNX RandomUniform and, with an operand, RandomUniformLike."""

    low: float
    high: float
    key: int
    op_seed: float | None

    def display(self) -> str:
        return f"rng_uniform({display(self.low)},{display(self.high)},key={self.key}{_seed(self.op_seed)})"


def _seed(seed: float | None) -> str:
    return "" if seed is None else f",seed={display(seed)}"


KINDS: tuple[type[Op], ...] = (Sample, RngNormal, RngUniform)
