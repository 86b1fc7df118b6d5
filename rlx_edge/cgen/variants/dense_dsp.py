"""Matrix products on Cortex-M4, M7 and M33: 1 row x 4 channels a tile (firmware/kernels/rlx_dense_dsp.h)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import rowwise_order
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

CHANNELS, GROUP = 4, 4
UNROLL, UNROLL_ONE_SCALE = 8, 16
ACCUMULATOR_BITS = 30

DENSE = Kernel(
    "rlx_dense_dsp_s8",
    "rlx_dense_dsp_t",
    ("stream",),
    ("in_c", "out_c", "low", "high"),
    stack_bytes=320,
    scratch=True,
    order=partial(rowwise_order, reads_again=False),
)


ONE_SCALE = replace(
    DENSE,
    name="rlx_dense_one_scale_dsp_s8",
    struct="rlx_dense_one_scale_dsp_t",
    fields=("in_c", "out_c", "low", "high", "multiplier", "offset", "shift"),
)


def pack(w: Weighted, offsets: Array) -> Array:
    """The stream: by 4 channels biases, weights (4 values of k of each channel in turn), requantization."""
    rows = packing.padded(w.rows, GROUP)
    quads = packing.channel_groups(len(rows), CHANNELS)
    pieces = []
    for quad, moves in zip(quads, packing.steps_to_next(quads), strict=True):
        scales = [w.multipliers[quad], offsets[quad], w.shifts[quad] + 256 * moves]
        pieces += [*_quad(w, rows, quad), packing.int32(np.stack(scales, axis=1))]
    return packing.stream(pieces)


def pack_one_scale(w: Weighted) -> Array:
    """The same without requantization. The last 4 channels are those that end the row."""
    rows = packing.padded(w.rows, GROUP)
    quads = [np.arange(CHANNELS) + min(c, len(rows) - CHANNELS) for c in range(0, len(rows), CHANNELS)]
    return packing.stream([piece for quad in quads for piece in _quad(w, rows, quad)])


def _quad(w: Weighted, rows: Array, quad: Array) -> tuple[Array, Array]:
    """Biases and weights [group, channel, k] of 4 channels."""
    return packing.int32(w.bias[quad]), rows[quad].reshape(CHANNELS, -1, GROUP).swapaxes(0, 1)


def dense(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The call of rlx_dense_dsp_s8, or why it cannot compute the node."""
    proved = _proved(graph, node)
    if isinstance(proved, str):
        return proved
    w, offsets = proved
    return _call(graph, node, DENSE, w, {}, pack(w, offsets), UNROLL)


def dense_one_scale(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The call of rlx_dense_one_scale_dsp_s8, or why it cannot compute the node."""
    proved = _proved(graph, node)
    if isinstance(proved, str):
        return proved
    w, offsets = proved
    scales = {*zip(w.multipliers.tolist(), offsets.tolist(), w.shifts.tolist(), strict=True)}
    if len(scales) > 1 or len(w.rows) < CHANNELS:
        return f"{len(w.rows)} channels with {len(scales)} scales; at least {CHANNELS} channels with one are needed"
    multiplier, offset, shift = scales.pop()
    return _call(
        *(graph, node, ONE_SCALE, w, dict(multiplier=multiplier, offset=offset, shift=shift)),
        *(pack_one_scale(w), UNROLL_ONE_SCALE),
    )


def _proved(graph: Graph, node: Node) -> tuple[Weighted, Array] | str:
    """The layer's numbers and K per channel, when what rlx_dsp.h needs holds."""
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    offsets = proofs.offsets(w)
    return proofs.limit_accumulators(w, ACCUMULATOR_BITS) or (offsets if isinstance(offsets, str) else (w, offsets))


def _call(
    graph: Graph, node: Node, kernel: Kernel, w: Weighted, scale: dict[str, int], stream: Array, unroll: int
) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    (rows, in_c), out_c = x.type.shape, node.type.shape[1]
    groups, quads = -(-in_c // GROUP), -(-out_c // CHANNELS)
    params = dict(in_c=in_c, out_c=out_c, **bounds(op.clamp)) | scale
    work = {
        "rows": rows,
        "quads": rows * quads,
        "passes": rows * quads * -(-groups // unroll),
        "groups": rows * quads * groups,
        "widened": rows * groups,
        "clamped": rows * out_c * int(params["low"] > -128 or params["high"] < 127),
    }
    constants = {"stream": Constant("stream", stream)}
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    return (Call(kernel, params, (source,), target, rows, constants, 2 * GROUP * groups, work, w.text),)


VARIANTS = (
    Variant("dense_one_scale_dsp", Isa.DSP, QMatMul, (ONE_SCALE,), dense_one_scale),
    Variant("dense_dsp", Isa.DSP, QMatMul, (DENSE,), dense),
)
