"""Depthwise convolutions on Cortex-M0 and M0+: a channel at a time, two positions per multiply
(firmware/kernels/rlx_depthwise_v6m_s8.c)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, band_order, sliding_order
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs, v6m
from rlx_edge.cgen.variants.axis import Axis
from rlx_edge.cgen.variants.depthwise_lines import STEP, Lines, choose_lines
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides


def _order(call: Call) -> Accesses:
    """Channel after channel, band by band; bands of all channels where a channel has several outputs."""
    p = call.params
    if p["multiplier"] > 1 or call.output.ring:
        return band_order(call, rows=0 if call.output.ring else p["band"], reads_again=True)
    return sliding_order(call, channels=1, band=p["band"], upright=bool(p["upright"]))


DEPTHWISE = Kernel(
    "rlx_depthwise_v6m_s8",
    "rlx_depthwise_v6m_t",
    ("stream",),
    (
        *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
        *("stride_h", "stride_w", "pad_top", "pad_left", "multiplier", "band", "upright", "x_zp", "low", "high"),
    ),
    stack_bytes=1024,
    scratch=True,
    order=_order,
)

ANY, PAIRS, ROWS = range(3)
"""Modes of a channel: which products make a group."""

GROUPS: dict[int, Callable[[Array], list[Array]]] = {
    ANY: lambda w: [w.reshape(len(w), -1, STEP)[..., :2], w.reshape(len(w), -1, STEP)[..., 2:]],
    PAIRS: lambda w: [w[:, :8].reshape(len(w), 4, 2), w[:, 8:].reshape(len(w), 1, 1)],
    ROWS: lambda w: [w.reshape(len(w), STEP, STEP)],
}
"""Weights [C_out, taps] in the order of the stream as groups: arrays [C_out, groups, products]."""


def ordered(kernels: Array) -> Array:
    """Weights [C_out, rows, columns] as [C_out, columns / STEP * rows * STEP], with zeros right of the kernel."""
    padded = packing.padded(kernels, STEP)
    columns = padded.reshape(*kernels.shape[:2], -1, STEP)
    return np.ascontiguousarray(columns.transpose(0, 2, 1, 3)).reshape(len(kernels), -1)


def modes_of(weights: Array, kernel: tuple[int, int]) -> Array | str:
    """The quickest mode whose groups fit, for each channel; or why none fits."""
    usable = [ROWS, PAIRS] if kernel[0] == STEP and kernel[1] <= STEP else [ANY]
    modes = np.full(len(weights), -1)
    for mode in usable:
        fits = np.all([v6m.groups_fit(group).all(axis=1) for group in GROUPS[mode](weights)], axis=0)
        modes = np.where((modes < 0) & fits, mode, modes)
    return modes if (modes >= 0).all() else "two neighboring weights of -128 leave 16 bits"


def pack(w: Weighted, weights: Array, modes: Array, scales: Rescales) -> Array:
    """The stream that the kernel's comment describes. weights: as `ordered` gives them."""
    counts = np.array([sum(group.shape[1] for group in _groups(mode, weights)) for mode in (ANY, PAIRS, ROWS)])
    first = v6m.first_values(scales.bias, counts[modes])
    taps = packing.padded(weights, 4)
    pieces: list[Array] = []
    for c, mode in enumerate(modes):
        pieces += [packing.int32([mode, *first[c]]), taps[c], packing.int32(scales.words[c])]
    return packing.stream(pieces)


def _groups(mode: int, weights: Array) -> list[Array]:
    return GROUPS[mode](weights) if mode == ANY or weights.shape[1] == STEP * STEP else []


Facts = dict[str, Any]
"""Constants, scratch memory, work and proof of a call."""


def refused_shape(graph: Graph, node: Node) -> str | None:
    """Why no such kernel can compute the node."""
    op = node.op
    assert isinstance(op, QConv2d)
    channels = graph.nodes[node.inputs[0]].type.shape[3]
    depthwise = op.groups == channels != 1 and op.dilation == (1, 1)
    return None if depthwise else "it is not depthwise, or has dilation"


