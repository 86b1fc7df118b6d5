"""Fake quantization, for training: float32 rounded to what so many bits can hold, and the gradients of that.

All of them are symmetric, with magnitudes up to `largest(bits)`, and have one scale for the tensor (`axis` None) or one
for each index of `axis`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, exact, normalize_axis
from rlx_edge.ir.ops.rust_text import debug
from rlx_edge.ir.tensor import Shape, TensorType

BITS = range(2, 9)
"""2 bits are ternary: -1, 0 and 1."""

SMALLEST_SCALE = 1e-12
"""Smaller scales count as this: a tensor of zeros has a scale too."""


class SteKind(Enum):
    """Straight-through estimators: what the gradient of rounding is taken for, where s is the scale and m the largest
    magnitude. The values are the vocabulary's names."""

    IDENTITY = "Identity"
    """dx = dy."""
    CLIPPED_IDENTITY = "ClippedIdentity"
    """dx = dy where |x| <= m s, else 0."""
    TANH = "Tanh"
    """dx = dy (1 - tanh(x / s)^2)."""
    HARD_TANH = "HardTanh"
    """dx = dy max(0, 1 - |x / (m s)|)."""


@dataclass(frozen=True)
class PerBatch:
    """The scale is max|x| / m of the values at hand."""


@dataclass(frozen=True)
class EMA:
    """A second operand holds a running scale: decay * state + (1 - decay) * max|x| / m; a state of 0 is a new one."""

    decay: float


@dataclass(frozen=True)
class Fixed:
    """A second operand holds the scale, which stays as it is."""


ScaleMode = PerBatch | EMA | Fixed


def largest(bits: int) -> int:
    """The largest magnitude that so many bits hold: 127, 7, 3 and 1 for 8, 4, 3 and 2."""
    return int((1 << (bits - 1)) - 1)


@dataclass(frozen=True)
class FakeQuantize(Op):
    """clamp(round(x / s), -m, m) * s, ties away from zero. Operand x; with EMA and Fixed also the state [channels]."""

    bits: int
    axis: int | None
    ste: SteKind = SteKind.IDENTITY
    scale_mode: ScaleMode = PerBatch()

    @property
    def arity(self) -> Arity:
        return exact(1 if isinstance(self.scale_mode, PerBatch) else 2)

    def display(self) -> str:
        return f"fake_quant(bits={self.bits}{_axis_text(self)},ste={self.ste.value},scale={debug(self.scale_mode)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _checked(self, operands[0], operands[1:])


@dataclass(frozen=True)
class FakeQuantizeBackward(Op):
    """The gradient of FakeQuantize: operands x and dy. The scale is that of x itself, as with PerBatch."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "fake_quant_backward(bits={bits},ste={ste:?})"
    bits: int
    axis: int | None
    ste: SteKind

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _same_as_x(*operands)
        return _checked(self, operands[0])


@dataclass(frozen=True)
class FakeQuantizeLSQ(Op):
    """FakeQuantize with a scale [channels] that is learned: operands x and scale.

    Esser et al., Learned Step Size Quantization, 2020 (arXiv:1902.08153).
    """

    operand_count: ClassVar[Arity] = exact(2)
    bits: int
    axis: int | None

    def display(self) -> str:
        return f"fake_quant_lsq(bits={self.bits}{_axis_text(self)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        return _checked(self, operands[0], operands[1:])


@dataclass(frozen=True)
class FakeQuantizeLSQBackwardX(Op):
    """The gradient of FakeQuantizeLSQ for x: dy where |x / s| <= m, else 0. Operands x, scale, dy."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "fake_quant_lsq_bwd_x(bits={bits})"
    bits: int
    axis: int | None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _same_as_x(operands[0], operands[2])
        return _checked(self, operands[0], operands[1:2])


@dataclass(frozen=True)
class FakeQuantizeLSQBackwardScale(Op):
    """The gradient of FakeQuantizeLSQ for the scale: the sum over a channel of psi(x / s) * dy.

    psi(z) is round(z) - z where |z| <= m, else m with the sign of z. Operands x, scale, dy; the result is like scale.
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "fake_quant_lsq_bwd_s(bits={bits})"
    bits: int
    axis: int | None

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _same_as_x(operands[0], operands[2])
        _checked(self, operands[0], operands[1:2])
        return operands[1].shape, operands[1].dtype


FakeQuant = (
    FakeQuantize | FakeQuantizeBackward | FakeQuantizeLSQ | FakeQuantizeLSQBackwardX | FakeQuantizeLSQBackwardScale
)


def _axis_text(op: FakeQuantize | FakeQuantizeLSQ) -> str:
    return "" if op.axis is None else f",axis={op.axis}"


def _same_as_x(x: TensorType, dy: TensorType) -> None:
    if (x.shape, x.dtype) != (dy.shape, dy.dtype):
        raise ShapeError(f"x {x} and dy {dy} are not of one type")


def _checked(op: FakeQuant, x: TensorType, scales: Sequence[TensorType] = ()) -> tuple[Shape, DType]:
    """The type of x. Raises ShapeError unless it is f32, and each of `scales` f32 with one value a channel."""
    if op.bits not in BITS:
        raise ShapeError(f"{op.bits} bits; {BITS[0]} to {BITS[-1]} are possible")
    channels = 1 if op.axis is None else x.shape[normalize_axis(op.axis, len(x.shape))]
    if x.dtype is not DType.F32:
        raise ShapeError(f"an f32 operand is needed, not {x.dtype.value}")
    for scale in scales:
        if (scale.shape, scale.dtype) != ((channels,), DType.F32):
            raise ShapeError(f"scales must be f32[{channels}], not {scale.dtype.value}{list(scale.shape)}")
    return x.shape, x.dtype
