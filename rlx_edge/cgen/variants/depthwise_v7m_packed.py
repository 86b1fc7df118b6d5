"""Depthwise convolution with weights of 4 and 2 bits on Armv7-M (firmware/kernels/rlx_depthwise_v7m.h)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import depthwise_v7m, octets
from rlx_edge.cgen.variants.depthwise_v7m import BLOCK, Lowered
from rlx_edge.cgen.variants.large_scales import LARGE_FLAG, large
from rlx_edge.cgen.variants.packing import int32
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.subbyte import pack

KERNELS = {
    bits: replace(depthwise_v7m.KERNEL, name=f"rlx_depthwise_v7m_w{bits}", stack_bytes=1024) for bits in octets.LIMITS
}


def lower(bits: int, kernel: Kernel, graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = depthwise_v7m.refused_shape(graph, node) or octets.numbers_of_bits(bits, graph, node)
    if isinstance(found, str):
        return found
    w, scales = found
    made, tables = pieces(bits, w, scales), 4 * BLOCK * (w.rows.shape[1] + 3)
    lowered = Lowered(kernel, made, tables, partial(work, large(scales)), w.text)
    return depthwise_v7m.calls(graph, node, lowered)


def pieces(bits: int, w: Weighted, scales: Array) -> list[Array]:
    """Of the stream, per channel: the negated bias; words of weights, whose last byte is e; the negated multiplier."""
    made = []
    for bias, row, (minus_m, e) in zip(w.bias, w.rows, scales.tolist(), strict=True):
        words = np.zeros(4 * words_of(len(row), bits), np.uint8)
        codes = pack(row, bits)
        words[: len(codes)] = codes
        words[-1] = e % LARGE_FLAG + e // LARGE_FLAG * LARGE_FLAG // 2
        made += [int32([-bias]), words.view(np.int8), int32([minus_m])]
    return made


def words_of(taps: int, bits: int) -> int:
    """Of a channel's weights and e."""
    return -(-(taps * bits + 8) // 32)


def work(large: int, p: Mapping[str, int], rows: int) -> dict[str, int]:
    """Those of int8 weights; channels and weights that are unpacked; channels of tiles with large scales."""
    found = depthwise_v7m.work(p, rows)
    blocks, taps = -(-p["in_c"] // BLOCK), p["k_h"] * p["k_w"]
    unpacked = found["bands"] // blocks * p["in_c"]
    long_rescales = found["tiles"] // blocks * large
    return {**found, "unpacked": unpacked, "unpacked_weights": unpacked * taps, "long_rescales": long_rescales}


VARIANTS = tuple(
    Variant(f"depthwise_v7m_w{bits}", Isa.V7M, QConv2d, (kernel,), partial(lower, bits, kernel))
    for bits, kernel in KERNELS.items()
)
