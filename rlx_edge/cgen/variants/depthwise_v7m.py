"""Depthwise convolution on Armv7-M: 6 neighbors at a time (firmware/kernels/rlx_depthwise_v7m.h)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import OUTPUT, Accesses, Window, band_order, events, joined
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants.conv_v7m import proved, scales
from rlx_edge.cgen.variants.packing import int32, padded, stream
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

POSITIONS, BLOCK = 6, 4
"""Neighbors of a tile, channels that are copied to scratch at a time."""

SCRATCH = 1536
"""Bytes of scratch that bands keep to, where one row of one tile does."""


def order(call: Call) -> Accesses:
    """Band by band, in each block by block of channels: the block's part of x is read, then its outputs are written.

    One band in one go, and it says so pixel by pixel: then y may lie where x lies, if their sizes are the same.
    """
    p, w = call.params, Window.of(call)
    if call.output.ring:  # the kernel cuts bands where the ring ends
        return band_order(call, rows=p["band_h"], reads_again=True)
    parts = []
    whole = call.rows - call.first_row <= p["band_h"] and p["band_w"] >= p["out_w"]
    for y in range(call.first_row, call.rows, p["band_h"]):
        rows = (y, min(call.rows, y + p["band_h"]))
        for x in range(0, p["out_w"], p["band_w"]):
            columns = (x, min(p["out_w"], x + p["band_w"]))
            for c in range(0, p["in_c"], BLOCK):
                channels = (c, min(p["in_c"], c + BLOCK))
                parts.append(_by_pixel(w, rows, columns, channels) if whole else _by_row(w, rows, columns))
    return joined(parts)


def _by_pixel(w: Window, rows: tuple[int, int], columns: tuple[int, int], channels: tuple[int, int]) -> Accesses:
    """Reads of all pixels of x that a band needs, then writes of all of y's, for channels [first, end)."""
    left, right = _input_columns(w, columns)
    read = np.arange(*w.input_rows(*rows))[:, None] * w.x_pitch + np.arange(left, right) * w.in_c
    write = np.arange(*rows)[:, None] * w.y_pitch + np.arange(*columns) * w.out_c
    operands = np.repeat(np.array([0, OUTPUT], np.int8), [read.size, write.size])
    pixels = np.concatenate([read.ravel(), write.ravel()]).astype(np.int64)
    return Accesses(operands, pixels + channels[0], pixels + channels[1])


def _by_row(w: Window, rows: tuple[int, int], columns: tuple[int, int]) -> Accesses:
    """The same in whole rows of a band and all channels, which covers more."""
    left, right = _input_columns(w, columns)
    read = [(0, y * w.x_pitch + left * w.in_c, y * w.x_pitch + right * w.in_c) for y in range(*w.input_rows(*rows))]
    left, right = columns
    write = [(OUTPUT, y * w.y_pitch + left * w.out_c, y * w.y_pitch + right * w.out_c) for y in range(*rows)]
    return events([*read, *write])


def _input_columns(w: Window, columns: tuple[int, int]) -> tuple[int, int]:
    left = max(0, columns[0] * w.stride_w - w.pad_left)
    return left, max(left, min(w.in_w, (columns[1] - 1) * w.stride_w - w.pad_left + w.k_w))


KERNEL = Kernel(
    "rlx_depthwise_v7m_s8",
    "rlx_depthwise_v7m_t",
    ("stream",),
    (
        *("in_h", "in_w", "in_c", "out_w", "k_h", "k_w"),
        *("stride_h", "stride_w", "pad_top", "pad_left", "x_zp", "out_zp", "low", "high", "band_h", "band_w"),
    ),
    stack_bytes=896,
    scratch=True,
    order=order,
)


@dataclass(frozen=True, eq=False)
class Lowered:
    """What a kernel of these brings: pieces of its stream, scratch beside the band, how it counts bands, a proof.

    work: of the call's parameters and so many rows.
    """

    kernel: Kernel
    pieces: list[Array]
    scratch: int
    work: Callable[[Mapping[str, int], int], dict[str, int]]
    proof: str


