"""Depthwise convolutions on Cortex-M55 and M85 (firmware/kernels/rlx_depthwise_strips_mve.h): patches of 4x4 taps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, band_order
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing
from rlx_edge.cgen.variants.proofs import Weighted, limit_shifts, limit_weights, weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.cgen.variants.weights_mve import SUFFIXES, by_bits
from rlx_edge.ir import Array, Graph, Node, subbyte
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

CHANNELS, LANES, PATCH = 16, 4, 4
"""Channels of a strip, lanes across it, taps of a patch each way."""
STRIP_BYTES = 3072
"""Strips along y hold no more rows than fit in this; strips along x hold a row's width, however many bytes it is."""


def depthwise_order(call: Call) -> Accesses:
    """A band's rows are read, and with more than 16 channels read again after some of it was written."""
    p = call.params
    along_y = p["along_y"] != 0
    rows = 1 if along_y and call.output.ring else p["rows_at_once"]
    return band_order(call, rows=rows, reads_again=along_y or p["in_c"] > CHANNELS)


DEPTHWISE = by_bits(
    Kernel(
        "rlx_depthwise_mve_s8",
        "rlx_depthwise_mve_t",
        ("stream",),
        (
            *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w", "stride_h", "stride_w", "pad_top", "pad_left"),
            *("x_zp", "out_zp", "along_y", "pairs", "rows_at_once", "buffer_bytes"),
        ),
        stack_bytes=1024,
        scratch=True,
        order=depthwise_order,
    )
)


