"""How one element of a convolution or matrix product comes about, number by number."""

from __future__ import annotations

import numpy as np

from rlx_edge.diagnosis.divergence import Divergence
from rlx_edge.ir import Array, FrozenScale
from rlx_edge.ir.ops import Layout, QConv2d, QMatMul
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.reference.integer import frozen_of
from rlx_edge.reference.windows import correlate, windows


def is_product(at: Divergence) -> bool:
    """Whether the node is one that this file knows: a matrix product, or a convolution in NHWC."""
    op = at.node.op
    return isinstance(op, QMatMul) or (isinstance(op, QConv2d) and op.layout is Layout.NHWC)


def patches(at: Divergence) -> Array:
    """int64 [..., taps, C_in]: the codes that each output position reads, less the zero point; 0 for padding."""
    op, x = at.node.op, at.operands[0].astype(np.int64)
    if isinstance(op, QConv2d):
        views = windows(x - op.x_zp, op, 0, op.dilation)
        return np.asarray(views.reshape(*views.shape[:3], -1, views.shape[5]))
    assert isinstance(op, QMatMul)
    return np.asarray((x - op.x_zp)[:, None, :])


def in_padding(at: Divergence) -> Array:
    """bool [..., taps]: which of them are padding."""
    op, x = at.node.op, at.operands[0]
    assert isinstance(op, QConv2d)
    ones = windows(np.ones((1, *x.shape[1:3], 1), np.int64), op, 0, op.dilation)
    shape = (x.shape[0], *ones.shape[1:3], ones[0, 0, 0].size)
    return np.asarray(np.broadcast_to(ones.reshape(*ones.shape[:3], -1) == 0, shape))


def weights(at: Divergence) -> Array:
    """int64 [C_out, taps, C_in / groups], less the zero point."""
    op, w = at.node.op, at.operands[1].astype(np.int64)
    if isinstance(op, QConv2d):
        return w.reshape(w.shape[0], -1, w.shape[3]) - op.w_zp
    assert isinstance(op, QMatMul)
    return w.T[:, None, :] - op.w_zp


def channel_patches(at: Divergence, channel: int) -> Array:
    """int64 [positions, taps, C_in / groups]: those of `patches` that one output channel reads."""
    found, w = patches(at), weights(at)
    groups = found.shape[-1] // w.shape[2]
    first = channel // (len(w) // groups) * w.shape[2]
    return found.reshape(-1, *found.shape[-2:])[:, :, first : first + w.shape[2]]


def accumulators(at: Divergence) -> Array:
    """int64 [..., C_out], the bias included."""
    op, bias = at.node.op, at.operands[2].astype(np.int64)
    if isinstance(op, QConv2d):
        w = at.operands[1].astype(np.int64) - op.w_zp
        x = windows(at.operands[0].astype(np.int64) - op.x_zp, op, 0, op.dilation)
        return correlate(x, w, op.groups).astype(np.int64) + bias
    x = patches(at)[:, 0, :].astype(np.float64)
    return np.asarray(np.matmul(x, weights(at)[:, 0, :].T.astype(np.float64)).astype(np.int64) + bias)


def scales(at: Divergence) -> tuple[Array, Array] | None:
    """Multipliers and shifts, int64 [C_out] each; None under a rule that has none."""
    op = at.node.op
    frozen = frozen_of(op, at.graph.operand_types(at.node), at.node.type)
    if not isinstance(frozen, FrozenScale):
        return None
    channels = at.want.shape[-1]
    multipliers, shifts = np.array(frozen.multipliers, np.int64), np.array(frozen.shifts, np.int64)
    return np.broadcast_to(multipliers, channels), np.broadcast_to(shifts, channels)


def account(at: Divergence) -> tuple[tuple[str, str], ...]:
    """What leads to the first element that differs, as pairs of name and number; shorter for other kinds of op."""
    op, place = at.node.op, at.element
    facts = [("rule", op.requant.value)] if hasattr(op, "requant") else []
    if is_product(at):
        assert isinstance(op, QConv2d | QMatMul)
        channel = place[-1]
        acc, bias = int(accumulators(at)[place]), int(at.operands[2].reshape(-1)[channel])
        facts += [("sum of products", f"{acc - bias:,}"), ("bias", f"{bias:,}"), ("accumulator", f"{acc:,}")]
        found = scales(at)
        if found is not None:
            facts += [("multiplier", f"{int(found[0][channel]):,} / 2^31"), ("shift", f"{int(found[1][channel]):+}")]
        low, high = op.clamp or (-128, 127)
        facts += [("zero points", f"x {op.x_zp}, w {op.w_zp}, y {op.out_zp}"), ("range", f"{low} to {high}")]
        if isinstance(op, QConv2d) and any(pad_sides(op.padding)):
            facts += [("taps in padding", str(int(np.count_nonzero(in_padding(at)[place[:-1]]))))]
    else:
        facts += [
            (f"operand {operand.name}", str(values[place].item()))
            for operand, values in zip(at.graph.operands(at.node), at.operands, strict=True)
            if values.shape == at.want.shape
        ]
    facts += [("reference", str(at.want[place].item()))]
    facts += [("host C", str(at.host[place].item()))] if at.host is not None else []
    flat = int(np.ravel_multi_index(place, at.want.shape))
    return (*facts, ("device", str(at.got.reshape(-1)[flat].item())))