def lower(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = refused_shape(graph, node) or proved(graph, node)
    if isinstance(found, str):
        return found
    return calls(graph, node, Lowered(KERNEL, pieces(found), 0, work, found.text))


def refused_shape(graph: Graph, node: Node) -> str | None:
    """Why these kernels cannot compute the node, whatever its numbers are."""
    op, in_c, out_c = node.op, graph.nodes[node.inputs[0]].type.shape[3], node.type.shape[3]
    assert isinstance(op, QConv2d)
    if op.groups != in_c or out_c != in_c or in_c == 1:
        return f"{op.groups} groups of {in_c} channels to {out_c}, not one channel each"
    return "dilation" if op.dilation != (1, 1) else None


def calls(graph: Graph, node: Node, lowered: Lowered) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    _, in_h, in_w, in_c = x.type.shape
    _, out_h, out_w, out_c = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    params = {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c),
        **dict(k_h=op.kernel_size[0], k_w=op.kernel_size[1], stride_h=op.stride[0], stride_w=op.stride[1]),
        **dict(pad_top=top, pad_left=left, x_zp=op.x_zp, out_zp=op.out_zp),
        **bounds(op.clamp),
    }
    params |= bands(params, out_h)
    packed = Constant("stream", stream(lowered.pieces))
    return tuple(
        Call(
            *(lowered.kernel, params, (source,), target, out_h, {"stream": packed}),
            scratch=lowered.scratch + band_bytes(params, params["band_h"], params["band_w"]),
            work=partial(lowered.work, params),
            proof=lowered.proof,
        )
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def band_bytes(p: Mapping[str, int], rows: int, columns: int) -> int:
    """Scratch for a band of output."""
    width = (max(columns, POSITIONS) - 1) * p["stride_w"] + p["k_w"]
    return ((rows - 1) * p["stride_h"] + p["k_h"]) * width * BLOCK


def bands(p: Mapping[str, int], out_h: int) -> dict[str, int]:
    """Whole rows, as many as scratch holds; or one row of as many columns as it holds, in multiples of a tile."""
    columns = p["out_w"]
    while columns > POSITIONS and band_bytes(p, 1, columns) > SCRATCH:
        columns = (columns - 1) // POSITIONS * POSITIONS
    rows = 1
    while rows < out_h and band_bytes(p, rows + 1, columns) <= SCRATCH:
        rows += 1
    # As many bands, but equally high: the last one is no thinner than it must be, and the others need less scratch.
    return {"band_h": -(-out_h // -(-out_h // rows)), "band_w": columns}


def pieces(w: Weighted) -> list[Array]:
    """Of the stream, per channel: the negated bias, weights and e, the negated multiplier."""
    made = []
    for bias, row, (minus_m, e) in zip(w.bias, w.rows, scales(w), strict=True):
        made += [int32([-bias]), padded(np.append(row, np.int8(e)), 4), int32([minus_m])]
    return made


def work(p: Mapping[str, int], out_h: int) -> dict[str, int]:
    """bands: of all channels; rows of x copied (a block of channels each) and their pixels; runs: calls of the
    assembly; tiles, and channels of them; outputs."""
    blocks, odd = divmod(p["in_c"], BLOCK)
    blocks += odd > 0
    count = dict.fromkeys(("bands", "copied_rows", "copied", "runs", "tiles"), 0)
    for y in range(0, out_h, p["band_h"]):
        rows = min(p["band_h"], out_h - y)
        for x in range(0, p["out_w"], p["band_w"]):
            columns = min(p["band_w"], p["out_w"] - x)
            count["bands"] += blocks
            copied = (rows - 1) * p["stride_h"] + p["k_h"]
            count["copied_rows"] += blocks * copied
            count["copied"] += blocks * copied * ((columns - 1) * p["stride_w"] + p["k_w"])
            count["runs"] += blocks * -(-columns // POSITIONS)
            count["tiles"] += blocks * rows * -(-columns // POSITIONS)
    tile_channels = count["tiles"] // blocks * p["in_c"]
    kind = f"{p['k_h']}x{p['k_w']}_{p['stride_w']}"
    return {**count, f"channels_{kind}": tile_channels, "outputs": out_h * p["out_w"] * p["in_c"]}


VARIANTS = (Variant("depthwise_v7m", Isa.V7M, QConv2d, (KERNEL,), lower),)
