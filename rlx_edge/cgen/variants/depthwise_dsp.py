"""Depthwise convolutions on Cortex-M4, M7 and M33: byte planes of 4 channels (firmware/kernels/rlx_depthwise_dsp.h)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import Accesses, band_order, sliding_order
from rlx_edge.cgen.plan import Call, Constant, Work
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs
from rlx_edge.cgen.variants.axis import Axis
from rlx_edge.cgen.variants.depthwise_tiles import LANES, TAPS, Tiling, choose_tiling
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

ACCUMULATOR_BITS = 30
PLACES = ((0, 0), (1, 0), (0, 2), (1, 2), (2, 0), (0, 1), (2, 2), (1, 1))
"""(outer, inner) of a record's weights but the last one, which is LAST."""
PACKED_PLACES = ((0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 2), (2, 2), (1, 1))
"""The same of weights of 4 and 2 bits."""
LAST = (2, 1)

FIELDS = (
    *("in_h", "in_w", "channels", "out_w", "k_h", "k_w", "stride_h", "stride_w", "pad_top", "pad_left"),
    *("x_zp", "out_zp", "low", "high", "tile_h", "tile_w", "along_y"),
)


def order(call: Call) -> Accesses:
    """4 channels at a time, band by band."""
    if call.output.ring:
        return band_order(call, reads_again=True)
    upright = bool(call.params["along_y"])
    band = call.params["tile_w" if upright else "tile_h"]
    return sliding_order(call, channels=LANES, band=band, upright=upright)


DEPTHWISE = Kernel(
    "rlx_depthwise_dsp_s8",
    "rlx_depthwise_dsp_t",
    ("stream",),
    FIELDS,
    stack_bytes=1088,
    scratch=True,
    order=order,
)


@dataclass(frozen=True)
class Form:
    """How a record holds all weights but the last: of `bits` bits, as the numpy type `packed`."""

    kernel: Kernel
    bits: int
    packed: str

    @property
    def record(self) -> np.dtype[Any]:
        shape = (len(PLACES),) if self.bits == 8 else ()
        fields = ("weights", self.packed, shape), ("last", "i1"), ("shift", "i1")
        return np.dtype([("bias", "<i4"), ("multiplier", "<i4"), *fields])

    def weights(self, kernels: Array) -> Array:
        """Weights [C, outer, inner] as a record's field of them."""
        places = PLACES if self.bits == 8 else PACKED_PLACES
        values = np.stack([kernels[:, outer, inner] for outer, inner in places], axis=1).astype(np.int64)
        if self.bits == 8:
            return values
        return np.asarray(((values + (1 << (self.bits - 1))) << self.bits * np.arange(len(places))).sum(axis=1))


S8 = Form(DEPTHWISE, 8, "i1")
W4 = Form(replace(DEPTHWISE, name="rlx_depthwise_dsp_w4_s8"), 4, "<u4")
W2 = Form(replace(DEPTHWISE, name="rlx_depthwise_dsp_w2_s8"), 2, "<u2")


def pack(w: Weighted, k_h: int, k_w: int, along_y: bool, form: Form) -> Array:
    """The stream of rlx_depthwise_dsp.h: a record a channel, as int8 [channels * bytes of a record]."""
    kernels = np.zeros((len(w.rows), TAPS, TAPS), np.int8)
    kernels[:, :k_h, :k_w] = w.rows.reshape(-1, k_h, k_w)
    if along_y:
        kernels = kernels.transpose(0, 2, 1)
    records = np.zeros(len(w.rows), form.record)
    records["bias"] = packing.int32(2 * w.bias)
    records["multiplier"] = packing.int32(w.multipliers)
    records["weights"] = form.weights(kernels)
    records["last"] = kernels[:, *LAST]
    records["shift"] = w.shifts
    return records.view(np.int8)


def _lower(graph: Graph, node: Node, form: Form) -> tuple[Call, ...] | str:
    """Calls of the form's kernel, or why it cannot compute the node."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    channels, (k_h, k_w) = x.type.shape[3], op.kernel_size
    if op.groups != channels or channels == 1 or node.type.shape[3] != channels or op.dilation != (1, 1):
        return "it is not depthwise with a channel each, or has dilation"
    if max(k_h, k_w) > TAPS:
        return f"the kernel has {k_h}x{k_w} taps, more than {TAPS}x{TAPS}"
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    refused = proofs.limit_weights(w, -(1 << (form.bits - 1)), (1 << (form.bits - 1)) - 1)
    refused = refused or proofs.limit_accumulators(w, ACCUMULATOR_BITS)
    offsets = proofs.offsets(w) if form.bits == 8 else proofs.offsets_of_doubled(w)
    if refused is not None or isinstance(offsets, str):
        return refused or str(offsets)
    return _calls(graph, node, w, form)


def _calls(graph: Graph, node: Node, w: Weighted, form: Form) -> tuple[Call, ...] | str:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    _, in_h, in_w, channels = x.type.shape
    _, out_h, out_w, _ = node.type.shape
    top, left, _, _ = pad_sides(op.padding)
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    rows, columns = Axis(in_h, k_h, stride_h, -top, out_h), Axis(in_w, k_w, stride_w, -left, out_w)
    tiling = choose_tiling(rows, columns, channels)
    if tiling is None:
        return f"strides {stride_h} and {stride_w} are both more than 2"
    calls = [
        Call(form.kernel, params, (source,), target, out_h, constants, tiling.scratch, work, w.text)
        for params, constants, work in [_facts(op, x.type.shape, out_w, w, tiling, form)]
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    ]
    one_row = choose_tiling(rows, columns, channels, by_rows=True) or tiling
    params, constants, work = _facts(op, x.type.shape, out_w, w, one_row, form)
    scratch = one_row.of_rows(1).scratch
    return tuple(
        replace(call, by_rows=replace(call, params=params, constants=constants, work=work, scratch=scratch))
        for call in calls
    )


def _facts(
    op: QConv2d, x: tuple[int, ...], out_w: int, w: Weighted, tiling: Tiling, form: Form
) -> tuple[dict[str, int], dict[str, Constant], Work]:
    """Parameters, constants and work of a call that is tiled so."""
    (k_h, k_w), (stride_h, stride_w), (top, left, _, _) = op.kernel_size, op.stride, pad_sides(op.padding)
    height, width = (tiling.tile, tiling.band) if tiling.along_y else (tiling.band, tiling.tile)
    params = {
        **dict(in_h=x[1], in_w=x[2], channels=x[3], out_w=out_w, k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left),
        **dict(x_zp=op.x_zp, out_zp=op.out_zp, **bounds(op.clamp)),
        **dict(tile_h=height, tile_w=width, along_y=int(tiling.along_y)),
    }
    clamped = int(op.clamp not in (None, (-128, 127))) * out_w * x[3]

    def work(rows: int) -> dict[str, int]:
        return tiling.of_rows(rows).counts | {"clamped": clamped * rows}

    return params, {"stream": Constant("stream", pack(w, k_h, k_w, tiling.along_y, form))}, work


VARIANTS = tuple(
    Variant(name, Isa.DSP, QConv2d, (form.kernel,), partial(_lower, form=form))
    for name, form in (("depthwise_dsp_w4", W4), ("depthwise_dsp_w2", W2), ("depthwise_dsp", S8))
)
