"""Attention with its projections, and a whole layer of a transformer, as one op each.

The vocabulary does not say how heads lie in the projections. Ours, as in BERT's usual exports: the columns of qkv_w are
those of q, k and v, each num_heads * head_dim wide, head after head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.ops.elementwise import ActivationFn
from rlx_edge.ir.tensor import Shape, TensorType

LAYER_OPERANDS = (
    *("hidden", "qkv_w", "qkv_b", "out_w", "out_b", "ln1_g", "ln1_b"),
    *("fc1_w", "fc1_b", "fc2_w", "fc2_b", "ln2_g", "ln2_b", "mask"),
)
"""Those of FusedTransformerLayer, in their order."""


@dataclass(frozen=True)
class FusedAttentionBlock(Op):
    """Operands hidden [B, S, E], qkv_w [E, 3 H D], out_w [H D, F], mask [B, S]; qkv_b [3 H D], out_b [F]; cos, sin.

    softmax(q k^T / sqrt(D)) v of each head, q, k and v being parts of hidden qkv_w + qkv_b, times out_w, plus out_b:
    [B, S, F]. Keys whose mask is below 0.5 are ignored; where all are, the result is NaN (ours). cos and sin [S, D / 2]
    (ours) rotate q and k: element i of a head with element i + D / 2, by NeoX's convention.
    """

    num_heads: int
    head_dim: int
    has_bias: bool
    has_rope: bool

    @property
    def arity(self) -> Arity:
        return exact(4 + 2 * self.has_bias + 2 * self.has_rope)

    def display(self) -> str:
        parts = f"{',bias' if self.has_bias else ''}{',rope' if self.has_rope else ''}"
        return f"fused_attn(h={self.num_heads},d={self.head_dim}{parts})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        hidden, qkv_w, out_w, mask, *more = operands
        shape = attention_shape(self.num_heads, self.head_dim, hidden, qkv_w, out_w, mask)
        if self.has_bias:
            require_shape("qkv_b", more[0], qkv_w.shape[1:])
            require_shape("out_b", more[1], shape[2:])
        if self.has_rope:
            require(self.head_dim % 2 == 0, f"heads of {self.head_dim} elements, which do not pair")
            for name, table in zip(("cos", "sin"), more[-2:], strict=True):
                require_shape(name, table, (shape[1], self.head_dim // 2))
        return shape, require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return attention_macs(operands[0], operands[1], operands[2])


@dataclass(frozen=True)
class FusedTransformerLayer(Op):
    """Operands hidden [B, S, E], qkv_w, qkv_b, out_w, out_b, ln1_g, ln1_b, fc1_w [E, I], fc1_b, fc2_w, fc2_b, ln2_g,
    ln2_b, mask [B, S]; those whose names end in _b are there only with `has_bias`.

    h = LayerNorm(hidden + attention block), then LayerNorm(h + fc2(activation(fc1(h)))): [B, S, E]. The parameters of
    the attention block are those of FusedAttentionBlock, without rotation.
    """

    num_heads: int
    head_dim: int
    intermediate_size: int
    eps1: float
    eps2: float
    activation: ActivationFn
    has_bias: bool

    @property
    def arity(self) -> Arity:
        return exact(len(self.operand_names))

    @property
    def operand_names(self) -> tuple[str, ...]:
        return tuple(name for name in LAYER_OPERANDS if self.has_bias or not name.endswith("_b"))

    def display(self) -> str:
        bias = ",bias" if self.has_bias else ""
        return f"fused_layer(h={self.num_heads},d={self.head_dim},int={self.intermediate_size}{bias})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        held = dict(zip(self.operand_names, operands, strict=True))
        hidden, weights = held["hidden"], held["qkv_w"]
        shape = attention_shape(self.num_heads, self.head_dim, hidden, weights, held["out_w"], held["mask"])
        require(shape == hidden.shape, f"attention gives {list(shape)}, which does not add to hidden {hidden}")
        size, inner = shape[2], self.intermediate_size
        wanted = {"fc1_w": (size, inner), "fc1_b": (inner,), "fc2_w": (inner, size), "qkv_b": weights.shape[1:]}
        for name, operand in held.items():
            if name[:2] in ("fc", "ln") or name.endswith("_b"):
                require_shape(name, operand, wanted.get(name, (size,)))
        return shape, require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        held = dict(zip(self.operand_names, operands, strict=True))
        feed_forward = 2 * out.elements * self.intermediate_size
        return attention_macs(held["hidden"], held["qkv_w"], held["out_w"]) + feed_forward


def attention_shape(
    heads: int, size: int, hidden: TensorType, qkv_w: TensorType, out_w: TensorType, mask: TensorType
) -> Shape:
    """[B, S, F] of an attention block. Raises ShapeError when the operands do not fit."""
    require(heads >= 1 and size >= 1, f"{heads} heads of {size}; at least one of one is needed")
    batch, length, width = require_rank("hidden", hidden, 3)
    require_shape("qkv_w", qkv_w, (width, 3 * heads * size))
    inner, out = require_rank("out_w", out_w, 2)
    require(inner == heads * size, f"out_w is {out_w}; {heads * size} rows are needed")
    require_shape("mask", mask, (batch, length))
    return batch, length, out


def attention_macs(hidden: TensorType, qkv_w: TensorType, out_w: TensorType) -> int:
    """Both projections, and for each pair of places a product of queries with keys and one of weights with values."""
    batch, length, width = hidden.shape
    inner, out = out_w.shape
    return batch * length * (width * qkv_w.shape[1] + inner * out + 2 * length * inner)


KINDS: tuple[type[Op], ...] = (FusedAttentionBlock, FusedTransformerLayer)
