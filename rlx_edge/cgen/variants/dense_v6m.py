"""Matrix products on Cortex-M0 and M0+: two output channels per multiply (firmware/kernels/rlx_dense_v6m_s8.c)."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import rowwise_order
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing, proofs, v6m
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.v6m import Rescales
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QMatMul

GROUP, CHUNK, TAPS = 64, 128, 4
"""Channels that are computed together, inputs that are in scratch, inputs of a block."""
BLOCK_BYTES = 20
BIAS = 128
"""Added to the weights, so that a mask takes two of them out of a word."""

DENSE = Kernel(
    "rlx_dense_v6m_s8",
    "rlx_dense_v6m_t",
    ("stream",),
    ("in_c", "out_c", "low", "high"),
    stack_bytes=512,
    scratch=True,
    order=rowwise_order,
)


def split(pair: Array) -> list[list[Array]] | str:
    """Runs of blocks for two channels [2, inputs]: int8 [2, 4] each. A run begins with the inputs of the last block
    of the one before, whose four products do not fit in one group together. Or why two products do not."""
    blocks = packing.padded(pair, TAPS).reshape(2, -1, TAPS).swapaxes(0, 1)  # [blocks, 2, 4]
    fits = np.asarray(v6m.groups_fit(blocks).all(axis=1))
    if not v6m.groups_fit(blocks.reshape(-1, 2, 2, 2)).all():
        return "two neighboring weights of -128 leave 16 bits"
    runs: list[list[Array]] = [[]]
    for block, whole in zip(blocks, fits, strict=True):
        if whole:
            runs[-1].append(block)
        else:
            first = np.array([1, 1, 0, 0], np.int8)
            runs[-1].append(block * first)
            runs.append([block * (1 - first)])
    return runs


def run_words(run: list[Array]) -> list[Array]:
    """A run in the stream: its bytes of activations, and two words a block."""
    blocks = np.array(run).astype(np.int64) + BIAS  # [blocks, 2, 4]
    words = blocks.reshape(-1, 2, 2, 2).swapaxes(1, 2)  # [blocks, half, channel, input]
    return [packing.int32([BLOCK_BYTES * len(run)]), words.astype(np.uint8).view(np.int8)]


def pack(w: Weighted, scales: Rescales) -> tuple[Array, int] | str:
    """The stream that the kernel's comment describes, and how many blocks it has."""
    odd = len(w.rows) % 2
    rows = np.concatenate([w.rows, np.zeros((odd, w.rows.shape[1]), np.int8)])
    bias = np.concatenate([scales.bias, np.zeros(odd, np.int64)])
    pieces: list[Array] = []
    total = 0
    for group in range(0, len(rows), GROUP):
        end = min(group + GROUP, len(rows))
        counts, chunks = np.zeros((end - group) // 2, np.int64), []
        for chunk in range(0, rows.shape[1], CHUNK):
            for pair in range(group, end, 2):
                runs = split(rows[pair : pair + 2, chunk : chunk + CHUNK])
                if isinstance(runs, str):
                    return runs
                counts[(pair - group) // 2] += sum(len(run) for run in runs)
                chunks += [piece for run in runs for piece in run_words(run)] + [packing.int32([0])]
        firsts = v6m.first_pairs(bias[group:end:2], bias[group + 1 : end : 2], counts)
        pieces += [packing.int32(firsts), *chunks, packing.int32(scales.words[group:end])]
        total += int(counts.sum())
    return packing.stream(pieces), total


def dense(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_dense_v6m_s8, or why it cannot compute the node."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QMatMul)
    w = proofs.weighted(graph, node)
    if isinstance(w, str):
        return w
    channels = v6m.channels(w)
    w = channels.weighted
    scales = v6m.rescales(channels)
    if isinstance(scales, str):
        return scales
    packed = pack(w, scales)
    if isinstance(packed, str):
        return packed
    stream, blocks = packed
    rows, in_c = x.type.shape
    out_c = len(w.rows)
    params = {"in_c": in_c, "out_c": out_c, **bounds(op.clamp)}
    scratch = BLOCK_BYTES * -(-min(in_c, CHUNK) // TAPS) + 8 * -(-min(out_c, GROUP) // 2)
    pairs, groups, chunks = -(-out_c // 2), -(-out_c // GROUP), -(-in_c // CHUNK)
    whole = pairs * sum(-(-min(CHUNK, in_c - first) // TAPS) for first in range(0, in_c, CHUNK))
    work = {
        "blocks": rows * blocks,
        "runs": rows * (pairs * chunks + blocks - whole),
        "pairs": rows * pairs * chunks,
        "outputs": rows * out_c,
        "long_rescales": rows * scales.long,
        "expanded": rows * groups * in_c,
        "groups": rows * groups * (1 + chunks),
    }
    proof = f"{w.text}; {blocks - whole} of {whole} groups of four products are halved to fit in 16 bits"
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    constants = {"stream": Constant("stream", stream)}
    return (Call(DENSE, params, (source,), target, rows, constants, scratch, proportional(work, rows), proof),)


VARIANTS = (Variant("dense_v6m", Isa.V6M, QMatMul, (DENSE,), dense),)
