"""Attention, rotary position embeddings, and the cache of keys and values that decoding keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.attributes import MASK_OPERANDS, MaskKind, RopeStyle
from rlx_edge.ir.ops.base import Arity, Op, ShapeError, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.ops.rust_text import display as rust_display
from rlx_edge.ir.tensor import Shape, TensorType

BY_POSITION = (MaskKind.CAUSAL, MaskKind.SLIDING_WINDOW)
"""Masks that follow from positions: the queries are at the end of the keys, which must be as many or more."""


@dataclass(frozen=True)
class Attention(Op):
    """Operands q, k [.., head_dim], v [.., v_head_dim], and a mask where `mask_kind` asks for one:
    softmax(mask(cap(q k^T * score_scale))) v, with cap(s) = c * tanh(s / c), c being `attn_logit_softcap`.

    All are [B, S, H, D], or all [B, H, S, D], or all [B, S, D] of one head; S of k and v may differ from that of q.
    Ours: where S = H, they are [B, S, H, D]; a bias is added after the cap; a query that sees no key gives NaN;
    `window` is the width of a sliding window.
    """

    num_heads: int
    head_dim: int
    v_head_dim: int | None
    mask_kind: MaskKind
    score_scale: float | None = None
    attn_logit_softcap: float | None = None
    window: int = 0

    @property
    def arity(self) -> Arity:
        return exact(4 if self.mask_kind in MASK_OPERANDS else 3)

    def display(self) -> str:
        shown = f"attention(h={self.num_heads},d={self.head_dim}{MASK_TEXT[self.mask_kind].format(self.window)})"
        extras = (("vd", self.v_head_dim), ("scale", self.score_scale), ("softcap", self.attn_logit_softcap))
        return shown + "".join(f",{name}={rust_display(value)}" for name, value in extras if value is not None)

    def head_axis(self, operands: Sequence[TensorType]) -> int | None:
        """The axis of the heads of q, k and v; None where there is but one head and no axis of it."""
        shapes = [operand.shape for operand in operands[:3]]
        if all(len(shape) == 3 for shape in shapes) and self.num_heads == 1:
            return None
        for axis in (2, 1):
            if all(len(shape) == 4 and shape[axis] == self.num_heads for shape in shapes):
                return axis
        found = ", ".join(str(operand) for operand in operands[:3])
        raise ShapeError(f"q, k, v are {found}; [B, S, {self.num_heads}, D] or [B, {self.num_heads}, S, D] is needed")

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        dtype = require_floats(operands)
        heads, size = self.num_heads, self.head_dim
        require(heads >= 1 and size >= 1, f"{heads} heads of {size}; at least one of one is needed")
        q, k, v, *mask = operands
        places = 2 if self.head_axis(operands) == 1 else 1
        batch, queries, keys = q.shape[0], q.shape[places], k.shape[places]
        for name, operand in (("q", q), ("k", k)):
            require(operand.shape[-1] == size, f"{name} is {operand}; heads of {size} are needed")
        require(k.shape[0] == batch, f"k is {k}, but q is {q}: another batch")
        width = size if self.v_head_dim is None else self.v_head_dim
        require_shape("v", v, (*k.shape[:-1], width))
        if self.mask_kind in BY_POSITION:
            require(keys >= queries, f"{queries} queries at the end of {keys} keys; at least as many keys are needed")
        require(self.window >= 0, f"a window of {self.window}; 0 or more is needed")
        cap = self.attn_logit_softcap
        require(cap is None or cap > 0, f"attn_logit_softcap {cap}; a positive number is needed")
        if mask:
            per_key = self.mask_kind is MaskKind.CUSTOM
            require_shape("mask", mask[0], (batch, keys) if per_key else (batch, heads, queries, keys))
        return (*q.shape[:-1], width), dtype

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        keys = operands[1].shape[2 if self.head_axis(operands) == 1 else 1]
        return keys * (operands[0].elements + out.elements)


MASK_TEXT = {
    MaskKind.CUSTOM: "",
    MaskKind.NONE: ",nomask",
    MaskKind.CAUSAL: ",causal",
    MaskKind.SLIDING_WINDOW: ",sw={}",
    MaskKind.BIAS: ",bias",
}


@dataclass(frozen=True)
class Rope(Op):
    """Operands x, cos, sin: each pair (a, b) of the first `n_rot` elements of a head to (a cos - b sin, b cos + a sin).

    Ours: x is [B, S, H * head_dim] or [B, S, H, head_dim]; cos and sin are [S, n_rot / 2], or [B, S, n_rot / 2].
    """

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "rope(d={head_dim}, n_rot={n_rot}, style={style:?})"
    head_dim: int
    n_rot: int
    style: RopeStyle = RopeStyle.NEOX

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, *tables = operands
        fits = 0 < self.n_rot <= self.head_dim and self.n_rot % 2 == 0
        require(fits, f"n_rot {self.n_rot} of {self.head_dim} elements; an even number up to that is needed")
        heads = (len(x.shape) == 4 and x.shape[3] == self.head_dim) or (
            len(x.shape) == 3 and x.shape[2] % self.head_dim == 0
        )
        require(heads, f"x is {x}; [B, S, H * {self.head_dim}] or [B, S, H, {self.head_dim}] is needed")
        shape = (*x.shape[:2], self.n_rot // 2)
        for name, table in zip(("cos", "sin"), tables, strict=True):
            require_shape(name, table, shape if len(table.shape) == 3 else shape[1:])
        require(tables[0].shape == tables[1].shape, f"cos is {tables[0]}, but sin is {tables[1]}")
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class AxialRope2d(Op):
    """x [B, S, num_heads * head_dim], a grid of end_y rows of end_x places, `repeat_factor` times one after the other:
    each pair (2i, 2i + 1) of a head is rotated, the first half of the pairs by the column, the other half by the row.

    Pair i of D / 4 in its half is turned by position * theta^(-4i / D), as in SAM 2's axial embedding.
    """

    text: ClassVar[str] = "axial_rope2d({end_x}x{end_y},h={num_heads},d={head_dim},θ={theta},r={repeat_factor})"
    end_x: int
    end_y: int
    head_dim: int
    num_heads: int
    theta: float
    repeat_factor: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (x,) = operands
        require(self.head_dim % 4 == 0, f"heads of {self.head_dim} elements; a multiple of 4 is needed")
        require(self.theta > 0, f"theta {self.theta:g}; a positive number is needed")
        batch = require_rank("x", x, 3)[0]
        places = self.end_x * self.end_y * self.repeat_factor
        require_shape("x", x, (batch, places, self.num_heads * self.head_dim))
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class KvAppend(Op):
    """Operands cache, row: the cache up to place `pos` along `axis`, with the row, of size 1 there, at `pos`.

    The vocabulary writes into the cache's own memory; here (ours) operands keep their values.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "kv_append(axis={axis}, pos={pos})"
    axis: int
    pos: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        cache, row = operands
        require(0 <= self.axis < len(cache.shape), f"axis {self.axis} of a cache of rank {len(cache.shape)}")
        before, size, after = cache.shape[: self.axis], cache.shape[self.axis], cache.shape[self.axis + 1 :]
        require(0 <= self.pos < size, f"pos {self.pos} on an axis of {size}")
        require_shape("row", row, (*before, 1, *after))
        require(row.dtype == cache.dtype, f"row is {row}, but cache is {cache}: another dtype")
        return (*before, self.pos + 1, *after), cache.dtype


KINDS: tuple[type[Op], ...] = (Attention, Rope, AxialRope2d, KvAppend)
