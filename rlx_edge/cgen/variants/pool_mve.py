"""Average pooling on Cortex-M55 and M85 (firmware/kernels/rlx_avg_pool_mve_s8.c)."""

from __future__ import annotations

from dataclasses import replace

from rlx_edge.cgen import kernels
from rlx_edge.cgen.lower_windows import pool as portable
from rlx_edge.cgen.plan import Call, proportional
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Pool

CHANNELS = 4

AVG_POOL = replace(kernels.AVG_POOL, name="rlx_avg_pool_mve_s8")
"""In the order of the portable kernel: a pixel after the other, its window read again for each few channels."""


def pool(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The calls of a mean over windows, or why not."""
    calls = portable(graph, node)
    if any(call.kernel is not kernels.AVG_POOL for call in calls):
        return "it is no mean in integers"
    p = calls[0].params
    pixels = calls[0].rows * p["out_w"]
    groups = pixels * -(-p["channels"] // CHANNELS)
    work = dict(pixels=pixels, groups=groups, rows=groups * p["k_h"], taps=groups * p["k_h"] * p["k_w"])
    work |= dict(outputs=pixels * p["channels"])
    proof = "the sums and divisions of rlx_avg_pool_s8"
    return tuple(replace(call, kernel=AVG_POOL, work=proportional(work, calls[0].rows), proof=proof) for call in calls)


VARIANTS = (Variant("pool_mve", Isa.MVE, Pool, (AVG_POOL,), pool),)
