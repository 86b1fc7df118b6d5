"""Turn per-channel scales that no convolution took in into a 1x1 depthwise convolution.

Batch normalization after an activation cannot be folded into the convolution before it. As Mul and Add by int8
constants it would be rounded twice, and its small channels badly; as a depthwise convolution it has a scale a channel,
an int32 bias, and one rounding.
"""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import DType, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, Layout
from rlx_edge.passes.affine import Affine, follow
from rlx_edge.passes.rebuild import Ids, builder_like, channel_axis, constant_operand, finish


def scale_to_depthwise(graph: Graph) -> Graph:
    """The same function; looks at tensors of rank 4 with the channels last (run it after to_nhwc)."""
    chains: dict[int, Affine] = {}
    for node in graph.nodes:
        chain = _chain_from(graph, node)
        if chain is not None and chain.scales:
            chains.setdefault(chain.last.id, chain)  # The longest: chains that start later end at the same node.
    if not chains:
        return graph
    builder, ids = builder_like(graph), Ids()
    for node in graph.nodes:
        if node.id in chains:
            ids[node.id] = _convolution(chains[node.id], builder, ids)
        else:
            ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph)
    return finish(builder, [ids[i] for i in graph.outputs], graph)


def _chain_from(graph: Graph, node: Node) -> Affine | None:
    if not isinstance(node.op, Binary) or len(node.type.shape) != 4 or node.type.dtype is not DType.F32:
        return None
    found = constant_operand(graph, node)
    start = None if found is None else graph.nodes[node.inputs[1 - found[0]]]
    return None if start is None or channel_axis(start) != 3 else follow(graph, start, node)


def _convolution(chain: Affine, builder: GraphBuilder, ids: Ids) -> int:
    channels, last = len(chain.scale), chain.last
    op = Conv((1, 1), (1, 1), (0, 0), (1, 1), channels, Layout.NHWC)
    w = builder.param(f"{last.name}.scale", chain.scale.astype(np.float32).reshape(channels, 1, 1, 1))
    operands = [ids[chain.start.id], w]
    if not chain.offset.any():
        return builder.add(op, operands, last.name, sources=last.sources)
    product = builder.add(op, operands, f"{last.name}.product")
    bias = builder.param(f"{last.name}.bias", chain.offset.astype(np.float32).reshape(1, 1, 1, channels))
    return builder.add(Binary(BinaryOp.ADD), [product, bias], last.name, sources=last.sources)