def depthwise(graph: Graph, node: Node, bits: int) -> tuple[Call, ...] | str:
    """The calls of a depthwise convolution with kernels of up to 4x4, or why not."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    in_c, out_c = x.type.shape[3], node.type.shape[3]
    if op.groups != in_c or out_c != in_c or in_c == 1 or op.dilation != (1, 1):
        return "it is not a depthwise convolution with an output per input channel and no dilation"
    if max(op.kernel_size) > PATCH:
        return f"the kernel is larger than {PATCH}x{PATCH}"
    w = weighted(graph, node)
    if isinstance(w, str):
        return w
    limits = bounds(op.clamp)
    if limits != bounds(None):
        return f"outputs are bounded to {limits['low']} to {limits['high']}"
    low = -1 << (bits - 1)
    refused = limit_weights(w, low, -low - 1) or limit_shifts(w, int(w.out_zp != -128), 31) or _limit_results(w)
    if refused is not None:
        return refused
    params, _ = min(
        (_arrangement(x, node, op, along_y) for along_y in (0, 1)),
        key=lambda made: _rough_cost(made[1]),
    )
    stream = Constant("stream", pack(w, bits, bool(params["along_y"]), *op.kernel_size))
    proof = f"{w.text}, rescaled sums with zero point fit in int16"
    scratch = params["buffer_bytes"] + CHANNELS
    return tuple(
        Call(
            DEPTHWISE[bits],
            params,
            (source,),
            target,
            node.type.shape[1],
            {"stream": stream},
            scratch,
            partial(count_work, params),
            proof,
        )
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def _limit_results(w: Weighted) -> str | None:
    """Why some rescaled sum, with the zero point, may not fit in int16."""
    high = (w.bound * w.multipliers + (1 << 30)) >> 31
    largest = int(((2 * (high + 1) >> w.shifts) + 1).max()) + abs(w.out_zp)
    return None if largest < 1 << 15 else f"a rescaled sum can reach {largest}, 2^15 or more"


def _arrangement(x: Node, node: Node, op: QConv2d, along_y: int) -> tuple[dict[str, int], dict[str, int]]:
    """Parameters and counted work for strips along one of the two axes."""
    _, in_h, in_w, in_c = x.type.shape
    _, out_h, out_w, _ = node.type.shape
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    top, left, _, _ = pad_sides(op.padding)
    pairs = max(k_h, k_w) < PATCH and op.stride == (1, 1)
    position = LANES * min(CHANNELS, in_c)
    rows = _band_rows(position, out_h, stride_h) if along_y else 1 + pairs
    outputs, stride = (rows, stride_h) if along_y else (out_w, stride_w)
    params = {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=in_c, k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w),
        **dict(pad_top=top, pad_left=left, x_zp=op.x_zp, out_zp=op.out_zp, along_y=along_y, pairs=int(pairs)),
        **dict(rows_at_once=rows, buffer_bytes=position * (strip_positions(outputs, stride) + CHANNELS)),
    }
    return params, count_work(params, out_h)


def strip_positions(outputs: int, stride: int) -> int:
    """Positions of a strip that loads touch: blocks are of four outputs, the last one's patch has four positions."""
    return (-(-outputs // 4) * 4 - 1) * stride + PATCH


def _band_rows(position: int, out_h: int, stride: int) -> int:
    """Output rows of a band of strips along y: an even number, if not all."""
    rows = out_h
    while rows > 2 and position * strip_positions(rows, stride) > STRIP_BYTES:
        rows -= 1 + rows % 2
    return rows


def pack(w: Weighted, bits: int, along_y: bool, k_h: int, k_w: int) -> Array:
    """As rlx_depthwise_strips_mve.h says, int32 [channel][bias, multiplier, -shift, bits / 2 words]."""
    taps = w.rows.reshape(-1, k_h, k_w)  # [channel][k_h][k_w]
    patch = taps if along_y else taps.transpose(0, 2, 1)
    patch = np.pad(patch, [(0, 0), *((0, PATCH - size) for size in patch.shape[1:])])
    constants = np.stack([w.bias, w.multipliers, -w.shifts], axis=1)
    packed = patch if bits == 8 else subbyte.pack(patch, bits).view(np.int8)
    words = packing.stream([packed]).reshape(len(taps), -1)
    return np.concatenate([packing.int32(constants), words], axis=1).ravel()


def count_work(params: Mapping[str, int], out_h: int) -> dict[str, int]:
    """What the loops do: strips; channels of strips; blocks of outputs in pairs of lines and in single lines, and the
    last ones of strips, which are not full; and pieces of 16 x 4 bytes that are laid out."""
    p = params
    bands = [min(p["rows_at_once"], out_h - y) for y in range(0, out_h, p["rows_at_once"])]
    count = dict(strips=0, pair_channels=0, line_channels=0, pairs=0, lines=0, tails=0, pieces=0)
    for rows in bands:
        across, along = (p["out_w"], rows) if p["along_y"] else (rows, p["out_w"])
        stride, kernel = (p["stride_h"], p["k_h"]) if p["along_y"] else (p["stride_w"], p["k_w"])
        doubles = across // 2 if p["pairs"] else 0
        singles = across - 2 * doubles
        chunks = -(-p["in_c"] // CHANNELS)
        positions = (along - 1) * stride + kernel
        joined = not p["along_y"] and chunks == 1
        count["strips"] += (doubles + singles) * chunks
        count["pieces"] += (doubles + singles) * (
            -(-positions * p["in_c"] // CHANNELS) if joined else positions * chunks
        )
        count["pair_channels"] += doubles * p["in_c"]
        count["line_channels"] += singles * p["in_c"]
        count["pairs"] += doubles * p["in_c"] * (along // 2)
        count["lines"] += singles * p["in_c"] * (along // 4)
        count["tails"] += p["in_c"] * (doubles * (along % 2) + singles * (along % 4 != 0))
    return count


def _rough_cost(work: Mapping[str, int]) -> int:
    """Instructions, to choose an axis by."""
    each = dict(strips=200, pair_channels=20, line_channels=15, pairs=17, lines=20, tails=20, pieces=14)
    return sum(each[name] * count for name, count in work.items())


VARIANTS = tuple(
    Variant(f"depthwise_mve{end}", Isa.MVE, QConv2d, (DEPTHWISE[bits],), partial(depthwise, bits=bits))
    for bits, end in SUFFIXES.items()
)
