"""Matrix products on Armv7-M: one row with 8 channels at a time (firmware/kernels/rlx_dense_v7m_s8.c), or, where there
are rows enough to share each weight, as a 1x1 convolution."""

from __future__ import annotations

from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import rowwise_order
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import conv_v7m
from rlx_edge.cgen.variants.packing import int32, padded, stream
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

CHANNELS = 8
"""Of a group."""

CONV_ROWS = 3
"""From so many rows on, 4 rows at a time take fewer instructions, even when some of the 4 do not exist."""

KERNEL = Kernel(
    "rlx_dense_v7m_s8",
    "rlx_dense_v7m_t",
    ("stream",),
    ("in_c", "out_c", "out_zp", "low", "high"),
    order=rowwise_order,
)


def lower(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    found = conv_v7m.proved(graph, node)
    if isinstance(found, str):
        return found
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    rows, in_c = x.type.shape
    if rows >= CONV_ROWS:
        return (_as_convolution(op, found, source, target, rows),)
    out_c = len(found.bias)
    params = {**dict(in_c=in_c, out_c=out_c, out_zp=op.out_zp), **bounds(op.clamp)}
    call = Call(
        *(KERNEL, params, (source,), target, rows, {"stream": Constant("stream", packed_stream(found))}),
        work=partial(work, in_c, out_c),
        proof=found.text,
    )
    return (call,)


def _as_convolution(op: QMatMul, w: Weighted, source: View, target: View, rows: int) -> Call:
    """Rows of the matrix as the rows of an image one pixel wide."""
    params = {
        **dict(in_h=rows, in_w=1, in_c=w.rows.shape[1], out_w=1, out_c=len(w.bias), k_h=1, k_w=1),
        **dict(stride_h=1, stride_w=1, pad_top=0, pad_left=0, x_zp=op.x_zp, out_zp=op.out_zp),
        **bounds(op.clamp),
    }
    return conv_v7m.Packed(w).call(params, source, target, rows)


def packed_stream(w: Weighted) -> Array:
    """Groups of 8 channels, then the rest one by one: negated biases, weights [in_c][n], scales."""
    tail, pieces, first = conv_v7m.scales(w), [], 0
    while first < len(w.bias):
        n = CHANNELS if first + CHANNELS <= len(w.bias) else 1
        group = slice(first, first + n)
        weights = np.ascontiguousarray(w.rows[group].T).ravel()
        pieces += [int32(-w.bias[group]), padded(weights, 4), tail[group].ravel()]
        first += n
    return stream(pieces)


def work(in_c: int, out_c: int, rows: int) -> dict[str, int]:
    """rows; groups of 8 and their inputs; single channels and their inputs."""
    groups, singles = divmod(out_c, CHANNELS)
    return {
        "rows": rows,
        "groups": rows * groups,
        "group_inputs": rows * groups * in_c,
        "singles": rows * singles,
        "single_inputs": rows * singles * in_c,
    }


VARIANTS = (Variant("dense_v7m", Isa.V7M, QMatMul, (KERNEL, conv_v7m.KERNEL), lower),)
