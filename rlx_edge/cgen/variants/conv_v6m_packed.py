"""Convolution with weights of 4 and 2 bits on Cortex-M0 and M0+ (firmware/kernels/rlx_octets_v6m.h)."""

from __future__ import annotations

from functools import partial

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import octets, proofs
from rlx_edge.cgen.variants.large_scales import rescaled_v6m
from rlx_edge.cgen.variants.octets import Lowered, Octets
from rlx_edge.cgen.variants.packing import int32
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d

KERNELS = {bits: octets.conv_kernel(f"rlx_conv_v6m_w{bits}") for bits in (4, 2)}
INIT_WORDS = 4
"""Of scratch, for each run."""


def lower(bits: int, kernel: Kernel, graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = octets.refused(node) or proofs.weighted(graph, node)
    if isinstance(found, str):
        return found
    channels, scales = rescaled_v6m(found)
    refused = proofs.limit_weights(channels.weighted, *octets.LIMITS[bits])
    if refused is not None or isinstance(scales, str):
        return refused or str(scales)
    packed = octets.octets(channels.weighted.rows, bits)
    proof = f"{channels.weighted.text}; {packed.text}"
    made, inits, counts = pieces(packed, scales), INIT_WORDS * packed.runs, partial(work, packed, scales)
    return octets.calls(graph, node, Lowered(kernel, made, packed.run, inits, counts, proof))


def pieces(packed: Octets, scales: Rescales) -> list[Array]:
    """Of the stream, per channel: the bias, weights, the rescale."""
    words = packed.words(1 << packed.bits - 1)
    return [
        piece
        for channel in zip(int32(scales.bias[:, None]), words, int32(scales.words), strict=True)
        for piece in channel
    ]


def work(packed: Octets, scales: Rescales, tiles: int) -> dict[str, int]:
    """In all tiles: those of `packed`, channels with the long rescale; taps, words and runs of which differences are
    made."""
    return {
        **packed.counts(tiles),
        "long_rescales": tiles * scales.long,
        "tile_taps": tiles * packed.taps,
        "tile_words": tiles * -(-packed.taps * packed.bits // 32),
        "tile_runs": tiles * packed.runs,
    }


VARIANTS = tuple(
    Variant(f"conv_v6m_w{bits}", Isa.V6M, QConv2d, (kernel,), partial(lower, bits, kernel))
    for bits, kernel in KERNELS.items()
)
