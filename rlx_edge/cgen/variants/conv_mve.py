"""Convolutions on Cortex-M55 and M85 (firmware/kernels/rlx_conv_mve.h): two windows times four channels at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, band_order, pointwise_order, window_order
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, weights_mve
from rlx_edge.cgen.variants.proofs import Weighted, weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.cgen.variants.weights_mve import BYTES, SUFFIXES, by_bits
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

CHANNELS = 4
UNROLLED = 8
"""Blocks, after the first, that a pass through the assembly multiplies (RLX_GEMM_UNROLLED)."""
MAX_CHANNELS = 32768
"""Two outputs beside each other must be less than 65,533 bytes apart."""
NARROW = 15
"""Rows of an odd number of outputs, up to this, are computed two at once."""


def conv_order(call: Call) -> Accesses:
    """Rows are copied before the output rows that need them are written; a pair of 1x1 pixels is read again."""
    p, x, y = call.params, call.inputs[0], call.output
    if p["columns"] != 0:
        return band_order(call, rows=p["rows_at_once"])
    strided = (p["stride_h"], p["stride_w"]) != (1, 1)
    if strided or x.ring or y.ring or x.pitch != p["in_w"] * p["in_c"] or y.pitch != p["out_w"] * p["out_c"]:
        return window_order(call, pixels=2, reads_again=True)
    return pointwise_order(call, pixels=2, reads_again=True)


_CONV = Kernel(
    "rlx_conv_mve_s8",
    "rlx_conv_mve_t",
    ("stream",),
    (
        *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w", "stride_h", "stride_w", "pad_top", "pad_left"),
        *("x_zp", "out_zp", "low", "high", "blocks", "columns", "rows_at_once", "spread_pixels"),
    ),
    stack_bytes=1344,
    scratch=True,
    order=conv_order,
)
CONV = by_bits(_CONV)
CONV_RELU = by_bits(replace(_CONV, name="rlx_conv_relu_mve_s8"))
"""For layers whose lowest output code is the zero point."""


def conv(graph: Graph, node: Node, bits: int) -> tuple[Call, ...] | str:
    """The calls of a convolution without groups and dilation, or why not."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    if op.groups != 1 or op.dilation != (1, 1):
        return "it has groups or dilation"
    w = weighted(graph, node)
    if isinstance(w, str):
        return w
    chosen = choose_kernel(w, bounds(op.clamp), bits)
    if isinstance(chosen, str):
        return chosen
    kernel, proof = chosen
    _, in_h, in_w, in_c = x.type.shape
    _, out_h, out_w, out_c = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    pointwise = (k_h, k_w) == (1, 1) and not any(op.padding)
    params = {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c, k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left, x_zp=op.x_zp, out_zp=op.out_zp),
        **dict(blocks=-(-k_h * k_w * in_c // BYTES), columns=0 if pointwise else (out_w - 1) * stride_w + k_w),
        **dict(rows_at_once=2 if not pointwise and out_w % 2 and out_w <= NARROW and out_h > 1 else 1),
        **dict(spread_pixels=spread_pixels(k_h, in_c)),
        **bounds(op.clamp),
    }
    rows = w.rows.reshape(out_c, k_h, k_w, in_c).transpose(0, 2, 1, 3).reshape(out_c, -1)
    stream = Constant("stream", pack(replace(w, rows=rows), bits))
    work = partial(count_work, params)
    return tuple(
        Call(kernel, params, (source,), target, out_h, {"stream": stream}, scratch_bytes(params), work, proof)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def pointwise(
    w: Weighted, source: View, target: View, rows: int, x_zp: int, limits: Mapping[str, int], bits: int
) -> tuple[Call, ...] | str:
    """The call of a matrix product of several rows, which are the pixels of a 1x1 convolution one pixel wide."""
    chosen = choose_kernel(w, limits, bits)
    if isinstance(chosen, str):
        return chosen
    kernel, proof = chosen
    out_c, in_c = w.rows.shape
    ones = ("in_w", "out_w", "k_h", "k_w", "stride_h", "stride_w", "rows_at_once")
    params = {
        **dict(in_h=rows, in_c=in_c, out_c=out_c, pad_top=0, pad_left=0, x_zp=x_zp, out_zp=w.out_zp),
        **dict.fromkeys(ones, 1),
        **dict(blocks=-(-in_c // BYTES), columns=0, spread_pixels=0),
        **limits,
    }
    stream = {"stream": Constant("stream", pack(w, bits))}
    return (
        Call(
            kernel, params, (source,), target, rows, stream, scratch_bytes(params), partial(count_work, params), proof
        ),
    )


def choose_kernel(w: Weighted, limits: Mapping[str, int], bits: int) -> tuple[Kernel, str] | str:
    """The kernel that gives the right bits for these numbers and its proof, or why there is none."""
    if len(w.rows) > MAX_CHANNELS:
        return f"{len(w.rows)} output channels, more than {MAX_CHANNELS}"
    refused = weights_mve.limit_product(w, bits, limits["low"])
    if refused is not None:
        return refused
    proof = weights_mve.proof(w, bits)
    if limits["low"] == w.out_zp:
        return CONV_RELU[bits], f"{proof}, lowest code is the zero point"
    return CONV[bits], proof


def spread_pixels(k_h: int, in_c: int) -> int:
    """How many neighboring pixels one store moves to columns of k_h * in_c bytes: the places of 16 bytes must lie
    within 256. 0 for pixels that are moved one by one."""
    last = BYTES - 1
    within = last // in_c * k_h * in_c + last % in_c
    return BYTES // in_c if within < 256 else 0


def pack(w: Weighted, bits: int) -> Array:
    """The stream of rlx_gemm_mve.h, int32: groups of four channels, each blocks of weights, then constants."""
    padding = -len(w.rows) % CHANNELS
    rows = packing.padded(np.pad(w.rows, [(0, padding), (0, 0)]), BYTES)
    constants = [
        np.pad(values, (0, padding), constant_values=fill)
        for values, fill in ((w.bias, 0), (w.multipliers, 0), (-w.shifts, -1))
    ]
    pieces = []
    for c in range(0, len(rows), CHANNELS):
        four = slice(c, c + CHANNELS)
        pieces.append(weights_mve.blocks(rows[four], bits))
        pieces += [packing.int32(values[four]) for values in constants]
    return packing.stream(pieces)


def scratch_bytes(params: Mapping[str, int]) -> int:
    """As rlx_conv_mve.h says."""
    if params["columns"] == 0:
        return 2 * BYTES * params["blocks"] if params["in_c"] % BYTES else 0
    buffer = params["columns"] * params["k_h"] * params["in_c"] + BYTES - 1
    return params["rows_at_once"] * (-(-buffer // BYTES) * BYTES)


def count_work(params: Mapping[str, int], rows: int) -> dict[str, int]:
    """What the loops do: pairs of windows, groups of four channels, blocks of 64 weights, further passes through the
    unrolled blocks, and pieces of up to 16 bytes that are copied to columns."""
    p = params
    if p["columns"] == 0:
        joined = (p["stride_h"], p["stride_w"]) == (1, 1)
        runs, positions = (1, rows * p["out_w"]) if joined else (rows, p["out_w"])
        pairs, pieces = runs * -(-positions // 2), 0
    else:
        runs = -(-rows // p["rows_at_once"])
        pairs = runs * (p["out_w"] if p["rows_at_once"] == 2 else -(-p["out_w"] // 2))
        row = min(p["in_w"], p["columns"])
        spread = p["spread_pixels"]
        pieces = rows * p["k_h"] * (-(-row // spread) if spread else -(-p["in_c"] // BYTES) * row)
    groups = pairs * -(-p["out_c"] // CHANNELS)
    passes = max(0, p["blocks"] - 2) // UNROLLED
    return dict(
        runs=runs,
        rows=rows,
        pairs=pairs,
        groups=groups,
        blocks=groups * p["blocks"],
        passes=groups * passes,
        pieces=pieces,
    )


VARIANTS = tuple(
    Variant(f"conv_mve{end}", Isa.MVE, QConv2d, (CONV[bits], CONV_RELU[bits]), partial(conv, bits=bits))
    for bits, end in SUFFIXES.items()
)
