"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import FrozenAdd, FrozenScale, FrozenTable, Requant
from rlx_edge.ir.ops.base import Op, ShapeError, broadcast_shapes
from rlx_edge.ir.tensor import Shape, TensorType


class ActivationFn(Enum):
    """Unary activation functions; the values are the vocabulary's names."""

    GELU = "Gelu"
    GELU_APPROX = "GeluApprox"
    SILU = "Silu"
    RELU = "Relu"
    SIGMOID = "Sigmoid"
    TANH = "Tanh"
    EXP = "Exp"
    LOG = "Log"
    SQRT = "Sqrt"
    RSQRT = "Rsqrt"
    NEG = "Neg"
    ABS = "Abs"
    SIN = "Sin"
    COS = "Cos"
    TAN = "Tan"
    ATAN = "Atan"
    RECIP = "Recip"
    ROUND = "Round"
    FLOOR = "Floor"
    CEIL = "Ceil"
    SIGN = "Sign"
    SOFTPLUS = "Softplus"
    ELU = "Elu"
    ERF = "Erf"
    HARD_SWISH = "HardSwish"
    HARD_SIGMOID = "HardSigmoid"
    MISH = "Mish"
    SOFTSIGN = "Softsign"
    LOG_SIGMOID = "LogSigmoid"
    LEAKY_RELU = "LeakyRelu"
    """Ours: x where x > 0, else alpha * x."""


class BinaryOp(Enum):
    """Binary functions; the values are the vocabulary's names."""

    ADD = "Add"
    SUB = "Sub"
    MUL = "Mul"
    DIV = "Div"
    MAX = "Max"
    MIN = "Min"
    POW = "Pow"
    MOD = "Mod"
    BIT_AND = "BitAnd"
    BIT_OR = "BitOr"
    BIT_XOR = "BitXor"
    SHL = "Shl"
    SHR = "Shr"
    ATAN2 = "Atan2"


@dataclass(frozen=True)
class Activation(Op):
    """A unary function of each element.

    On int8 tensors it is a table: `frozen` holds the code of the result for each of the 256 codes of the operand.
    `alpha` is the slope of LeakyRelu below 0 (ours); no other function takes it.
    """

    fn: ActivationFn
    alpha: float | None = None
    requant: Requant = Requant.RLX
    frozen: FrozenTable | None = None

    def display(self) -> str:
        return self.fn.value


@dataclass(frozen=True)
class Binary(Op):
    """A function of two tensors, broadcast against each other as numpy does.

    On int8 tensors it works on the real values that they stand for and requantizes to the output's parameters;
    `clamp` bounds the result in quantized units (a fused activation).
    """

    arity: ClassVar[tuple[int, int | None]] = (2, 2)
    fn: BinaryOp
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None
    frozen: FrozenAdd | FrozenScale | None = None

    def display(self) -> str:
        return self.fn.value

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, b = operands
        if a.dtype != b.dtype:
            raise ShapeError(f"operands of different dtypes, {a.dtype.value} and {b.dtype.value}")
        return broadcast_shapes(a.shape, b.shape), a.dtype


@dataclass(frozen=True)
class Clamp(Op):
    """min(max(x, min), max), in real values also where the tensor is quantized."""

    min: float
    max: float

    def display(self) -> str:
        return f"clamp({self.min:g},{self.max:g})"
