"""Work per-channel scales and offsets into the convolution or matrix multiply before them.

Batch normalization is imported as Mul and Add by constants. A chain `anchor -> Mul, Div, Add, Sub by one constant a
channel` becomes one anchor with scaled weights and at most one Add, the bias. The sums are made in double precision.
"""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Graph, GraphBuilder
from rlx_edge.ir.ops import Binary, BinaryOp, MatMul
from rlx_edge.passes.affine import Affine, follow
from rlx_edge.passes.rebuild import Ids, builder_like, channel_axis, finish, is_anchor


def fold_batchnorm(graph: Graph) -> Graph:
    """The same function with scales and offsets folded into weights and biases."""
    found = (follow(graph, node) for node in graph.nodes if is_anchor(graph, node))
    chains = {chain.last.id: chain for chain in found if chain.length > 1 or chain.scales}
    if not chains:
        return graph
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        if node.id in chains:
            ids[node.id] = _fold(graph, chains[node.id], builder, ids)
        else:
            ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph)
    return finish(builder, [ids[i] for i in graph.outputs], graph)


def _fold(graph: Graph, chain: Affine, builder: GraphBuilder, ids: Ids) -> int:
    anchor, last = chain.start, chain.last
    weights = graph.constant(graph.nodes[anchor.inputs[1]])
    assert weights is not None
    # The output channel is the first axis of convolution weights, the last of matrix weights.
    along = chain.scale if isinstance(anchor.op, MatMul) else chain.scale.reshape(-1, *(1,) * (weights.ndim - 1))
    scaled = (weights.astype(np.float64) * along).astype(np.float32)
    w = builder.param(f"{graph.nodes[anchor.inputs[1]].name}.folded", scaled)
    operands = [ids[anchor.inputs[0]], w]
    if not chain.offset.any():
        return builder.add(anchor.op, operands, last.name, sources=last.sources)
    product = builder.add(anchor.op, operands, f"{last.name}.product")
    shape = [1] * len(anchor.type.shape)
    shape[channel_axis(anchor)] = -1
    bias = builder.param(f"{last.name}.bias", chain.offset.astype(np.float32).reshape(shape))
    return builder.add(Binary(BinaryOp.ADD), [product, bias], last.name, sources=last.sources)
