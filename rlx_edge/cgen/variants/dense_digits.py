"""Matrix products on Cortex-M4, M7 and M33 with weights of 4 and 2 bits (firmware/kernels/rlx_dense_digits_dsp.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import dense_dsp, digits_dsp, packing, proofs
from rlx_edge.cgen.variants.digits_dsp import Digits
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

PLACES, FEW, VALUES, UNROLL, STACK = 8, 4, 4, 4, 448

KERNELS = {
    name: replace(like, name=f"rlx_{name}_s8", stack_bytes=STACK)
    for like, name in (
        (dense_dsp.ONE_SCALE, "dense_dsp_one_scale_w4"),
        (dense_dsp.ONE_SCALE, "dense_dsp_one_scale_w2"),
        (dense_dsp.DENSE, "dense_dsp_w4"),
        (dense_dsp.DENSE, "dense_dsp_w2"),
    )
}
"""By the variant's name."""


@dataclass(frozen=True, eq=False)
class Group:
    """Channels that are computed together.

    places: int [8] or [4], a channel each; -1 where there is none: its digits are 0
    digits: of a channel's weights; 4 places have those of 4 bits
    """

    places: Array
    digits: Digits

    @property
    def numbers(self) -> Array:
        """Places [n, 4 or 8] whose weights are the digits of an int16."""
        return self.places.reshape(-1, 16 // self.digits.bits)

    @property
    def added(self) -> Array:
        """What makes weights digits without a sign, [n, 4 or 8]: but of the first place of a number."""
        later = np.arange(self.numbers.shape[1]) > 0
        return np.where(self.numbers >= 0, self.digits.offset * later, 0)

    def refused(self, w: Weighted) -> str | None:
        """Why channels cannot be told from each other."""
        powers = np.tile(self.digits.powers, len(self.places) // digits_dsp.CHANNELS)
        there = self.places >= 0
        return digits_dsp.limit_sums(w, self.places[there], powers[there], self.added.ravel()[there])

    def start(self, w: Weighted) -> Array:
        """What the sums begin with, int32 [places]."""
        found = []
        for number in self.numbers:
            sums = np.cumsum(np.where(number >= 0, w.bias[number], 0) * self._powers)
            found += [sums[:-FEW] >> 8, sums[-FEW:]]  # with 2 bits the first 4 are in a byte of their own
        return packing.wrapped(np.concatenate(found))

    def weights(self, rows: Array) -> Array:
        """int16 [groups of 4 values, numbers, 4] of rows [channels, values up to a multiple of 4]."""
        there = (self.numbers >= 0)[:, :, None]
        digits = np.where(there, rows[self.numbers].astype(np.int64) + self.added[:, :, None], 0)
        numbers = np.tensordot(digits, self._powers, axes=(1, 0))  # [numbers, values]
        return packing.int16(numbers.reshape(len(numbers), -1, VALUES)[:, :, [0, 2, 1, 3]].swapaxes(0, 1))

    @property
    def _powers(self) -> Array:
        count = self.numbers.shape[1]
        return np.int64(1) << self.digits.bits * np.arange(count - 1, -1, -1, dtype=np.int64)

    def scales(self, w: Weighted) -> tuple[Array, Array]:
        """Multipliers of channels, shifts of 8 places."""
        channels = self.places[self.places >= 0]
        shifts = np.pad(w.shifts[channels], (PLACES - len(channels), 0))
        return packing.int32(w.multipliers[channels]), packing.int8(shifts)


def groups(out_c: int, digits: Digits) -> Iterator[Group]:
    """The first one has the channels that are no whole 8, in its last places."""
    first = (out_c - 1) % PLACES + 1
    few = first <= FEW
    empty = np.full((FEW if few else PLACES) - first, -1)
    yield Group(np.append(empty, np.arange(first)), Digits(4) if few else digits)
    for channel in range(first, out_c, PLACES):
        yield Group(np.arange(channel, channel + PLACES), digits)


def pack(w: Weighted, digits: Digits, *, one_scale: bool) -> Array:
    """The stream."""
    rows = packing.padded(w.rows, VALUES)
    pieces = [] if one_scale else [digits_dsp.zero_point(w)]
    for group in groups(len(rows), digits):
        pieces += [group.start(w), group.weights(rows)]
        pieces += [] if one_scale else group.scales(w)
    return packing.stream(pieces)


def lower(graph: Graph, node: Node, kernel: Kernel, digits: Digits) -> tuple[Call, ...] | str:
    """The call of a kernel, or why it cannot compute the node."""
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    offsets = proofs.offsets_of_doubled(w)
    if isinstance(offsets, str):
        return offsets
    one_scale = kernel.struct == dense_dsp.ONE_SCALE.struct
    scale = dense_dsp.only_scale(w, offsets, 1) if one_scale else {}
    if isinstance(scale, str):
        return scale
    reasons = (digits.refused_weights(w), *(group.refused(w) for group in groups(len(w.rows), digits)))
    refused = next((reason for reason in reasons if reason is not None), None)
    if refused is not None:
        return refused
    stream = pack(w, digits, one_scale=one_scale)
    return dense_dsp.call(graph, node, kernel, scale, stream, work, w.text)


def work(rows: int, in_c: int, out_c: int) -> dict[str, int]:
    """How often 8 places are computed, passes of their loop and groups of 4 values; groups of 4 values of 4 places, of
    2, and of x where its sum is found before."""
    first, values = (out_c - 1) % PLACES + 1, -(-in_c // VALUES)
    octets = rows * ((out_c - first) // PLACES + (first > FEW))
    return {
        "rows": rows,
        "outputs": rows * out_c,
        "octets": octets,
        "passes": octets * ((values - 1) // UNROLL),
        "groups": octets * values,
        "fours": rows * values * (2 < first <= FEW),
        "twos": rows * values * (first <= 2),
        "sums": rows * values * (first > FEW),
    }


VARIANTS = tuple(
    Variant(name, Isa.DSP, QMatMul, (kernel,), partial(lower, kernel=kernel, digits=Digits(int(name[-1]))))
    for name, kernel in KERNELS.items()
)
