"""Convolutions on Cortex-M0 and M0+: four positions a tile, two a multiply (firmware/kernels/rlx_conv_v6m_s8.c)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import window_order
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs, v6m
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

POSITIONS, TAPS = 4, 4
BYTE_ORDER = [1, 2, 3, 0]
"""Which tap of a block each byte of a word holds: the first tap is the top byte, which one shift extracts."""
RUN_BYTES = 32
"""Of scratch, that a block's activations take."""

CONV = Kernel(
    "rlx_conv_v6m_s8",
    "rlx_conv_v6m_t",
    ("stream",),
    (
        *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
        *("stride_h", "stride_w", "pad_top", "pad_left", "blocks", "x_zp", "low", "high"),
    ),
    stack_bytes=704,
    scratch=True,
    order=partial(window_order, pixels=1),
)
"""Its tiles of four positions read earlier and write later than a pixel at a time does, which the order says."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """words: int8 [C_out, blocks, 4], in the order of memory; long: bool [C_out, blocks], whether it is one group."""

    words: Array
    long: Array


def split(rows: Array) -> Blocks | str:
    """Weights [C_out, taps] by four, or why two products of some channel are too large for a group."""
    taps = packing.padded(rows, TAPS).reshape(len(rows), -1, TAPS)
    pairs = v6m.groups_fit(taps.reshape(*taps.shape[:2], 2, 2))
    if not pairs.all():
        return "two neighboring weights of -128 leave 16 bits"
    return Blocks(taps[..., BYTE_ORDER], v6m.groups_fit(taps))


def pack(w: Weighted, blocks: Blocks, scales: Rescales) -> Array:
    """The stream that the kernel's comment describes."""
    groups = np.where(blocks.long, 1, 2).sum(axis=1)
    pieces = []
    for c, first in enumerate(v6m.first_values(scales.bias, groups)):
        pieces += [packing.int32(first), *_runs(blocks.words[c], blocks.long[c]), packing.int32(scales.words[c])]
    return packing.stream(pieces)


def _runs(words: Array, long: Array) -> list[Array]:
    """Runs of long blocks, with a short block between each two."""
    shorts = np.flatnonzero(~long)
    pieces: list[Array] = []
    for start, end in zip([0, *(shorts + 1)], [*shorts, len(long)], strict=True):
        pieces += [packing.int32([RUN_BYTES * (end - start)]), words[start : end + 1]]
    return pieces


def conv(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_conv_v6m_s8, or why it cannot compute the node."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    if op.groups != 1 or op.dilation != (1, 1):
        return "it has groups or dilation"
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    channels = v6m.channels(w)
    w = channels.weighted
    blocks, scales = split(w.rows), v6m.rescales(channels)
    if isinstance(blocks, str):
        return blocks
    if isinstance(scales, str):
        return scales
    params = _params(op, x.type.shape, node.type.shape, blocks.long.shape[1])
    constants = {"stream": Constant("stream", pack(w, blocks, scales))}
    line = params["k_w"] * params["in_c"]
    scratch = RUN_BYTES * params["blocks"] + (1 + POSITIONS) * line
    short = int((~blocks.long).sum())
    proof = f"{w.text}; {short} of {blocks.long.size} groups of four weights are halved to fit in 16 bits"
    work = partial(_work, params, blocks, scales)
    return tuple(
        Call(CONV, params, (source,), target, node.type.shape[1], constants, scratch, work, proof)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def _params(op: QConv2d, x: tuple[int, ...], y: tuple[int, ...], blocks: int) -> dict[str, int]:
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    top, left, _, _ = pad_sides(op.padding)
    return {
        **dict(in_h=x[1], in_w=x[2], in_c=x[3], out_w=y[2], out_c=y[3], k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left),
        **dict(blocks=blocks, x_zp=op.x_zp, **bounds(op.clamp)),
    }


def _work(p: dict[str, int], blocks: Blocks, scales: Rescales, rows: int) -> dict[str, int]:
    """Counts of the kernel's loops: tiles of 4 positions, of them those with windows found one by one, their kernel
    rows, taps of all tiles, channels of all tiles, of them those with the long rescale, long and short blocks."""
    positions = rows * p["out_w"]
    tiles = -(-positions // POSITIONS)
    columns = np.minimum(np.arange(tiles * POSITIONS), positions - 1).reshape(-1, POSITIONS) % p["out_w"]
    left = columns * p["stride_w"] - p["pad_left"]
    inside = (left >= 0) & (left + p["k_w"] <= p["in_w"])
    interior = inside.all(axis=1) & (np.diff(columns, axis=1) == 1).all(axis=1)
    bordering = int((~inside[~interior]).sum())
    return {
        "tiles": tiles,
        "rows": tiles * p["k_h"],
        "scattered_rows": int((~interior).sum()) * p["k_h"],
        "border_taps": bordering * p["k_h"] * p["k_w"] * p["in_c"],
        "taps": tiles * p["k_h"] * p["k_w"] * p["in_c"],
        "channels": tiles * p["out_c"],
        "long_rescales": tiles * scales.long,
        "long": tiles * int(blocks.long.sum()),
        "short": tiles * int((~blocks.long).sum()),
        "clamped": positions * p["out_c"] * int(p["low"] > -128 or p["high"] < 127),
    }


VARIANTS = (Variant("conv_v6m", Isa.V6M, QConv2d, (CONV,), conv),)
