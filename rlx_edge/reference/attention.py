"""What the kinds of ir/ops/attention.py mean: computed in float64, the result rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.attention import BY_POSITION, Attention, AxialRope2d, KvAppend, Rope
from rlx_edge.ir.ops.attributes import MaskKind, RopeStyle
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def attention(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Attention)
    axis = op.head_axis(types)
    q, k, v = (_heads_first(part.astype(np.float64), axis) for part in x[:3])
    scale = op.head_dim**-0.5 if op.score_scale is None else op.score_scale
    with np.errstate(all="ignore"):  # A row of -inf alone is NaN.
        scores = q @ k.transpose(0, 1, 3, 2) * scale
        if op.attn_logit_softcap is not None:
            scores = op.attn_logit_softcap * np.tanh(scores / op.attn_logit_softcap)
        scores = _masked(op, scores, x[3:])
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = powers / powers.sum(axis=-1, keepdims=True) @ v
    if axis == 2:
        result = result.transpose(0, 2, 1, 3)
    return np.asarray(result.reshape(out.shape)).astype(out.dtype.numpy)


def _heads_first(x: Array, axis: int | None) -> Array:
    """[B, H, S, D] of any of the three layouts."""
    if axis is None:
        return x[:, None]
    return x.transpose(0, 2, 1, 3) if axis == 2 else x


def _masked(op: Attention, scores: Array, mask: Sequence[Array]) -> Array:
    if op.mask_kind is MaskKind.BIAS:
        return np.asarray(scores + mask[0])
    if op.mask_kind is MaskKind.CUSTOM:
        return np.where(mask[0][:, None, None, :] < 0.5, -np.inf, scores)
    if op.mask_kind not in BY_POSITION:
        return scores
    queries, keys = scores.shape[2:]
    behind = np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)
    farthest = op.window if op.mask_kind is MaskKind.SLIDING_WINDOW else keys
    return np.where((behind >= 0) & (behind <= farthest), scores, -np.inf)


def rope(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Rope)
    heads = x[0].reshape(*out.shape[:2], -1, op.head_dim)
    cos, sin = (table[..., None, :] for table in x[1:])
    return _rotated(heads, cos, sin, op.style).reshape(out.shape)


def axial_rope_2d(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, AxialRope2d)
    places = np.arange(out.shape[1]) % (op.end_x * op.end_y)
    steps = op.theta ** (-4.0 * np.arange(op.head_dim // 4) / op.head_dim)
    column, row = np.outer(places % op.end_x, steps), np.outer(places // op.end_x, steps)
    angles = np.concatenate([column, row], axis=1)[:, None, :]
    heads = x[0].reshape(*out.shape[:2], op.num_heads, op.head_dim)
    return _rotated(heads, np.cos(angles), np.sin(angles), RopeStyle.GPT_J).reshape(out.shape)


def _rotated(x: Array, cos: Array, sin: Array, style: RopeStyle) -> Array:
    """x [B, S, H, D] with as many pairs of each head rotated as there are cosines."""
    result, pairs = x.copy(), cos.shape[-1]
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if style is RopeStyle.GPT_J:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first].astype(np.float64), x[..., second].astype(np.float64)
    result[..., first] = a * cos - b * sin
    result[..., second] = b * cos + a * sin
    return result


def kv_append(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, KvAppend)
    before = x[0].take(np.arange(op.pos), axis=op.axis)
    return np.concatenate([before, x[1]], axis=op.axis)


FUNCTIONS: dict[type[Op], OpFunction] = {
    Attention: attention,
    Rope: rope,
    AxialRope2d: axial_rope_2d,
    KvAppend: kv_append,
}
