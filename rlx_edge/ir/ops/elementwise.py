"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.frozen import FrozenAdd, FrozenScale, FrozenTable, Requant
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, broadcast_shapes, exact
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
    TABLE = "Table"
    """Ours, on int8 alone: whatever the op's `frozen` table says."""


ON_INTEGERS = (ActivationFn.RELU, ActivationFn.NEG, ActivationFn.ABS, ActivationFn.SIGN)
"""Functions that integers without quantization parameters have too."""


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


ON_BITS = (BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR)
"""Functions of integers and of bools."""

ON_INTEGERS_ONLY = (BinaryOp.SHL, BinaryOp.SHR)


class CmpOp(Enum):
    """Comparisons; the values are the vocabulary's names."""

    EQ = "Eq"
    NE = "Ne"
    LT = "Lt"
    LE = "Le"
    GT = "Gt"
    GE = "Ge"


@dataclass(frozen=True)
class Activation(Op):
    """A unary function of each element.

    On int8 tensors it is a table: `frozen` holds the code of the result for each of the 256 codes of the operand.
    `alpha` is the slope of LeakyRelu below 0 (ours); no other function takes it.
    """

    text: ClassVar[str] = "{fn:?}"
    fn: ActivationFn
    alpha: float | None = None
    requant: Requant = Requant.RLX
    frozen: FrozenTable | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x = operands[0]
        if x.dtype != DType.F32 and x.quant is None and (x.dtype is DType.BOOL or self.fn not in ON_INTEGERS):
            raise ShapeError(f"{self.fn.value} of {x.dtype.value}")
        if self.fn is ActivationFn.TABLE and x.quant is None:
            raise ShapeError(f"a table of 256 codes on {x.dtype.value} without quantization parameters")
        return x.shape, x.dtype


@dataclass(frozen=True)
class Binary(Op):
    """A function of two tensors, broadcast against each other as numpy does.

    On int8 tensors it works on the real values that they stand for and requantizes to the output's parameters;
    `clamp` bounds the result in quantized units (a fused activation).
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "{fn:?}"
    fn: BinaryOp
    requant: Requant = Requant.RLX
    clamp: tuple[int, int] | None = None
    frozen: FrozenAdd | FrozenScale | None = None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, b = operands
        if a.dtype != b.dtype:
            raise ShapeError(f"operands of different dtypes, {a.dtype.value} and {b.dtype.value}")
        if (
            (a.dtype is DType.BOOL and self.fn not in ON_BITS)
            or (a.dtype is DType.F32 and self.fn in (*ON_BITS, *ON_INTEGERS_ONLY))
            or (a.dtype.is_integer and self.fn is BinaryOp.ATAN2)
        ):
            raise ShapeError(f"{self.fn.value} of {a.dtype.value}")
        return broadcast_shapes(a.shape, b.shape), a.dtype


@dataclass(frozen=True)
class Clamp(Op):
    """min(max(x, min), max), in real values also where the tensor is quantized."""

    text: ClassVar[str] = "clamp({min},{max})"
    min: float
    max: float


@dataclass(frozen=True)
class Cast(Op):
    """The same numbers in another dtype: float to integer rounds toward zero, anything to bool asks whether it is 0.

    A value that the integer type does not hold wraps as C's conversion through int64 does.
    """

    text: ClassVar[str] = "cast({to})"
    to: DType

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return operands[0].shape, self.to


@dataclass(frozen=True)
class Compare(Op):
    """A comparison of two tensors of one dtype, broadcast; the result is bool."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "{fn:?}"
    fn: CmpOp

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        a, b = operands
        if a.dtype != b.dtype:
            raise ShapeError(f"operands of different dtypes, {a.dtype.value} and {b.dtype.value}")
        return broadcast_shapes(a.shape, b.shape), DType.BOOL


@dataclass(frozen=True)
class Where(Op):
    """Operands cond (bool), on_true, on_false, broadcast: on_true where cond holds, else on_false."""

    operand_count: ClassVar[Arity] = exact(3)

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        cond, a, b = operands
        if cond.dtype is not DType.BOOL or a.dtype != b.dtype:
            found = ", ".join(operand.dtype.value for operand in operands)
            raise ShapeError(f"operands {found}; a bool and two of one dtype are needed")
        return broadcast_shapes(cond.shape, broadcast_shapes(a.shape, b.shape)), a.dtype
