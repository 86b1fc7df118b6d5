"""Depthwise convolutions with weights of 4 and 2 bits on Cortex-M0 and M0+
(firmware/kernels/rlx_depthwise_packed_v6m.h)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import octets, packing, proofs, v6m
from rlx_edge.cgen.variants.depthwise_lines import STEP, Lines
from rlx_edge.cgen.variants.depthwise_v6m import DEPTHWISE, lines_work, oriented_calls, refused_shape
from rlx_edge.cgen.variants.large_scales import rescaled_v6m
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.subbyte import pack

KERNELS = {bits: replace(DEPTHWISE, name=f"rlx_depthwise_v6m_w{bits}") for bits in octets.LIMITS}
FIELD = 1 << 15


def lower(bits: int, kernel: Kernel, graph: Graph, node: Node) -> tuple[Call, ...] | str:
    found = refused_shape(graph, node) or proofs.weighted(graph, node)
    if isinstance(found, str):
        return found
    channels, scales = rescaled_v6m(found)
    refused = proofs.limit_weights(channels.weighted, *octets.LIMITS[bits])
    if refused is not None or isinstance(scales, str):
        return refused or str(scales)
    reach = _reach(channels.weighted, scales)
    if reach >= FIELD:
        return f"the accumulator can reach {reach}, 2^15 or more"
    return oriented_calls(
        graph, node, kernel, channels.weighted, partial(_facts, bits, channels.weighted, scales, reach)
    )


def _reach(w: Weighted, scales: Rescales) -> int:
    """The largest magnitude of an accumulator, with the bias that the kernel begins with."""
    lowest, highest = (accumulator - w.bias + scales.bias for accumulator in v6m.accumulators(w))
    return int(np.maximum(-lowest, highest).max())


def _facts(
    bits: int, w: Weighted, scales: Rescales, reach: int, weights: Array, params: Mapping[str, int], lines: Lines
) -> dict[str, Any]:
    """Constants, scratch memory, work and proof of a call that runs along these lines. weights: as `ordered` gives
    them."""
    return {
        "constants": {"stream": Constant("stream", packing.stream(pieces(bits, weights, scales)))},
        "scratch": lines.scratch,
        "work": lambda rows: _work(lines.of_rows(rows), params, scales),
        "proof": f"{w.text}; sums of products and bias reach {reach} in 16 bits",
    }


def pieces(bits: int, weights: Array, scales: Rescales) -> list[Array]:
    """Of the stream, per channel: the bias of both outputs, weights, the rescale."""
    words = pack(packing.padded(weights, 32 // bits), bits).view("<i4").reshape(len(weights), -1)
    both = packing.wrapped(scales.bias + (scales.bias << 16))
    parts = zip(both[:, None], words, packing.int32(scales.words), strict=True)
    return [piece for channel in parts for piece in channel]


def _work(lines: Lines, params: Mapping[str, int], scales: Rescales) -> dict[str, int]:
    """Those of all such kernels; rows of three products, and the ends of them where the kernel is not 3x3."""
    found = lines_work(lines, params)
    whole = lines.taps == STEP * STEP and lines.columns == 1
    return {
        **found,
        "long_rescales": found["pairs"] // params["out_c"] * scales.long,
        "steps": 0 if whole else found["pairs"] * lines.taps // STEP,
        "columns": 0 if whole else found["pairs"] * lines.columns,
    }


VARIANTS = tuple(
    Variant(f"depthwise_v6m_w{bits}", Isa.V6M, QConv2d, (kernel,), partial(lower, bits, kernel))
    for bits, kernel in KERNELS.items()
)
