"""Weights of dense layers in 8 or 4 bits with a scale a block; activations stay float32. Nothing is calibrated.

For cores with an FPU, where a network of dense layers is bound by the flash that its weights take, or reads inputs
whose range nobody knows ahead of time.
"""

from __future__ import annotations

import numpy as np

from rlx_edge.errors import ModelError
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import DequantMatMul, MatMul, QuantScheme, SchemeKind
from rlx_edge.passes.fuse_dequant import fuse_dequant
from rlx_edge.passes.pipeline import clean
from rlx_edge.passes.rebuild import Ids, rebuild
from rlx_edge.quant.schemes import SMALLEST_SCALE, WEIGHT_MAX
from rlx_edge.reference.fixedpoint import round_half_away

BLOCK = 32
"""Weights that share a scale, by default."""

KINDS = {8: SchemeKind.INT8_BLOCK, 4: SchemeKind.INT4_BLOCK}
DTYPES = {8: DType.I8, 4: DType.I4}

SHRINKS = np.linspace(1.0, 0.7, 13)
"""Shares of a block's largest weight that its largest code may stand for: that of the least squared error is taken."""


def weights_only(graph: Graph, bits: int, block: int = BLOCK) -> Graph:
    """The float graph with its matrix products of constant weights [K, N] in blocks of `block` along K.

    Raises ModelError for other widths than 8 and 4, and where no layer has such weights.
    """
    if bits not in KINDS or block < 1:
        raise ModelError(
            f"weights of {bits} bits in blocks of {block}: 8 and 4 bits, and blocks of 1 or more, there are"
        )

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        w = graph.constant(graph.nodes[node.inputs[1]]) if isinstance(node.op, MatMul) else None
        x = graph.nodes[node.inputs[0]] if node.inputs else node
        if w is None or w.ndim != 2 or w.dtype != np.float32 or len(x.type.shape) != 2 or not np.isfinite(w).all():
            return None
        size = min(block, len(w))
        codes, scales = quantize_blocks(w, bits, size)
        name = graph.nodes[node.inputs[1]].name
        operands = [
            ids[node.inputs[0]],
            builder.param(f"{name}.codes", codes, dtype=DTYPES[bits]),
            builder.param(f"{name}.scale", scales),
            builder.param(f"{name}.zero_point", np.zeros_like(scales)),
        ]
        op = DequantMatMul(QuantScheme(KINDS[bits], size))
        return builder.add(op, operands, node.name, None, node.sources)

    made = rebuild(clean(graph), rule)
    if not any(isinstance(node.op, DequantMatMul) for node in made.nodes):
        raise ModelError(
            f"{graph.name!r} has no dense layer with constant weights, whose weights alone could be quantized"
        )
    return fuse_dequant(made)


def quantize_blocks(w: Array, bits: int, block: int) -> tuple[Array, Array]:
    """Codes int8 [K, N] and scales float32 [ceil(K / block), N] of weights float32 [K, N]."""
    most, blocks = WEIGHT_MAX[bits], -(-len(w) // block)
    padded = np.zeros((blocks * block, w.shape[1]))
    padded[: len(w)] = w
    rows = padded.reshape(blocks, block, -1)
    largest = np.abs(rows).max(axis=1)
    best, scales = np.full(largest.shape, np.inf), np.ones(largest.shape, np.float32)
    for shrink in SHRINKS:
        tried = np.maximum(largest * shrink / most, SMALLEST_SCALE).astype(np.float32)
        error = ((_codes(rows, tried, most) * tried[:, None] - rows) ** 2).sum(axis=1)
        scales, best = np.where(error < best, tried, scales), np.minimum(error, best)
    codes = _codes(rows, scales, most).reshape(blocks * block, -1)[: len(w)]
    return np.ascontiguousarray(codes.astype(np.int8)), scales


def _codes(rows: Array, scales: Array, most: int) -> Array:
    return np.asarray(np.clip(round_half_away(rows / scales[:, None].astype(np.float64)), -most, most))
