"""Weights that a float ONNX model stores as integers behind DequantizeLinear."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Graph, GraphBuilder, Node, QuantParams
from rlx_edge.ir.dtype import WEIGHTS
from rlx_edge.ir.ops import Dequantize


def is_int8(node: Node) -> bool:
    """Whether a node holds int8, or weights of fewer bits, that stand for real values."""
    return node.type.dtype in WEIGHTS and node.type.quant is not None


def dequantize_weights(graph: Graph) -> Graph:
    """The float model with the real values that the integers stand for; no computed tensor of it is int8."""
    builder, ids = GraphBuilder(graph.name), dict[int, int]()
    builder.metadata.update(graph.metadata)
    for node in graph.nodes:
        if isinstance(node.op, Dequantize):
            values = graph.constant(graph.nodes[node.inputs[0]])
            assert values is not None
            scales, zeros = QuantParams(node.op.scales, node.op.zero_points, node.op.axis).broadcast(values.ndim)
            real = ((values.astype(np.int64) - zeros) * scales).astype(np.float32)
            ids[node.id] = builder.param(node.name, real, sources=node.sources)
        elif not is_int8(node):
            ids[node.id] = builder.copy(node, [ids[i] for i in node.inputs], graph)
    return builder.build([ids[i] for i in graph.outputs])
