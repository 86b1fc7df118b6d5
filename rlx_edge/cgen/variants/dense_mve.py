"""Matrix products on Cortex-M55 and M85: one row by firmware/kernels/rlx_dense_mve.h, more as a 1x1 convolution."""

from __future__ import annotations

from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, rowwise_order
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import conv_mve, packing, weights_mve
from rlx_edge.cgen.variants.proofs import Weighted, weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.cgen.variants.weights_mve import BYTES, SUFFIXES, by_bits
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

CHANNELS, UNROLLED = 8, 4
REGISTER_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
"""Channels of a group in the order of the stream."""


def dense_order(call: Call) -> Accesses:
    """A row is read again for each eight results, unless it was copied to scratch first."""
    return rowwise_order(call, reads_again=call.params["in_c"] % BYTES == 0)


DENSE = by_bits(
    Kernel(
        "rlx_dense_mve_s8",
        "rlx_dense_mve_t",
        ("stream",),
        ("in_c", "out_c", "out_zp", "low", "high", "blocks"),
        stack_bytes=576,
        scratch=True,
        order=dense_order,
    )
)


def dense(graph: Graph, node: Node, bits: int) -> tuple[Call, ...] | str:
    """The call of a matrix product, or why not."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    rows, in_c = x.type.shape
    out_c = node.type.shape[1]
    w = weighted(graph, node)
    if isinstance(w, str):
        return w
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    blocks = -(-in_c // BYTES)
    if rows == 1:
        limits = bounds(op.clamp)
        refused = weights_mve.limit_product(w, bits, limits["low"])
        if refused is not None:
            return refused
        params = dict(in_c=in_c, out_c=out_c, out_zp=op.out_zp, blocks=blocks, **limits)
        groups = -(-out_c // CHANNELS)
        work = dict(rows=1, groups=groups, blocks=groups * blocks, passes=groups * (max(0, blocks - 2) // UNROLLED))
        scratch = blocks * BYTES if in_c % BYTES else 0
        return (
            Call(
                DENSE[bits],
                params,
                (source,),
                target,
                1,
                {"stream": Constant("stream", pack(w, bits))},
                scratch,
                proportional(work, 1),
                weights_mve.proof(w, bits),
            ),
        )
    return conv_mve.pointwise(w, source, target, rows, op.x_zp, bounds(op.clamp), bits)


def pack(w: Weighted, bits: int) -> Array:
    """The stream of rlx_dense_mve.h, int32: groups of eight channels, each blocks of weights, then constants."""
    padding = -len(w.rows) % CHANNELS
    rows = packing.padded(np.pad(w.rows, [(0, padding), (0, 0)]), BYTES)
    constants = [
        np.pad(values, (0, padding), constant_values=fill)
        for values, fill in ((w.bias, 0), (w.multipliers, 0), (-w.shifts, -1))
    ]
    pieces = []
    for c in range(0, len(rows), CHANNELS):
        eight = c + np.array(REGISTER_ORDER)
        pieces.append(weights_mve.blocks(rows[eight], bits))
        pieces += [packing.int32(values[eight]) for values in constants]
    return packing.stream(pieces)


VARIANTS = tuple(
    Variant(
        f"dense_mve{end}",
        Isa.MVE,
        QMatMul,
        (DENSE[bits], conv_mve.CONV[bits], conv_mve.CONV_RELU[bits]),
        partial(dense, bits=bits),
    )
    for bits, end in SUFFIXES.items()
)
