"""Convolutions with packed weights on Armv6-M and Armv7-M, eight positions at a time (firmware/kernels/rlx_octets.h):
words of weights, runs whose sums fit in 16 bits, and what both cores' calls have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.plan import Call, Constant, Work
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.variants.large_scales import numbers_v7m
from rlx_edge.cgen.variants.packing import stream
from rlx_edge.cgen.variants.proofs import Weighted, limit_weights
from rlx_edge.cgen.variants.raster import raster_order
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.ir.subbyte import pack

POSITIONS, TURN = 8, 16
FIELD = 1 << 15
LIMITS = {4: (-8, 7), 2: (-2, 1)}
"""All values of a packed weight: these kernels multiply, so that -8 and -2 are as good as any."""


def numbers_of_bits(bits: int, graph: Graph, node: Node) -> tuple[Weighted, Array] | str:
    """`numbers_v7m` of weights that fit into so many bits, or why there are none."""
    found = numbers_v7m(graph, node)
    return found if isinstance(found, str) else limit_weights(found[0], *LIMITS[bits]) or found


def conv_kernel(name: str) -> Kernel:
    return Kernel(
        name,
        "rlx_conv_octets_t",
        ("stream",),
        (
            *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
            *("stride_h", "stride_w", "pad_top", "pad_left", "x_zp", "out_zp", "low", "high"),
            *("framed", "pointwise", "turns", "first", "inits"),
        ),
        stack_bytes=1024,
        scratch=True,
        order=partial(raster_order, positions=POSITIONS),
    )


@dataclass(frozen=True, eq=False)
class Octets:
    """weights: int8 [C_out, turns, 16], zeros before the first tap; run: turns of a run but the first, which may have
    fewer."""

    weights: Array
    taps: int
    bits: int
    run: int

    @property
    def runs(self) -> int:
        """Of a channel."""
        return int(-(-self.weights.shape[1] // self.run))

    @property
    def text(self) -> str:
        """For the comment in the generated C."""
        size = TURN * self.run
        return f"runs of {size} products reach {reach(self._rows, size)} in fields of 16 bits"

    @property
    def _rows(self) -> Array:
        return self.weights.reshape(len(self.weights), -1)

    def counts(self, tiles: int) -> dict[str, int]:
        """In so many tiles and all channels: taps, turns, flushes of fields before the last run."""
        channels, turns, _ = self.weights.shape
        taps, flushes = channels * self.taps, channels * (self.runs - 1)
        return {"taps": tiles * taps, "turns": tiles * channels * turns, "flushes": tiles * flushes}

    def words(self, plus: int = 0) -> Array:
        """Weights in the order of memory, int32 [C_out, words]; a first word without a tap is left out. plus: added to
        all weights but those in a word's last place, in whose bits the sum is kept."""
        values = 32 // self.bits
        places = self.weights.reshape(len(self.weights), -1, values).astype(np.int64)
        places[..., :-1] += plus
        words = pack(places, self.bits).view("<i4").reshape(len(self.weights), -1)
        return np.ascontiguousarray(words[:, -self.taps % TURN // values :])


def octets(rows: Array, bits: int) -> Octets:
    """rows: int8 [C_out, taps]. Runs are as long as the weights allow."""
    taps = rows.shape[1]
    padded = np.pad(rows, [(0, 0), (-taps % TURN, 0)])
    weights = padded.reshape(len(rows), -1, TURN)
    fitting = (run for run in range(weights.shape[1], 0, -1) if reach(padded, TURN * run) < FIELD)
    return Octets(weights, taps, bits, next(fitting))


def reach(rows: Array, size: int) -> int:
    """The largest magnitude of a sum of `size` neighboring products with int8 inputs, counted from the end of each row
    on. rows: int8 [n, m]."""
    wide = np.pad(rows.astype(np.int64), [(0, 0), (-rows.shape[1] % size, 0)]).reshape(len(rows), -1, size)
    positive, negative = np.maximum(wide, 0).sum(axis=-1), np.maximum(-wide, 0).sum(axis=-1)
    return int((127 * (positive + negative) + np.maximum(positive, negative)).max())


@dataclass(frozen=True, eq=False)
class Lowered:
    """What a core makes of a layer. pieces: of the stream; turns: of a run; inits: words of scratch beside those of x;
    work: of so many tiles, beside what all such kernels do."""

    kernel: Kernel
    pieces: Iterable[Array]
    turns: int
    inits: int
    work: Work
    proof: str


def refused(node: Node) -> str | None:
    """Why no such kernel can compute the node."""
    op = node.op
    assert isinstance(op, QConv2d)
    return "it has groups or dilation" if op.groups != 1 or op.dilation != (1, 1) else None


def calls(graph: Graph, node: Node, lowered: Lowered) -> tuple[Call, ...]:
    """A call for each image."""
    params = _params(graph, node)
    taps = params["k_h"] * params["k_w"] * params["in_c"]
    first = (taps - 1) % (TURN * lowered.turns) + 1
    params |= dict(turns=lowered.turns, first=first, inits=lowered.inits)
    constant = Constant("stream", stream(lowered.pieces))
    line = params["k_w"] * params["in_c"]
    scratch = 2 * POSITIONS * taps + 4 * lowered.inits + params["framed"] * (1 + POSITIONS) * line
    source_type, target_type = graph.nodes[node.inputs[0]].type, node.type
    views = zip(image_views(source_type, node.inputs[0]), image_views(target_type, node.id), strict=True)
    return tuple(
        Call(
            *(lowered.kernel, params, (source,), target, target_type.shape[1], {"stream": constant}, scratch),
            *(partial(_work, params, lowered.work), lowered.proof),
        )
        for source, target in views
    )


def _params(graph: Graph, node: Node) -> dict[str, int]:
    op = node.op
    assert isinstance(op, QConv2d)
    _, in_h, in_w, in_c = graph.nodes[node.inputs[0]].type.shape
    _, out_h, out_w, out_c = node.type.shape
    (k_h, k_w), (stride_h, stride_w), sides = op.kernel_size, op.stride, pad_sides(op.padding)
    top, left, _, _ = sides
    beyond = (out_h - 1) * stride_h + k_h - top > in_h or (out_w - 1) * stride_w + k_w - left > in_w
    pointwise = (k_h, k_w, stride_h, stride_w) == (1, 1, 1, 1) and not any(sides)
    return {
        **dict(in_h=in_h, in_w=in_w, in_c=in_c, out_w=out_w, out_c=out_c, k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left, x_zp=op.x_zp, out_zp=op.out_zp),
        **bounds(op.clamp),
        **dict(framed=int(top > 0 or left > 0 or beyond), pointwise=int(pointwise)),
    }


def _work(params: Mapping[str, int], work: Work, rows: int) -> Mapping[str, int]:
    """Tiles, and in all of them: channels, what `work` counts, outputs that a second pass goes over."""
    tiles = -(-rows * params["out_w"] // POSITIONS)
    channels = tiles * params["out_c"]
    narrow = params["low"] > -128 or params["high"] < 127
    return {"tiles": tiles, "channels": channels, **work(tiles), "clamped": POSITIONS * channels * int(narrow)}
