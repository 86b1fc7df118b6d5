"""Convolution on Armv7-M: 4 positions at a time, two in a multiplication (firmware/kernels/rlx_gemm_v7m.h)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants.fields_v7m import Fields, fields, turns
from rlx_edge.cgen.variants.packing import int32, stream
from rlx_edge.cgen.variants.proofs import Weighted, limit_accumulators, offsets, weighted
from rlx_edge.cgen.variants.raster import raster_order, tiles
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

ACCUMULATOR_BITS = 30
"""The requantization doubles an accumulator (rlx_v7m.h)."""

KERNEL = Kernel(
    "rlx_conv_v7m_s8",
    "rlx_conv_v7m_t",
    ("stream",),
    (
        *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
        *("stride_h", "stride_w", "pad_top", "pad_left", "x_zp", "out_zp", "low", "high"),
        *("group", "pointwise"),
    ),
    stack_bytes=896,
    scratch=True,
    order=raster_order,
)


def lower(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.dilation != (1, 1):
        return "dilation"
    found = proved(graph, node)
    if isinstance(found, str):
        return found
    _, in_h, in_w, in_c = x.type.shape
    _, out_h, out_w, out_c = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    params = {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c),
        **dict(k_h=op.kernel_size[0], k_w=op.kernel_size[1], stride_h=op.stride[0], stride_w=op.stride[1]),
        **dict(pad_top=top, pad_left=left, x_zp=op.x_zp, out_zp=op.out_zp),
        **bounds(op.clamp),
    }
    views = zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    packed = Packed(found)
    return tuple(packed.call(params, source, target, out_h) for source, target in views)


def proved(graph: Graph, node: Node) -> Weighted | str:
    """The node's numbers, or why rlx_v7m.h's conditions do not hold."""
    found = weighted(graph, node)
    if isinstance(found, str):
        return found
    refused = limit_accumulators(found, ACCUMULATOR_BITS)
    if refused is not None:
        return refused
    k = offsets(found)
    return k if isinstance(k, str) else found


def scales(w: Weighted) -> Array:
    """int32 [C_out, 2]: the negated multiplier and e, the right shift less one (rlx_v7m.h)."""
    return int32(np.stack([-w.multipliers, w.shifts - 1], axis=1))


class Packed:
    """A layer's stream, and the calls that use it."""

    def __init__(self, w: Weighted) -> None:
        self.fields = fields(w.rows)
        self.stream = Constant("stream", packed_stream(w, self.fields))
        self.proof = f"{w.text}; {self.fields.text}, {self.fields.corrected} corrections"

    def call(self, params: Mapping[str, int], source: View, target: View, rows: int) -> Call:
        """params: all of rlx_conv_v7m_t but `group` and `pointwise`."""
        ones = all(params[name] == 1 for name in ("k_h", "k_w", "stride_h", "stride_w"))
        pointwise = ones and params["in_w"] == params["out_w"] and params["pad_top"] == params["pad_left"] == 0
        full = {**params, "group": self.fields.group, "pointwise": int(pointwise)}
        steps, line = self.fields.steps, params["k_w"] * params["in_c"]
        return Call(
            *(KERNEL, full, (source,), target, rows, {"stream": self.stream}),
            scratch=8 * steps + 5 * line,
            work=partial(work, full, self.fields),
            proof=self.proof,
        )


def packed_stream(w: Weighted, f: Fields) -> Array:
    """Per channel: the negated bias, weights, scales, corrections."""
    tail = scales(w)
    pieces = []
    for channel, corrections in enumerate(f.corrections):
        tail[channel, 1] |= len(corrections) << 8
        pieces += [
            int32(-w.bias[channel : channel + 1]),
            f.weights[channel],
            tail[channel],
            int32(c.part << 16 | 8 * c.step for c in corrections),
        ]
    return stream(pieces)


def work(params: Mapping[str, int], f: Fields, rows: int) -> dict[str, int]:
    """tiles, and in all of them: channels, blocks of 4 steps, turns of the loop, corrections, kernel rows, taps."""
    count, channels = tiles(rows, params["out_w"]), len(f.weights)
    return {
        "tiles": count,
        "channels": count * channels,
        f"blocks_{f.group}": count * channels * f.steps // 4,
        "turns": count * channels * turns(f),
        "corrections": count * f.corrected,
        "kernel_rows": count * params["k_h"],
        "taps": count * params["k_h"] * params["k_w"] * params["in_c"],
        "cut_taps": cut_taps(params, rows),
    }


def cut_taps(p: Mapping[str, int], rows: int) -> int:
    """Taps of kernel rows that the left or right border cuts: they are copied with zero points around them."""
    first = np.arange(p["out_w"]) * p["stride_w"] - p["pad_left"]
    cut = int(((first < 0) | (first + p["k_w"] > p["in_w"])).sum())
    y = np.arange(rows)[:, None] * p["stride_h"] - p["pad_top"] + np.arange(p["k_h"])
    return cut * int(((y >= 0) & (y < p["in_h"])).sum()) * p["k_w"] * p["in_c"]


VARIANTS = (Variant("conv_v7m", Isa.V7M, QConv2d, (KERNEL,), lower),)
