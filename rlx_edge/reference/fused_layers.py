"""What a fused attention block and a fused transformer layer mean.

Attention itself is computed in float64 and rounded once; everything around it rounds as the ops of the unfused graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Binary, BinaryOp, LayerNorm, MatMul, Op
from rlx_edge.ir.ops.fused_layers import FusedAttentionBlock, FusedTransformerLayer
from rlx_edge.reference.compose import apply
from rlx_edge.reference.further import OpFunction
from rlx_edge.reference.fused import activated

Types = Sequence[TensorType]
ADD = Binary(BinaryOp.ADD)


def attention_block(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedAttentionBlock)
    hidden, qkv_w, out_w, mask, *more = x
    qkv_b, out_b = more[:2] if op.has_bias else (None, None)
    qkv = _split(_dense(hidden, qkv_w, qkv_b), op.num_heads)
    if op.has_rope:
        qkv[:2] = (_rotated(part, *more[-2:]) for part in qkv[:2])
    return _dense(_attention(qkv, mask), out_w, out_b)


def transformer_layer(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedTransformerLayer)
    held = dict(zip(op.operand_names, x, strict=True))
    none = np.zeros(out.shape[2:], x[0].dtype)
    qkv = _split(_dense(x[0], held["qkv_w"], held.get("qkv_b")), op.num_heads)
    attended = _dense(_attention(qkv, held["mask"]), held["out_w"], held.get("out_b"))
    h = apply(LayerNorm(-1, op.eps1), apply(ADD, x[0], attended), held["ln1_g"], held.get("ln1_b", none))
    inner = activated(_dense(h, held["fc1_w"], held.get("fc1_b")), op.activation)
    total = apply(ADD, h, _dense(inner, held["fc2_w"], held.get("fc2_b")))
    return apply(LayerNorm(-1, op.eps2), total, held["ln2_g"], held.get("ln2_b", none))


def _dense(x: Array, weights: Array, bias: Array | None) -> Array:
    product = apply(MatMul(), x, weights)
    return product if bias is None else apply(ADD, product, bias)


def _split(qkv: Array, heads: int) -> list[Array]:
    """[B, S, 3 H D] -> q, k, v [B, H, S, D]."""
    batch, length, _ = qkv.shape
    return list(qkv.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4))


def _rotated(x: Array, cos: Array, sin: Array) -> Array:
    """Each pair (x1, x2) of halves becomes (x1 cos - x2 sin, x2 cos + x1 sin)."""
    first, second = np.split(x.astype(np.float64), 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _attention(qkv: Sequence[Array], mask: Array) -> Array:
    """q, k, v [B, H, S, D] and a mask [B, S] -> [B, S, H D]."""
    q, k, v = (part.astype(np.float64) for part in qkv)
    batch, heads, length, size = q.shape
    with np.errstate(all="ignore"):  # A row of -inf alone is NaN.
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(size)
        scores = np.where(mask[:, None, None, :] < 0.5, -np.inf, scores)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = powers / powers.sum(axis=-1, keepdims=True) @ v
    joined: Array = result.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
    return joined.astype(qkv[0].dtype)


FUNCTIONS: dict[type[Op], OpFunction] = {
    FusedAttentionBlock: attention_block,
    FusedTransformerLayer: transformer_layer,
}
