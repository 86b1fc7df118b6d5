"""Matrix products with weights of 4 and 2 bits on Armv6-M and Armv7-M (firmware/kernels/rlx_dense_packed.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import rowwise_order
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import octets, proofs
from rlx_edge.cgen.variants.large_scales import large, numbers_v7m, rescaled_v6m
from rlx_edge.cgen.variants.packing import int32, stream, wrapped
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

GROUP, CHANNELS, TURN = 128, 8, 8
FIELD = 1 << 15
MOST_INPUTS = {Isa.V6M: 128, Isa.V7M: 1 << 14}
"""Of a chunk: Armv6-M has its inputs in scratch."""
LEAST = {Isa.V6M: 4, Isa.V7M: 8}
"""Channels that are computed together at the end."""
LIMITS = octets.LIMITS

KERNELS = {
    (isa, bits): Kernel(
        f"rlx_dense_{isa.value}_w{bits}",
        "rlx_dense_packed_t",
        ("stream",),
        ("in_c", "out_c", "out_zp", "low", "high", "chunk", "first"),
        stack_bytes=512,
        scratch=True,
        order=rowwise_order,
    )
    for isa in MOST_INPUTS
    for bits in LIMITS
}


@dataclass(frozen=True, eq=False)
class Layer:
    """What a core makes of a layer. weights: int8 [C_out up to a multiple of LEAST, inputs up to a multiple of 8],
    zeros around those that are there; begins: int64 [C_out], the bias with the core's sign; tail: int32 [C_out, n],
    rescales; chunk: inputs."""

    weights: Array
    begins: Array
    tail: Array
    bits: int
    chunk: int

    @property
    def chunks(self) -> int:
        return int(-(-self.weights.shape[1] // self.chunk))

    def pieces(self) -> Iterator[Array]:
        """Of the stream."""
        for first in range(0, len(self.begins), GROUP):
            group = slice(first, first + GROUP)
            begins = np.pad(self.begins[group], (0, len(self.weights[group]) - len(self.begins[group])))
            begins[::2] -= FIELD * self.chunks
            yield wrapped(begins)
            yield from self._words(self.weights[group])
            yield np.ascontiguousarray(self.tail[group])

    def _words(self, weights: Array) -> Iterator[Array]:
        """For each chunk, each 8 channels or the last 4: int32 words."""
        digits = weights.astype(np.int64) + (1 << self.bits - 1)
        places = 16 // self.bits
        ends = np.arange(weights.shape[1], 0, -self.chunk)[::-1]
        for part in np.split(digits, ends[:-1], axis=1):
            for first in range(0, len(part), CHANNELS):
                even, odd = part[first : first + CHANNELS].reshape(-1, 2, part.shape[1]).swapaxes(0, 1)
                pairs = (even + (odd << 16)).T.reshape(-1, places)  # in the order of inputs
                yield wrapped((pairs << self.bits * np.arange(places)).sum(axis=1))


def layer(w: Weighted, begins: Array, tail: Array, bits: int, isa: Isa) -> Layer:
    rows = np.pad(w.rows, [(0, -len(w.rows) % LEAST[isa]), (-w.rows.shape[1] % TURN, 0)])
    sizes = range(min(rows.shape[1], MOST_INPUTS[isa]), 0, -TURN)
    chunk = next(size for size in sizes if octets.reach(rows, size) < FIELD)
    return Layer(rows, begins, tail, bits, chunk)


def lower(isa: Isa, bits: int, graph: Graph, node: Node) -> tuple[Call, ...] | str:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    numbers = _numbers(isa, graph, node)
    if isinstance(numbers, str):
        return numbers
    found, begins, tail, long = numbers
    refused = proofs.limit_weights(found, *LIMITS[bits])
    if refused is not None:
        return refused
    made = layer(found, begins, tail, bits, isa)
    rows, in_c = x.type.shape
    out_c = len(begins)
    params = {**dict(in_c=in_c, out_c=out_c, out_zp=op.out_zp), **bounds(op.clamp)}
    params |= dict(chunk=made.chunk, first=(in_c - 1) % made.chunk + 1)
    sums = 4 * min(GROUP, len(made.weights))
    scratch = sums + (4 * min(made.chunk, made.weights.shape[1]) if isa is Isa.V6M else 0)
    proof = f"{found.text}; chunks of {made.chunk} products reach {octets.reach(made.weights, made.chunk)} in 16 bits"
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    call = Call(
        *(KERNELS[isa, bits], params, (source,), target, rows, {"stream": Constant("stream", stream(made.pieces()))}),
        *(scratch, proportional(work(isa, made, in_c, rows, long), rows), proof),
    )
    return (call,)


def _numbers(isa: Isa, graph: Graph, node: Node) -> tuple[Weighted, Array, Array, int] | str:
    """The layer's numbers, what its sums begin with, rescales, and how many of them are long."""
    if isa is Isa.V7M:
        found = numbers_v7m(graph, node)
        return found if isinstance(found, str) else (found[0], -found[0].bias, found[1], large(found[1]))
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    channels, scales = rescaled_v6m(w)
    if isinstance(scales, str):
        return scales
    return channels.weighted, scales.bias, int32(scales.words), scales.long


def work(isa: Isa, made: Layer, in_c: int, rows: int, long: int) -> dict[str, int]:
    """Rows; groups and their inputs and chunks; 8 channels' chunks, turns and inputs; chunks and turns of 4 channels
    that are left; outputs, long rescales."""
    out_c, groups = len(made.begins), -(-len(made.begins) // GROUP)
    eights, half = len(made.weights) // CHANNELS, len(made.weights) % CHANNELS // 4
    halves = {
        "halves": rows * half * made.chunks,
        "half_turns": rows * half * made.weights.shape[1] // TURN,
    }
    return (halves if LEAST[isa] < CHANNELS else {}) | {
        "rows": rows,
        "groups": rows * groups,
        "prepared": rows * groups * in_c,
        "chunks": rows * groups * made.chunks,
        "eights": rows * eights * made.chunks,
        "turns": rows * eights * made.weights.shape[1] // TURN,
        "inputs": rows * eights * in_c,
        "outputs": rows * out_c,
        "long_rescales": rows * long,
    }


VARIANTS = tuple(
    Variant(f"dense_{isa.value}_w{bits}", isa, QMatMul, (kernel,), partial(lower, isa, bits))
    for (isa, bits), kernel in KERNELS.items()
)