def depthwise(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_depthwise_v6m_s8, or why it cannot compute the node."""
    w = refused_shape(graph, node) or proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    channels = v6m.channels(w)
    scales = v6m.rescales(channels)
    if isinstance(scales, str):
        return scales
    return oriented_calls(graph, node, DEPTHWISE, channels.weighted, partial(_facts, channels.weighted, scales))


def oriented_calls(
    graph: Graph,
    node: Node,
    kernel: Kernel,
    w: Weighted,
    facts: Callable[[Array, Mapping[str, int], Lines], Facts | str],
) -> tuple[Call, ...] | str:
    """A call for each image, along its rows or its columns, whichever is quicker; and one along its rows for when rows
    are made one at a time. facts: from the weights as `ordered` gives them, parameters and lines."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    kernels = w.rows.reshape(-1, *op.kernel_size)

    def oriented(by_rows: bool) -> tuple[dict[str, int], Lines, Facts | str]:
        params, lines = _oriented(op, x.type.shape, node.type.shape, by_rows=by_rows)
        weights = ordered(kernels.transpose(0, 2, 1) if params["upright"] else kernels)
        return params, lines, facts(weights, params, lines)

    params, lines, found = oriented(by_rows=False)
    row_params, row_lines, by_rows = oriented(by_rows=True) if lines.upright else (params, lines, found)
    if isinstance(found, str) or isinstance(by_rows, str):
        return found if isinstance(found, str) else str(by_rows)
    calls = []
    for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True):
        call = Call(kernel, params, (source,), target, node.type.shape[1], **found)
        row = replace(call, params=row_params, **by_rows | {"scratch": row_lines.of_rows(1).scratch})
        calls.append(replace(call, by_rows=row))
    return tuple(calls)


def _facts(w: Weighted, scales: Rescales, weights: Array, params: Mapping[str, int], lines: Lines) -> Facts | str:
    """Of a call that runs along these lines."""
    kernel = (params["k_w"], params["k_h"]) if params["upright"] else (params["k_h"], params["k_w"])
    modes = modes_of(weights, kernel)
    if isinstance(modes, str):
        return modes
    proof = (
        f"{w.text}; groups of three products fit in 16 bits in {int((modes == ROWS).sum())} of {len(modes)} channels"
    )
    return {
        "constants": {"stream": Constant("stream", pack(w, weights, modes, scales))},
        "scratch": lines.scratch,
        "work": lambda rows: _work(lines.of_rows(rows), params, modes, scales),
        "proof": proof,
    }


def _oriented(
    op: QConv2d, x: tuple[int, ...], y: tuple[int, ...], *, by_rows: bool = False
) -> tuple[dict[str, int], Lines]:
    """Parameters for pairs of columns or of rows, whichever is quicker; `by_rows` as in `choose_lines`."""
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    top, left, _, _ = pad_sides(op.padding)
    multiplier = y[3] // x[3]
    rows, columns = Axis(x[1], k_h, stride_h, -top, y[1]), Axis(x[2], k_w, stride_w, -left, y[2])
    lines = choose_lines(rows, columns, multiplier, by_rows=by_rows)
    params = {
        **dict(in_h=x[1], in_w=x[2], in_c=x[3], out_w=y[2], out_c=y[3], k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left),
        **dict(multiplier=multiplier, band=lines.band, upright=int(lines.upright), x_zp=op.x_zp, **bounds(op.clamp)),
    }
    return params, lines


def _work(lines: Lines, params: Mapping[str, int], modes: Array, scales: Rescales) -> dict[str, int]:
    """`lines_work`, and pairs of each mode, and pairs with the long rescale."""
    found = lines_work(lines, params)
    any_mode = int((modes == ANY).sum())
    pairs = found["pairs"] // params["out_c"]
    return {
        **found,
        "steps": pairs * any_mode * lines.taps // STEP,
        "columns": pairs * any_mode * lines.columns,
        "pairs_by_two": pairs * int((modes == PAIRS).sum()),
        "pairs_by_three": pairs * int((modes == ROWS).sum()),
        "long_rescales": pairs * scales.long,
    }


def lines_work(lines: Lines, params: Mapping[str, int]) -> dict[str, int]:
    """Counts of the kernel's loops: channels that are loaded and their weights; those of `Lines.counts`, for the
    channels of x or of the output; outputs that a second pass goes over."""
    n, in_c, out_c = lines.counts, params["in_c"], params["out_c"]
    loaded = out_c * (n["bands"] if lines.again else 1)
    outputs = {name: n.pop(name) for name in ("bands", "rows", "pairs")}
    narrow = params["low"] > -128 or params["high"] < 127
    return {
        **{"channels": loaded, "weights": loaded * lines.taps},
        **{name: count * out_c for name, count in outputs.items()},
        **{name: count * in_c for name, count in n.items()},
        "clamped": lines.along.outputs * lines.across.outputs * out_c * int(narrow),
    }


VARIANTS = (Variant("depthwise_v6m", Isa.V6M, QConv2d, (DEPTHWISE,), depthwise),)
