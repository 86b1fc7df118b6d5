"""Which mistake would give exactly the device's tensor? Each is computed, and named only when every element agrees.

One that is tried with many numbers fits some value sooner or later: the values that differ must tell more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from math import comb, log2
from typing import Any

import numpy as np

from rlx_edge.device.causes import Cause
from rlx_edge.diagnosis.account import (
    accumulators,
    channel_patches,
    in_padding,
    is_product,
    scales,
    weights,
)
from rlx_edge.diagnosis.divergence import Divergence
from rlx_edge.ir import Array, Requant
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.reference.fixedpoint import (
    high_mul,
    rules_of,
    scale_double_rounding,
    scale_float32,
    scale_single_rounding,
    shift_right,
)
from rlx_edge.reference.run import evaluate

Scale = Callable[[Array, Array, Array], Array]
Found = Iterator[tuple[int, Cause]]
"""Mistakes that explain every element, each with how many of its kind were tried."""


def _floor(x: Array, multiplier: Array, shift: Array) -> Array:
    return np.asarray((x * multiplier) >> (31 - shift))


def _towards_zero(x: Array, multiplier: Array, shift: Array) -> Array:
    return np.asarray(np.sign(x) * (np.abs(x * multiplier) >> (31 - shift)))


def _floor_last(x: Array, multiplier: Array, shift: Array) -> Array:
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return high_mul(x << left, multiplier) >> right


def _floor_first(x: Array, multiplier: Array, shift: Array) -> Array:
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return shift_right(((x << left) * multiplier) >> 31, right)


def _half_up(x: Array, multiplier: Array, shift: Array) -> Array:
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return np.asarray((high_mul(x << left, multiplier) + ((np.int64(1) << right) >> 1)) >> right)


TELLING = 32
"""Positions that a candidate must explain before it is tried on all; those that differ come first."""

ROUNDINGS: dict[str, Scale] = {
    "round twice, as rule tflm has it": scale_double_rounding,
    "round once, as rule single has it": scale_single_rounding,
    "round in float32, as rule onnx has it": scale_float32,
    "round ties of the last shift up": _half_up,
    "drop the bits of the last shift": _floor_last,
    "drop the bits of the multiplication": _floor_first,
    "round down": _floor,
    "cut off towards zero": _towards_zero,
}


ANY = 2**32
"""More than any bias can be off."""
SURE = 5.0
"""Bits that the differing values must tell beyond those that choose a mistake: chance then fits one time in 32."""


def guess(at: Divergence) -> Cause:
    """The mistake that explains the whole tensor; "undecided" where too few values differ to be sure of it, "another
    kernel" where none does."""
    if not at.whole:
        return Cause("another kernel", "only its first rows are made, which no known mistake is compared with")
    if (at.got == at.got.flat[0]).all():
        return Cause("another kernel", f"every value is {at.got.flat[0]}, which many mistakes would give")
    product = is_product(at) and scales(at) is not None
    causes = chain.from_iterable(find(at) for find in _PRODUCT) if product else _other_rules(at)
    tried, cause = next(causes, (0, None))
    if cause is None:
        return Cause("another kernel", f"no mistake that is known here gives these values{_where(at)}")
    if told(at) - log2(tried) < SURE:
        few = f"{int(np.count_nonzero(at.got != at.want)):,} of {at.want.size:,} values differ"
        return Cause("undecided", f"{few}, too few to be sure: {cause.why} ({cause.kind})")
    return cause


def told(at: Divergence) -> float:
    """Bits that say which values differ, and by how much: what a mistake would have to hit by chance."""
    off = np.abs(at.got.astype(np.float64) - at.want)
    off = off[off > 0]
    return log2(comb(at.want.size, off.size)) + float(np.log2(2 * off).clip(0, 8).sum())


def _where(at: Divergence) -> str:
    channels = np.unique(np.nonzero(at.got != at.want)[-1])
    return f"; only channel {channels[0]} of the last axis differs" if len(channels) == 1 < at.want.shape[-1] else ""


def finish(
    at: Divergence,
    acc: Array,
    scale: Scale | None = None,
    clamp: tuple[int, int] | None = None,
    channel: int | None = None,
) -> Array:
    """Accumulators [..., C_out], or of one channel, to int64 codes: scaled, the zero point added, and bounded."""
    op, found = at.node.op, scales(at)
    assert isinstance(op, QConv2d | QMatMul) and found is not None
    multipliers, shifts = found if channel is None else (found[0][channel], found[1][channel])
    rule = {Requant.SINGLE: scale_single_rounding, Requant.ONNX: scale_float32}.get(op.requant, scale_double_rounding)
    low, high = clamp or op.clamp or (-128, 127)
    codes: Array = np.clip((scale or rule)(acc, multipliers, shifts) + op.out_zp, low, high)
    return codes


def _rounding(at: Divergence) -> Found:
    acc = accumulators(at)
    for text, scale in ROUNDINGS.items():
        if np.array_equal(finish(at, acc, scale), at.got):
            yield len(ROUNDINGS), Cause("different rounding", f"every value is what it is when products {text}")


def _padding(at: Divergence) -> Found:
    op = at.node.op
    if not isinstance(op, QConv2d) or not any(pad_sides(op.padding)):
        return
    acc = accumulators(at)
    padded = in_padding(at).astype(np.float64)  # [N, H, W, taps]
    per_unit = np.matmul(padded, weights(at).sum(axis=2).T.astype(np.float64)).astype(np.int64)
    for fill in sorted(range(-128, 128), key=abs):
        if fill != op.x_zp and np.array_equal(finish(at, acc + (fill - op.x_zp) * per_unit), at.got):
            yield 255, Cause("padding", f"every value is what it is when padding holds {fill} instead of {op.x_zp}")


