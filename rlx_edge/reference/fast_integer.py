"""The int8 convolutions and matrix multiplies with float32 BLAS: the same bits as reference/integer.py, sooner.

A float32 holds every integer up to 2^24 exactly. Where the sum of |weight| times the largest |x - zero point| stays
below that in each output channel, so does every partial sum, in whatever order they are added: the accumulators are
exact. Any other layer runs in the reference, whose sums are made in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.dtype import WEIGHTS
from rlx_edge.ir.ops import Conv, Input, Layout, Leaf, QConv2d, QMatMul
from rlx_edge.reference import fast
from rlx_edge.reference.integer import requantize
from rlx_edge.reference.run import evaluate as evaluate_plainly
from rlx_edge.reference.run import observe as observe_with

EXACT = 1 << 24


def evaluate(graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
    """One node's value from its operands' values, the same bits as reference.run.evaluate; float32 ops by fast.py."""
    types = graph.operand_types(node)
    if not isinstance(node.op, QConv2d | QMatMul):
        return fast.evaluate(graph, node, operands)
    sums = _accumulators(node.op, operands) if types[0].dtype is DType.I8 and types[1].dtype in WEIGHTS else None
    if sums is None:
        return evaluate_plainly(graph, node, operands)
    return requantize(sums.astype(np.int64) + operands[2].astype(np.int64), node.op, types, node.type)


def _accumulators(op: QConv2d | QMatMul, operands: Sequence[Array]) -> Array | None:
    """Sums of products without the bias, whole numbers [..., C_out] in float32; None where these may be inexact."""
    x = operands[0].astype(np.float32) - np.float32(op.x_zp)
    weights = operands[1].astype(np.float32) - np.float32(op.w_zp)
    if not _exact(weights, op.x_zp, 0 if isinstance(op, QConv2d) else 1):
        return None
    if isinstance(op, QMatMul):
        return np.asarray(np.matmul(x, weights))
    if op.layout is not Layout.NHWC:
        return None
    plain = Conv(op.kernel_size, op.stride, op.padding, op.dilation, op.groups, op.layout)
    return fast.conv(plain, [x, weights])


def _exact(weights: Array, zero_point: int, axis: int) -> bool:
    """Whether float32 sums of products with any int8 x are exact; output channels lie along `axis`."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    largest = max(127 - zero_point, 128 + zero_point)
    return float(np.abs(weights.astype(np.float64)).sum(axis=others).max()) * largest < EXACT


def observe(graph: Graph, inputs: Mapping[str, Array], callback: Callable[[Node, Array], None]) -> None:
    """As reference.run.observe, with the same bits for int8 tensors."""
    observe_with(graph, inputs, callback, evaluate)


def run_all(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """As reference.run.run_all: every tensor that is computed or given, by name."""
    values: dict[str, Array] = {}

    def keep(node: Node, value: Array) -> None:
        if isinstance(node.op, Input) or not isinstance(node.op, Leaf):
            values[node.name] = value

    observe(graph, inputs, keep)
    return values
