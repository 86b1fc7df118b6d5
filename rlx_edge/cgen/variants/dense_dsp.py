"""Matrix products on Cortex-M4, M7 and M33: 1 row x 4 channels a tile (firmware/kernels/rlx_dense_dsp.h)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import rowwise_order
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

CHANNELS, GROUP, UNROLL = 4, 4, 8
ACCUMULATOR_BITS = 30

DENSE = Kernel(
    "rlx_dense_dsp_s8",
    "rlx_dense_dsp_t",
    ("stream",),
    ("in_c", "out_c", "low", "high"),
    stack_bytes=320,
    order=rowwise_order,
)
JOINED = replace(DENSE, name="rlx_dense_dsp_joined_s8")
ONE_SCALE = replace(
    DENSE,
    name="rlx_dense_dsp_one_scale_s8",
    struct="rlx_dense_dsp_one_scale_t",
    fields=("in_c", "out_c", "low", "high", "multiplier", "offset", "shift"),
)


def pack(w: Weighted, offsets: Array, *, joined: bool) -> Array:
    """The stream: by 4 channels biases, weights of 4 values of k at a time, and requantization."""
    quads = packing.channel_groups(len(w.rows), CHANNELS)
    pieces = []
    for quad, moves in zip(quads, packing.steps_to_next(quads), strict=True):
        scales = [w.multipliers[quad], offsets[quad], w.shifts[quad] + 256 * moves]
        pieces += [*(_joined(w, quad) if joined else _plain(w, quad)), packing.int32(np.stack(scales, axis=1))]
    return packing.stream(pieces)


def pack_one_scale(w: Weighted) -> Array:
    """Joined, without requantization."""
    return packing.stream(
        [piece for quad in packing.ending_groups(len(w.rows), CHANNELS) for piece in _joined(w, quad)]
    )


def _plain(w: Weighted, quad: Array) -> tuple[Array, Array]:
    """Biases and weights [group, channel, k] of 4 channels."""
    rows = packing.padded(w.rows[quad], GROUP)
    return packing.int32(w.bias[quad]), rows.reshape(CHANNELS, -1, GROUP).swapaxes(0, 1)


def _joined(w: Weighted, quad: Array) -> tuple[Array, Array]:
    """Biases and weights [group, pair, k odd or even, 2] of the pairs (c, d), (e, f) of 4 channels."""
    c, d = quad.reshape(2, 2).T
    bias = np.stack([w.bias[c], packing.joined(w.bias[c], w.bias[d])], axis=1)
    rows = packing.padded(w.rows, GROUP).astype(np.int64)
    words = packing.joined(rows[c], rows[d]).reshape(2, -1, 2, 2)  # [pair, group, k half, k odd or even]
    return packing.wrapped(bias), packing.int16(words.transpose(1, 0, 3, 2))


def dense(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The call of rlx_dense_dsp_s8, or why it cannot compute the node."""
    found = _offsets(graph, node)
    if isinstance(found, str):
        return found
    w, offsets = found
    refused = proofs.limit_accumulators(w, ACCUMULATOR_BITS)
    return refused or call(graph, node, DENSE, {}, pack(w, offsets, joined=False), work, w.text)


def dense_joined(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The call of rlx_dense_dsp_joined_s8, or why it cannot compute the node."""
    found = _offsets(graph, node)
    if isinstance(found, str):
        return found
    w, offsets = found
    refused = proofs.limit_joined(w, packing.channel_groups(len(w.rows), CHANNELS).reshape(-1, 2))
    return refused or call(graph, node, JOINED, {}, pack(w, offsets, joined=True), work, w.text + proofs.JOINED_TEXT)


def dense_one_scale(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The call of rlx_dense_dsp_one_scale_s8, or why it cannot compute the node."""
    found = _offsets(graph, node)
    if isinstance(found, str):
        return found
    w, offsets = found
    scale = only_scale(w, offsets, CHANNELS)
    if isinstance(scale, str):
        return scale
    refused = proofs.limit_joined(w, packing.ending_groups(len(w.rows), CHANNELS).reshape(-1, 2))
    return refused or call(graph, node, ONE_SCALE, scale, pack_one_scale(w), work, w.text + proofs.JOINED_TEXT)


def only_scale(w: Weighted, offsets: Array, channels: int) -> dict[str, int] | str:
    """The parameters of a scale that at least so many channels have in common, or why there is none."""
    scales = {*zip(w.multipliers.tolist(), offsets.tolist(), w.shifts.tolist(), strict=True)}
    if len(scales) > 1 or len(w.rows) < channels:
        return f"{len(w.rows)} channels with {len(scales)} scales; at least {channels} channels with one are needed"
    multiplier, offset, shift = scales.pop()
    return dict(multiplier=multiplier, offset=offset, shift=shift)


def _offsets(graph: Graph, node: Node) -> tuple[Weighted, Array] | str:
    """The layer's numbers and K per channel, when what rlx_dsp.h needs of shifts holds."""
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    offsets = proofs.offsets(w)
    return offsets if isinstance(offsets, str) else (w, offsets)


def call(
    graph: Graph,
    node: Node,
    kernel: Kernel,
    scale: dict[str, int],
    stream: Array,
    count: Callable[[int, int, int], dict[str, int]],
    proof: str,
) -> tuple[Call, ...]:
    """The call of a kernel. count: its work, of rows, inputs and outputs."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    (rows, in_c), out_c = x.type.shape, node.type.shape[1]
    params = dict(in_c=in_c, out_c=out_c, **bounds(op.clamp)) | scale
    clamped = rows * out_c * int(params["low"] > -128 or params["high"] < 127)
    counts = proportional(count(rows, in_c, out_c) | {"clamped": clamped}, rows)
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    constants = {"stream": Constant("stream", stream)}
    return (Call(kernel, params, (source,), target, rows, constants, work=counts, proof=proof),)


def work(rows: int, in_c: int, out_c: int) -> dict[str, int]:
    """Of 4 channels: how often they are computed, passes of the loop, groups of 4 values."""
    groups, quads = -(-in_c // GROUP), rows * -(-out_c // CHANNELS)
    return {"rows": rows, "quads": quads, "passes": quads * -(-(groups - 1) // UNROLL), "groups": quads * groups}


VARIANTS = (
    Variant("dense_dsp_one_scale", Isa.DSP, QMatMul, (ONE_SCALE,), dense_one_scale),
    Variant("dense_dsp_joined", Isa.DSP, QMatMul, (JOINED,), dense_joined),
    Variant("dense_dsp", Isa.DSP, QMatMul, (DENSE,), dense),
)