def _zero_points(at: Divergence) -> Found:
    op, acc = at.node.op, accumulators(at)
    assert isinstance(op, QConv2d | QMatMul)
    per_unit = weights(at).sum(axis=(1, 2))
    wide, (low, high) = finish(at, acc, clamp=(-(2**40), 2**40)) - op.out_zp, op.clamp or (-128, 127)
    for zero in range(-128, 128):
        text = f"every value is what it is when the zero point of the {{}} is {zero} instead of {{}}"
        if zero != op.out_zp and np.array_equal(np.clip(wide + zero, low, high), at.got):
            yield 512, Cause("zero point", text.format("output", op.out_zp))
        if zero != op.x_zp and np.array_equal(finish(at, acc - (zero - op.x_zp) * per_unit), at.got):
            yield 512, Cause("zero point", text.format("input", op.x_zp))


def _saturation(at: Divergence) -> Found:
    op, acc = at.node.op, accumulators(at)
    assert isinstance(op, QConv2d | QMatMul)
    low, high = op.clamp or (-128, 127)
    wide = finish(at, acc, clamp=(-(2**40), 2**40))
    if np.array_equal(wide.astype(np.int8), at.got):
        yield 4, Cause("saturation", f"every value is what it is when codes beyond {low} to {high} wrap around")
    least, most = int(at.got.min()), int(at.got.max())
    for bounds in ((-128, 127), (-127, 127), (least, high), (low, most), (least, most)):
        if bounds != (low, high) and np.array_equal(np.clip(wide, *bounds), at.got):
            text = (
                f"every value is what it is when codes are bounded to {bounds[0]} to {bounds[1]}, not {low} to {high}"
            )
            yield 256 * (256 if bounds == (least, most) else 1), Cause("saturation", text)


def _overflow(at: Divergence) -> Found:
    acc = accumulators(at)
    narrow = {
        "wrap around in 16 bits": acc.astype(np.int16).astype(np.int64),
        "stop at the bounds of 16 bits": np.clip(acc, -(2**15), 2**15 - 1),
        "wrap around in 24 bits": ((acc + 2**23) & (2**24 - 1)) - 2**23,
    }
    for text, sums in narrow.items():
        if np.array_equal(finish(at, sums), at.got):
            yield len(narrow), Cause("overflow", f"every value is what it is when accumulators {text}")


def _weights(at: Divergence) -> Found:
    """One weight or bias that is another: looked for where a single output channel differs."""
    op, outputs = at.node.op, at.want.shape[-1]
    assert isinstance(op, QConv2d | QMatMul)
    channels = np.unique(np.nonzero(at.got != at.want)[-1])
    if len(channels) != 1:
        return
    channel = int(channels[0])
    acc = accumulators(at)[..., channel].reshape(-1)
    got = at.got[..., channel].reshape(-1)
    # Codes, not less their zero point: that is folded into the bias, which stays as it was. [positions, taps * C_in]
    x = channel_patches(at, channel).reshape(len(acc), -1) + op.x_zp
    stored = weights(at)[channel].reshape(-1) + op.w_zp
    telling = np.argsort(got == at.want[..., channel].reshape(-1), kind="stable")[:TELLING]
    why = []
    for k in range(len(stored)):
        others = np.arange(-128, 128) - stored[k]
        some = finish(at, acc[telling] + others[:, None] * x[telling, k], channel=channel)
        for delta in others[(some == got[telling]).all(axis=1)]:
            if delta and np.array_equal(finish(at, acc + delta * x[:, k], channel=channel), got):
                why.append(f"weight {k} of output channel {channel} is {stored[k] + delta}, not {stored[k]}")
    least, most = _bias_off(at, acc, got, channel)
    # A single channel may as well have another zero point; one that is constant tells of no number.
    if -ANY < least <= most < ANY and outputs > 1:
        why.append(f"the bias of output channel {channel} is {least:+,} to {most:+,} off")
    if why:
        text = f"every value is what it is when {', or '.join(why[:2])}{', and so on' if len(why) > 2 else ''}"
        yield 255 * len(stored) * outputs, Cause("different weights", text)


def _bias_off(at: Divergence, acc: Array, got: Array, channel: int) -> tuple[int, int]:
    """The least and the most that can be added to all accumulators of a channel to give its codes; least > most when
    nothing does. By bisection, as codes only grow with accumulators."""

    def first_above(codes: Array) -> Array:
        low, high = np.full(acc.shape, -ANY - 1), np.full(acc.shape, ANY + 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            above = finish(at, acc + middle, channel=channel) > codes
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return high

    codes = got.astype(np.int64)
    return int(first_above(codes - 1).max()), int(first_above(codes).min()) - 1


def _other_rules(at: Divergence) -> Found:
    """Ops of other kinds, whose rules are in the reference."""
    op = at.node.op
    own = getattr(op, "requant", None)
    rules = rules_of(type(op)) if own is not None else ()
    for rule in rules:
        changes: dict[str, Any] = {"requant": rule} | ({"frozen": None} if hasattr(op, "frozen") else {})
        other = replace(at.node, op=replace(op, **changes))
        if rule is not own and np.array_equal(evaluate(at.graph, other, at.operands), at.got):
            yield len(rules), Cause("different rounding", f"every value is what it is under the rule {rule.value}")


_PRODUCT = (_rounding, _padding, _zero_points, _saturation, _overflow, _weights)
