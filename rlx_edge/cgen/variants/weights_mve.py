"""Weights of 8, 4 and 2 bits in MVE's kernels; joined in bytes for matrix products (rlx_weights_mve.h)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.variants.proofs import Weighted, limit_accumulators, limit_shifts, limit_weights
from rlx_edge.ir import Array

BYTES = 16
"""Of a vector: a block of a window."""
SUFFIXES = {8: "", 4: "_w4", 2: "_w2"}
"""Of the names of variants and kernels, by bits of a weight."""
ACCUMULATOR_BITS = {4: 26, 2: 24}
"""Sums with joined weights reach 17 and 85 times an accumulator: below 2 to these, they fit in int32."""


def by_bits(kernel: Kernel) -> Mapping[int, Kernel]:
    """The kernel for bytes, and those that are the same for weights of fewer bits."""
    return {bits: replace(kernel, name=kernel.name.replace("_s8", f"{end}_s8")) for bits, end in SUFFIXES.items()}


def limit_product(w: Weighted, bits: int, low: int) -> str | None:
    """Why the kernels' sums or shifts would not be right; low: the lowest code of the output.

    -8 and -2 do not join with other weights: 16 * -8 - 1 is no int8. Of a shift of 0 only the kernels for 4 bits know,
    but others are wrong for negative results only, which a bound at the zero point hides.
    """
    if bits < 8:
        largest = (1 << (bits - 1)) - 1
        refused = limit_weights(w, -largest, largest) or limit_accumulators(w, ACCUMULATOR_BITS[bits])
        if refused is not None:
            return refused
    return limit_shifts(w, 0 if bits == 4 or low == w.out_zp else 1, 31)


def proof(w: Weighted, bits: int) -> str:
    """For the comment in the generated C, of what `limit_product` takes."""
    return w.text if bits == 8 else f"{w.text}, {8 // bits} channels' weights joined fit in int8"


def blocks(rows: Array, bits: int) -> Array:
    """A group's weights, int8 [channels, taps], as int8 [taps / 16, channels * bits / 8, 16]: neighboring channels are
    joined to w0 + 2^bits * w1 + ..., as many as share a byte."""
    factors = 1 << (bits * np.arange(8 // bits))
    sharing = rows.reshape(-1, len(factors), rows.shape[1]).astype(np.int64)
    joined = np.einsum("ckt,k->ct", sharing, factors)
    assert (joined == joined.astype(np.int8)).all(), "joined weights do not fit in int8"
    return np.asarray(joined.astype(np.int8).reshape(len(joined), -1, BYTES).transpose(1, 0, 2))
