"""Depthwise convolutions on Cortex-M0 and M0+: a channel at a time, two positions per multiply
(firmware/kernels/rlx_depthwise_v6m_s8.c)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, band_order, channels_order
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs, v6m
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

STEP = 3
"""Taps that the kernel multiplies together."""
SCRATCH_BYTES = 1024
"""Bands have as many output rows as fit in this, at least one."""


def _order(call: Call) -> Accesses:
    """In a band the channels are read and written one after the other."""
    if call.params["multiplier"] == 1 and not call.output.ring:
        return channels_order(call, channels=1, rows=call.params["band"])
    return band_order(call, rows=call.params["band"], reads_again=True)


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


def depthwise(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_depthwise_v6m_s8, or why it cannot compute the node."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    if op.groups != x.type.shape[3] or op.groups == 1 or op.dilation != (1, 1):
        return "it is not depthwise, or has dilation"
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    channels = v6m.channels(w)
    w = channels.weighted
    params, lines = _oriented(op, x.type.shape, node.type.shape)
    kernel = (params["k_w"], params["k_h"]) if params["upright"] else (params["k_h"], params["k_w"])
    rows = w.rows.reshape(-1, *op.kernel_size)
    weights = ordered(rows.transpose(0, 2, 1) if params["upright"] else rows)
    scales, modes = v6m.rescales(channels), modes_of(weights, kernel)
    if isinstance(modes, str) or isinstance(scales, str):
        return str(modes if isinstance(modes, str) else scales)
    constants = {"stream": Constant("stream", pack(w, weights, modes, scales))}
    proof = (
        f"{w.text}; groups of three products fit in 16 bits in {int((modes == ROWS).sum())} of {len(modes)} channels"
    )
    work = proportional(lines.work(modes, scales), node.type.shape[1])
    return tuple(
        Call(DEPTHWISE, params, (source,), target, node.type.shape[1], constants, lines.scratch, work, proof)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def _oriented(op: QConv2d, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[dict[str, int], Lines]:
    """Parameters for pairs of columns or of rows, whichever is quicker."""
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    top, left, _, _ = pad_sides(op.padding)
    params = {
        **dict(in_h=x[1], in_w=x[2], in_c=x[3], out_w=y[2], out_c=y[3], k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left),
        **dict(multiplier=y[3] // x[3], x_zp=op.x_zp, **bounds(op.clamp)),
    }
    lines = min((Lines.of(params, y[1], upright) for upright in (0, 1)), key=lambda found: found.cost)
    return {**params, "band": lines.band, "upright": lines.upright}, lines


@dataclass(frozen=True)
class Lines:
    """How the kernel cuts an image: bands of rows, and lines along its columns or (upright) along its rows."""

    params: Mapping[str, int]
    out_h: int
    band: int
    upright: int

    @classmethod
    def of(cls, params: Mapping[str, int], out_h: int, upright: int) -> Lines:
        """With the largest bands that SCRATCH_BYTES allow."""
        made = cls(params, out_h, 1, upright)
        for band in range(2, out_h + 1):
            larger = cls(params, out_h, band, upright)
            if larger.scratch > SCRATCH_BYTES:
                break
            made = larger
        return made

    def _axes(self, rows: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Outputs, kernel and stride along the lines of a band of some rows, and across them."""
        p = self.params
        vertical, horizontal = (rows, p["k_h"], p["stride_h"]), (p["out_w"], p["k_w"], p["stride_w"])
        return (vertical, horizontal) if self.upright else (horizontal, vertical)

    def _band(self, rows: int) -> dict[str, int]:
        """Counts of one channel of a band."""
        (outputs, kernel, stride), (across, k_across, stride_across) = self._axes(rows)
        pairs, columns = -(-outputs // 2), -(-kernel // STEP)
        values = (2 * pairs - 1) * stride + columns * STEP
        lines = (across - 1) * stride_across + k_across
        return dict(
            rows=across,
            pairs=across * pairs,
            lines=lines,
            shared_words=lines * values if stride == 1 else 0,
            unshared_pairs=lines * pairs if stride != 1 else 0,
            words=lines * pairs * columns * STEP if stride != 1 else 0,
            pair_values=stride + columns * STEP if stride != 1 else 0,
            columns=columns,
            taps=columns * k_across * STEP,
        )

    @property
    def scratch(self) -> int:
        """Bytes: the table, the lines, a pair's values."""
        made = self._band(self.band)
        table = 2 + -(-made["taps"] // 4) * 4 + 4
        return 4 * (table + made["shared_words"] + made["words"] + made["pair_values"])

    @property
    def _totals(self) -> dict[str, int]:
        """Counts of all bands, of one channel."""
        bands = [self._band(min(self.band, self.out_h - first)) for first in range(0, self.out_h, self.band)]
        return {"bands": len(bands), **{key: sum(band[key] for band in bands) for key in bands[0]}}

    @property
    def cost(self) -> int:
        """Instructions of one channel, roughly: enough to choose between columns and rows."""
        n = self._totals
        each = dict(bands=350, lines=110, shared_words=6, unshared_pairs=30, rows=30, pairs=85)
        return sum(count * n[key] for key, count in each.items())

    def work(self, modes: Array, scales: Rescales) -> dict[str, int]:
        """Counts of the kernel's loops: channels of all bands and their weights; lines and their words (where the
        stride is 1, else pairs and words), pairs of each mode, and pairs with the long rescale."""
        n, p = self._totals, self.params
        any_mode = int((modes == ANY).sum())
        steps = self._band(1)["taps"] // STEP
        return {
            "channels": n["bands"] * p["out_c"],
            "weights": n["taps"] * p["out_c"],
            **{key: n[key] * p["in_c"] for key in ("lines", "shared_words", "unshared_pairs", "words")},
            "rows": n["rows"] * p["out_c"],
            "pairs": n["pairs"] * p["out_c"],
            "steps": n["pairs"] * any_mode * steps,
            "columns": n["pairs"] * any_mode * self._band(1)["columns"],
            "pairs_by_two": n["pairs"] * int((modes == PAIRS).sum()),
            "pairs_by_three": n["pairs"] * int((modes == ROWS).sum()),
            "long_rescales": n["pairs"] * scales.long,
            "clamped": self.out_h * p["out_w"] * p["out_c"] * int(p["low"] > -128 or p["high"] < 127),
        }


VARIANTS = (Variant("depthwise_v6m", Isa.V6M, QConv2d, (DEPTHWISE,), depthwise),)
