"""What a person should know of a calibration: tensors and weights of which int8 keeps little or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlx_edge.ir import Graph, Node, QuantParams
from rlx_edge.ir.ops import Binary, Conv, MatMul
from rlx_edge.passes.fuse import Fusion, find_fusions, fused_away
from rlx_edge.quant.assign import OWN_RANGE, assign_params
from rlx_edge.quant.observers import Range
from rlx_edge.quant.schemes import SMALLEST_SCALE, quantize_weights
from rlx_edge.reference.fixedpoint import quantize_f32


def findings(graph: Graph, ranges: Mapping[str, Range]) -> Iterator[str]:
    """One line for each tensor that never varies, and for each tensor or layer whose values become 0 throughout."""
    fusions = find_fusions(graph)
    params = assign_params(graph, fusions, ranges)
    inside = fused_away(graph, fusions)
    for node in graph.nodes:
        if node.id in inside:
            continue
        values = graph.constant(node)
        if values is not None:
            if any(isinstance(graph.nodes[user].op, Binary) for user in graph.users[node.id]):
                yield from _vanished(node, Range(float(values.min()), float(values.max())), params[node.id])
        elif isinstance(node.op, OWN_RANGE):
            yield from _tensor(node, ranges[node.name], params[node.id])
        if node.id in fusions:
            yield from _weights(graph, fusions[node.id], params)


def _tensor(node: Node, known: Range, quant: QuantParams) -> Iterator[str]:
    vanished = list(_vanished(node, known, quant))
    yield from vanished
    if known.is_constant and node.type.elements > 1 and not vanished:
        scale = "a scale of 1" if known.low == 0 else "a scale that covers 0 and this value"
        yield f"{node} is {known.low:g} in every sample; it gets {scale}"


def _vanished(node: Node, known: Range, quant: QuantParams) -> Iterator[str]:
    """Whether a tensor that is not 0 is all 0 at its parameters."""
    bounds = np.array([known.low, known.high], np.float32)
    if (known.low or known.high) and np.all(quantize_f32(bounds, quant) == quant.zero_point):
        largest = max(-known.low, known.high)
        yield f"{node} reaches {largest:g} only, too little for its scale of {quant.scale:g}: it becomes 0 throughout"


def _weights(graph: Graph, fusion: Fusion, params: Mapping[int, QuantParams]) -> Iterator[str]:
    """Output channels whose weights are not 0 but become 0."""
    anchor = fusion.anchor
    values = graph.constant(graph.nodes[anchor.inputs[1]]) if isinstance(anchor.op, Conv | MatMul) else None
    if values is None or (isinstance(anchor.op, MatMul) and values.ndim != 2):
        return
    axis = 0 if isinstance(anchor.op, Conv) else 1
    bias = np.zeros(values.shape[axis]) if fusion.bias is None else fusion.bias
    made = quantize_weights(values, axis, bias, params[anchor.inputs[0]].scale)
    others = tuple(i for i in range(values.ndim) if i != axis)
    lost = int(np.sum(values.any(axis=others) & ~made.weights.any(axis=others)))
    if lost:
        yield (
            f"{anchor}: the weights of {lost} of {len(bias)} output channels become 0: they are too small for the "
            f"smallest scale, {SMALLEST_SCALE:g}, or beside their bias"
        )
