"""A DequantMatMul as the float ops that it stands for, for what is about float graphs: calibration, quantization."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Binary, BinaryOp, Clamp, DequantMatMul, MatMul, Op
from rlx_edge.ir.ops.dequant import STORED
from rlx_edge.passes.rebuild import Ids, rebuild


def expand_dequant(graph: Graph) -> Graph:
    """The same float function, with the real values of the weights."""
    return rebuild(graph, _expanded)


def dequantized(codes: Array, scales: Array, zeros: Array, block: int) -> Array:
    """Real values float32 [K, N] of codes [K, N] in blocks along K."""
    places = np.arange(len(codes)) // block
    return np.asarray((codes.astype(np.float32) - zeros[places]) * scales[places], np.float32)


def _expanded(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    if not isinstance(node.op, DequantMatMul) or node.op.scheme.kind not in STORED:
        return None
    held = [graph.constant(operand) for operand in graph.operands(node)[1:]]
    codes, scales, zeros = (values for values in held[:3] if values is not None)
    real = dequantized(codes, scales, zeros, node.op.scheme.block_size)
    steps: list[tuple[Op, list[int]]] = [(MatMul(), [builder.param(f"{node.name}.weights", real)])]
    steps += [(Binary(BinaryOp.ADD), [ids[i]]) for i in node.inputs[4:]]
    steps += [(Clamp(*node.op.clamp), [])] if node.op.clamp is not None else []
    x = ids[node.inputs[0]]
    for index, (op, others) in enumerate(steps):
        last = index == len(steps) - 1
        name = node.name if last else f"{node.name}.{'product' if index == 0 else 'sum'}"
        x = builder.add(op, [x, *others], name, None, node.sources if last else ())
    return x
