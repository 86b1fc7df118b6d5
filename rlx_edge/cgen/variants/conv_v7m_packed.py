"""Convolution with weights of 4 and 2 bits on Armv7-M (firmware/kernels/rlx_octets_v7m.h)."""

from __future__ import annotations

from functools import partial

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import octets
from rlx_edge.cgen.variants.large_scales import large
from rlx_edge.cgen.variants.octets import Lowered, Octets
from rlx_edge.cgen.variants.packing import int32
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d

KERNELS = {bits: octets.conv_kernel(f"rlx_conv_v7m_w{bits}") for bits in (4, 2)}


def lower(bits: int, kernel: Kernel, graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = octets.refused(node) or octets.numbers_of_bits(bits, graph, node)
    if isinstance(found, str):
        return found
    w, scales = found
    packed = octets.octets(w.rows, bits)
    made, counts = pieces(w, packed, scales), partial(work, packed, large(scales))
    return octets.calls(graph, node, Lowered(kernel, made, packed.run, 0, counts, f"{w.text}; {packed.text}"))


def pieces(w: Weighted, packed: Octets, scales: Array) -> list[Array]:
    """Of the stream, per channel: the negated bias, weights, scales."""
    channels = zip(int32(-w.bias[:, None]), packed.words(), scales, strict=True)
    return [piece for channel in channels for piece in channel]


def work(packed: Octets, large: int, tiles: int) -> dict[str, int]:
    """In all tiles: those of `packed`, channels with large scales."""
    return {**packed.counts(tiles), "long_rescales": tiles * large}


VARIANTS = tuple(
    Variant(f"conv_v7m_w{bits}", Isa.V7M, QConv2d, (kernel,), partial(lower, bits, kernel))
    for bits, kernel in KERNELS.items()
)
