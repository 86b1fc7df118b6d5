"""Channels whose scale is 1/2 or more, as layers with weights of few bits have them: a right shift by 0, and often
weights and bias with a common factor, the shift to the left that `proofs.weighted` has multiplied into them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.cgen.variants import proofs, v6m
from rlx_edge.cgen.variants.conv_v7m import ACCUMULATOR_BITS
from rlx_edge.cgen.variants.packing import int32
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.ir import Array, Graph, Node

MOST_HALVED = 6
LARGE_BITS = 23
LARGE_FLAG = 256
"""In a channel's e: rlx_v7m.h's way for large scales."""


@dataclass(frozen=True, eq=False)
class Halved:
    """`weighted` with weights and bias of channels that do not shift divided by 2^times, int64 [C_out], which is 0 in
    others: the accumulator that is rescaled is 2^times times what such weights give."""

    weighted: Weighted
    times: Array


def halved(w: Weighted) -> Halved:
    """As often as all weights and the bias of a channel are even, where that is needed for nothing but the weights."""
    times = np.zeros(len(w.rows), np.int64)
    for _ in range(MOST_HALVED):
        values = np.concatenate([w.rows.astype(np.int64), w.bias[:, None]], axis=1)
        even = (w.shifts == 0) & ((values >> times[:, None]) % 2 == 0).all(axis=1) & (w.rows != 0).any(axis=1)
        times = times + even
    rows = (w.rows.astype(np.int64) >> times[:, None]).astype(np.int8)
    return Halved(replace(w, rows=rows, bias=w.bias >> times, bound=w.bound >> times), times)


def numbers_v7m(graph: Graph, node: Node) -> tuple[Weighted, Array] | str:
    """The node's numbers and int32 [C_out, 2], the negated multiplier and e of each channel; or why rlx_v7m.h's
    conditions do not hold."""
    found = proofs.weighted(graph, node)
    if isinstance(found, str):
        return found
    split = halved(found)
    w, large = split.weighted, found.shifts == 0
    small = replace(w, bound=np.where(large, 0, w.bound), shifts=np.where(large, 1, w.shifts))
    refused = proofs.limit_accumulators(small, ACCUMULATOR_BITS)
    refused = refused or proofs.limit_accumulators(replace(w, bound=np.where(large, w.bound, 0)), LARGE_BITS)
    offsets = proofs.offsets(replace(small, multipliers=np.where(large, 0, w.multipliers)))
    if refused is not None or isinstance(offsets, str):
        return refused or str(offsets)
    e = np.where(large, LARGE_FLAG + MOST_HALVED - split.times, w.shifts - 1)
    return w, int32(np.stack([-w.multipliers, e], axis=1))


def rescaled_v6m(found: Weighted) -> tuple[v6m.Channels, v6m.Rescales | str]:
    """Channels whose weights are those that a kernel is to multiply by, and how they are rescaled."""
    channels = v6m.channels(found)
    split = halved(channels.weighted)
    channels = replace(channels, weighted=split.weighted)
    return channels, v6m.rescales(channels, split.times)


def large(scales: Array) -> int:
    """How many channels have a large scale. scales: as `numbers_v7m` gives them."""
    return int((scales[:, 1] >= LARGE_FLAG).sum())
