"""What fast kernels must know of a node before they may compute it, proved from its actual weights.

`weighted` gathers a convolution's or matrix product's numbers per output channel: weights, folded bias, a bound of the
accumulator, multiplier and right shift. A variant adds the conditions of its own kernel (`limit_shifts`,
`limit_accumulators`, `offsets`) and prints `Weighted.text`. All functions are pure; the ones that can refuse give one
line that says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.lower_windows import folded_bias
from rlx_edge.ir import Array, FrozenScale, Graph, Node, Requant
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.reference.fixedpoint import scale_double_rounding

DOUBLE_ROUNDING = (Requant.TFLM, Requant.TFLITE_REF)
"""The rules of rlx_requant.h: high multiply, half up, then a right shift with ties away from zero."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """Per output channel c, all int64 but `rows`:

    rows: int8 [C_out, taps], a window's weights in the order of memory, [k_h][k_w][in_c / groups], times 2^left shift
    bias: [C_out], likewise, with the input's zero point folded in: the accumulator starts here and takes x as it is
    bound: [C_out], the largest magnitude of every partial sum, whatever x is and in whatever order
    multipliers: [C_out], 0 or 2^30 to 2^31 - 1
    shifts: [C_out], to the right: at least 0
    """

    rows: Array
    bias: Array
    bound: Array
    multipliers: Array
    shifts: Array
    out_zp: int

    @property
    def text(self) -> str:
        """For the comment in the generated C."""
        largest, low, high = int(self.bound.max()), int(self.shifts.min()), int(self.shifts.max())
        return f"|accumulator| <= {largest} < 2^{largest.bit_length()}, right shifts {low} to {high}"


def weighted(graph: Graph, node: Node) -> Weighted | str:
    """The numbers of a QConv2d or QMatMul whose weights have no zero point. Shifts to the left, which weights of few
    bits bring, are multiplied into weights and bias, if those then still are int8."""
    op = node.op
    assert isinstance(op, QConv2d | QMatMul)
    w, bias = (graph.constant(operand) for operand in graph.operands(node)[1:])
    if op.requant not in DOUBLE_ROUNDING:
        return f"the rounding rule is {op.requant.value}"
    if w is None or bias is None or not isinstance(op.frozen, FrozenScale):
        return "weights, bias or scales are not constants"
    if op.w_zp != 0:
        return f"the weights have a zero point ({op.w_zp})"
    rows = np.ascontiguousarray(w.T) if isinstance(op, QMatMul) else w.reshape(w.shape[0], -1)
    folded = folded_bias(rows, bias, op)
    shape = (rows.shape[0],)
    shifts = np.broadcast_to(-np.array(op.frozen.shifts, np.int64), shape)
    left = np.maximum(-shifts, 0)
    shifted = rows.astype(np.int64) << left[:, None]
    outside = (shifted != shifted.astype(np.int8)).any(axis=1)
    if outside.any():
        return f"channel {int(outside.argmax())} shifts to the left, by {int(left[outside][0])}"
    rows, folded, shifts = shifted.astype(np.int8), folded << left, shifts + left
    multipliers = np.broadcast_to(np.array(op.frozen.multipliers, np.int64), shape)
    bound = 128 * np.abs(rows.astype(np.int64)).sum(axis=1) + np.abs(folded)
    if bound.max() >= 1 << 31:
        return f"the accumulator can reach {int(bound.max())}, which is no int32"
    found = Weighted(rows, folded, bound, multipliers, shifts, op.out_zp)
    return _constant_channels_cleared(found, op.clamp or (-128, 127))


def _constant_channels_cleared(w: Weighted, clamp: tuple[int, int]) -> Weighted:
    """Plain numbers for channels whose output is one value whatever x is: the same bits, whatever bias and shift were.

    The output never falls as the accumulator grows, so it is constant when it is the same at both ends of its range.
    Its distance d to the zero point comes from no weights, a bias of 4 d, the multiplier 2^30 and a shift by 1:
    (4 d * 2^30 + 2^30) >> 31 = 2 d, and half of that is d without a tie.
    """
    weights = w.rows.astype(np.int64)
    positive, negative = np.maximum(weights, 0).sum(axis=1), np.maximum(-weights, 0).sum(axis=1)
    ends = np.stack([w.bias - 128 * positive - 127 * negative, w.bias + 127 * positive + 128 * negative])
    low, high = np.clip(scale_double_rounding(ends, w.multipliers, -w.shifts) + w.out_zp, *clamp)
    constant = low == high
    bias = np.where(constant, 4 * (low - w.out_zp), w.bias)
    return Weighted(
        rows=np.where(constant[:, None], 0, w.rows).astype(np.int8),
        bias=bias,
        bound=np.where(constant, np.abs(bias), w.bound),
        multipliers=np.where(constant, 1 << 30, w.multipliers),
        shifts=np.where(constant, 1, w.shifts),
        out_zp=w.out_zp,
    )


def _largest_rescaled(w: Weighted) -> Array:
    """The largest |h| with h = (acc * m + 2^30) >> 31: half up, so a negative acc gives no larger one."""
    return np.asarray((w.bound * w.multipliers + (1 << 30)) >> 31)  # both factors are below 2^31


def limit_shifts(w: Weighted, low: int, high: int) -> str | None:
    """Why not all right shifts lie in [low, high]."""
    outside = (w.shifts < low) | (w.shifts > high)
    if not outside.any():
        return None
    channel = int(outside.argmax())
    return f"channel {channel} shifts to the right by {int(w.shifts[channel])}, not {low} to {high}"


def limit_weights(w: Weighted, low: int, high: int) -> str | None:
    """Why not all weights lie in [low, high]: what a layer was declared to hold does not matter."""
    outside = (w.rows < low) | (w.rows > high)
    return f"it has the weight {int(w.rows[outside][0])}, not {low} to {high}" if outside.any() else None


def limit_accumulators(w: Weighted, bits: int) -> str | None:
    """Why not all accumulators, and every partial sum, stay below 2^bits in magnitude."""
    largest = int(w.bound.max())
    return None if largest < 1 << bits else f"the accumulator can reach {largest}, 2^{bits} or more"


def offsets(w: Weighted) -> Array | str:
    """K = (out_zp << s) + 2^(s - 1) per channel, int64, for kernels that add it before one arithmetic right shift by s.

    Proved: shifts are 1 to 31, and K, K - 1 and K + h - 1, K + h for every rescaled accumulator h fit in int32.
    (For |accumulator| < 2^30 that holds for all shifts to 23; larger ones depend on out_zp and the bound.)
    """
    refused = limit_shifts(w, 1, 31)
    if refused is not None:
        return refused
    k = (np.int64(w.out_zp) << w.shifts) + (np.int64(1) << (w.shifts - 1))
    largest = _largest_rescaled(w)
    outside = (k + largest > (1 << 31) - 1) | (k - largest - 1 < -(1 << 31))
    if outside.any():
        channel = int(outside.argmax())
        return f"channel {channel}: zero point << {int(w.shifts[channel])} does not fit in int32"
    return k


def offsets_of_doubled(w: Weighted) -> Array | str:
    """K = (2 out_zp + 1) << s per channel, int64, for kernels that add it to twice the rescaled accumulator and shift
    right by s + 1, also where s is 0 (rlx_digits_dsp.h). Proved: shifts are 0 to 30, and the sums fit in int32."""
    refused = limit_shifts(w, 0, 30)
    if refused is not None:
        return refused
    k = np.int64(2 * w.out_zp + 1) << w.shifts
    outside = np.abs(k) + 2 * _largest_rescaled(w) + 1 >= 1 << 31
    if outside.any():
        channel = int(outside.argmax())
        return f"channel {channel}: zero point << {int(w.shifts[channel])} does not fit in int32"
    return np.asarray(k)


JOINED_BITS = 23
JOINED_TEXT = ", two channels' weights joined fit in int16"


def limit_joined(w: Weighted, pairs: Array) -> str | None:
    """Why not 256 * d's + c's weight is an int16 for all pairs (c, d) of channels, int [n, 2], or |accumulator| is
    2^23 or more: then 256 * d's + c's accumulator would not tell d's (rlx_gemm_dsp.h)."""
    refused = limit_accumulators(w, JOINED_BITS)
    c, d = w.rows[pairs].swapaxes(0, 1)
    outside = ((d == -128) & (c < 0)).any(axis=1)
    if refused is None and outside.any():
        first, second = pairs[int(outside.argmax())].tolist()
        return f"where channel {second} has the weight -128, channel {first} has a negative one"
    return refused
