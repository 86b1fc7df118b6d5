"""Gradients of elementwise ops, of ops along an axis, and of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.attributes import MASK_OPERANDS, MaskKind, RopeStyle
from rlx_edge.ir.ops.base import Arity, Declared, Op, exact, normalize_axis
from rlx_edge.ir.ops.beyond.needs import require_dtype, require_like
from rlx_edge.ir.ops.checks import require, require_floats, require_shape
from rlx_edge.ir.ops.elementwise import ActivationFn
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class ReluBackward(Op):
    """Operands x, dy: dy where x > 0, else 0."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "relu_backward"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        require_like("dy", dy, "x", x)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class ActivationBackward(Op):
    """Operands x, dy: dy times the derivative of the function at x."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "{kind:?}_backward"
    kind: ActivationFn

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dy = operands
        require_like("dy", dy, "x", x)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class CumsumBackward(Op):
    """Operand dy: the gradient of Cumsum, like dy."""

    text: ClassVar[str] = "cumsum_backward(axis={axis},exclusive={exclusive})"
    axis: int
    exclusive: bool

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        normalize_axis(self.axis, len(operands[0].shape))
        return operands[0].shape, require_floats(operands)


@dataclass(frozen=True)
class GatherBackward(Declared):
    """Operands dy, indices: the gradient of Gather for its table, whose shape is declared."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "gather_backward(axis={axis})"
    axis: int

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        dy, indices = operands
        require_dtype("indices", indices, DType.I64, DType.I32, DType.F32)
        axis = normalize_axis(self.axis, len(out.shape))
        require_shape("dy", dy, (*out.shape[:axis], *indices.shape, *out.shape[axis + 1 :]))
        require_floats([dy, out])


@dataclass(frozen=True)
class RopeBackward(Op):
    """Operands dy, cos, sin: the gradient of Rope for x, like dy."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "rope_backward(d={head_dim},n_rot={n_rot},style={style:?})"
    head_dim: int
    n_rot: int
    style: RopeStyle

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        dy, cos, sin = operands
        fits = 0 < self.n_rot <= self.head_dim and self.n_rot % 2 == 0
        require(fits, f"n_rot {self.n_rot} of {self.head_dim} elements; an even number up to that is needed")
        whole = bool(dy.shape) and dy.shape[-1] % self.head_dim == 0
        require(whole, f"dy is {dy}; a last axis of heads of {self.head_dim} elements is needed")
        require_like("sin", sin, "cos", cos)
        return dy.shape, require_floats(operands)


class AttentionBwdWrt(Enum):
    """The operand of an attention that a gradient is for."""

    QUERY = "Query"
    KEY = "Key"
    VALUE = "Value"


@dataclass(frozen=True)
class AttentionBackward(Op):
    """Operands q, k, v, dy, and a mask where `mask_kind` asks for one: the gradient of Attention for one of the three.

    Ours: `window` is the width of a sliding window.
    """

    num_heads: int
    head_dim: int
    mask_kind: MaskKind
    wrt: AttentionBwdWrt
    window: int = 0

    @property
    def arity(self) -> Arity:
        return exact(5 if self.mask_kind in MASK_OPERANDS else 4)

    def display(self) -> str:
        windowed = self.mask_kind is MaskKind.SLIDING_WINDOW
        mask = f"sw={self.window}" if windowed else MASK_TEXT[self.mask_kind]
        return f"attn_bwd_{self.wrt.value}(h={self.num_heads},d={self.head_dim},{mask})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _check_attention(self, operands)
        differentiated = operands[list(AttentionBwdWrt).index(self.wrt)]
        return differentiated.shape, differentiated.dtype


MASK_TEXT = {
    MaskKind.NONE: "nomask",
    MaskKind.CAUSAL: "causal",
    MaskKind.CUSTOM: "custom",
    MaskKind.BIAS: "bias",
}


@dataclass(frozen=True)
class AttentionBackwardAll(Op):
    """Operands as those of AttentionBackward: its three gradients one after the other on axis 0, [3 B, S, H, D].

    Queries and keys are of one length. Ours: `window` is the width of a sliding window.
    """

    num_heads: int
    head_dim: int
    mask_kind: MaskKind
    window: int = 0

    @property
    def arity(self) -> Arity:
        return exact(5 if self.mask_kind in MASK_OPERANDS else 4)

    def display(self) -> str:
        width = f"({self.window})" if self.mask_kind is MaskKind.SLIDING_WINDOW else ""
        return f"attn_bwd_all(h={self.num_heads},d={self.head_dim},{self.mask_kind.value}{width})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _check_attention(self, operands)
        q, k, v = operands[:3]
        require_like("k", k, "q", q)
        require_like("v", v, "q", q)
        return (3 * q.shape[0], *q.shape[1:]), q.dtype


def _check_attention(op: AttentionBackward | AttentionBackwardAll, operands: Sequence[TensorType]) -> None:
    """q, k, v and dy are [B, S, H, D], [B, H, S, D] or, of one head, [B, S, D]. Raises ShapeError."""
    q, k, v, dy = operands[:4]
    require_floats(operands)
    for name, operand in (("q", q), ("k", k), ("v", v)):
        rank = len(operand.shape)
        heads = op.num_heads == 1 if rank == 3 else rank == 4 and op.num_heads in operand.shape[1:3]
        require(heads and rank == len(q.shape), f"{name} is {operand}; [B, S, H, D] or [B, H, S, D] is needed")
        require(operand.shape[0] == q.shape[0], f"{name} is {operand}, but q is {q}: another batch")
    for name, operand in (("q", q), ("k", k)):
        require(operand.shape[-1] == op.head_dim, f"{name} is {operand}; heads of {op.head_dim} are needed")
    require(k.shape[:-1] == v.shape[:-1], f"k is {k}, but v is {v}: other keys")
    require_shape("dy", dy, (*q.shape[:-1], v.shape[-1]))


KINDS: tuple[type[Op], ...] = (
    *(ReluBackward, ActivationBackward, CumsumBackward, GatherBackward, RopeBackward),
    *(AttentionBackward, AttentionBackwardAll),
)
