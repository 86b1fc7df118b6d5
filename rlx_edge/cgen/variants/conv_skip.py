"""Convolution with weights -1, 0 and 1 on Armv6-M and Armv7-M: those that are not 0 are added or subtracted, by lists
(firmware/kernels/rlx_octets_skip.h)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call, Work
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import octets, proofs
from rlx_edge.cgen.variants.large_scales import large, numbers_v7m, rescaled_v6m
from rlx_edge.cgen.variants.octets import Lowered
from rlx_edge.cgen.variants.packing import int32
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.skip import Skips, list_words, skips
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d

V6M, V7M = octets.conv_kernel("rlx_conv_v6m_skip_w2"), octets.conv_kernel("rlx_conv_v7m_skip_w2")
TAP_CODE = {Isa.V6M: 16, Isa.V7M: 20}
"""Bytes of code that a tap takes."""


def lower_v7m(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = octets.refused(node) or numbers_v7m(graph, node)
    if isinstance(found, str):
        return found
    w, scales = found
    lists = ternary(w)
    if isinstance(lists, str):
        return lists
    tail = np.flip(scales, axis=1)  # e first: a small number ends the runs
    made = pieces(int32(-w.bias), lists, tail, TAP_CODE[Isa.V7M])
    return octets.calls(graph, node, _lowered(V7M, w, made, lists, partial(work, lists, large(scales))))


def lower_v6m(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = octets.refused(node) or proofs.weighted(graph, node)
    if isinstance(found, str):
        return found
    channels, scales = rescaled_v6m(found)
    w = channels.weighted
    lists = ternary(w)
    if isinstance(scales, str) or isinstance(lists, str):
        return lists if isinstance(lists, str) else str(scales)
    tail = int32(np.roll(scales.words, 1, axis=1))  # the shift first
    made = pieces(int32(scales.bias), lists, tail, TAP_CODE[Isa.V6M])
    return octets.calls(graph, node, _lowered(V6M, w, made, lists, partial(work, lists, scales.long)))


def _lowered(kernel: Kernel, w: Weighted, made: Iterable[Array], lists: Skips, counts: Work) -> Lowered:
    turns = -(-w.rows.shape[1] // octets.TURN)  # all: the lists have runs of their own
    return Lowered(kernel, made, turns, 0, counts, f"{w.text}; {lists.text}")


def ternary(w: Weighted) -> Skips | str:
    """The lists; a weight of -2 is no sum of taps."""
    return proofs.limit_weights(w, -1, 1) or skips(w.rows)


def pieces(bias: Array, lists: Skips, tail: Array, code: int) -> Iterable[Array]:
    """Of the stream, per channel: the bias, lists, the rescale."""
    for first, runs, scale in zip(bias[:, None], lists.channels, tail, strict=True):
        yield first
        yield from (list_words(taps, code) for run in runs for taps in run)
        yield np.ascontiguousarray(scale)


def work(lists: Skips, long: int, tiles: int) -> dict[str, int]:
    """In all tiles: channels with the long rescale, taps of lists, their words, lists, flushes."""
    return {"long_rescales": tiles * long, **{name: tiles * count for name, count in lists.counts().items()}}


VARIANTS = (
    Variant("conv_v6m_skip_w2", Isa.V6M, QConv2d, (V6M,), lower_v6m),
    Variant("conv_v7m_skip_w2", Isa.V7M, QConv2d, (V7M,), lower_v7m),
)
