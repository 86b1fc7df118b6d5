"""Work a padding into the convolution or pooling that reads it, where every value stays what it is.

A convolution's own padding is 0, so zeros fold into it. In a maximum, padding never wins: a value folds that is no
larger than any that the tensor can hold. A mean over windows counts padded zeros only with `count_include_pad`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Conv, Layout, Op, Pad, PadMode, Pool, QConv2d, ReduceOp
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.passes.bounds import Bounds, value_bounds
from rlx_edge.passes.merge_clamps import FLOAT_MAX
from rlx_edge.passes.rebuild import Ids, rebuild


def fold_pad(graph: Graph) -> Graph:
    """The same function, to the last bit, also for int8 convolutions and maxima, with paddings folded."""
    if not any(isinstance(node.op, Pad) for node in graph.nodes):
        return graph
    values = value_bounds(graph)
    folded = {node.id: op for node in graph.nodes if (op := _folded(graph, node, values)) is not None}

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        if node.id not in folded:
            return None
        unpadded = graph.nodes[node.inputs[0]].inputs[0]
        operands = [ids[unpadded], *(ids[i] for i in node.inputs[1:])]
        return builder.add(folded[node.id], operands, node.name, node.type.quant, node.sources)

    return rebuild(graph, rule) if folded else graph


def _folded(graph: Graph, node: Node, values: list[Bounds]) -> Op | None:
    """The op with the padding before it worked in, or None where that cannot be."""
    op = node.op
    if not isinstance(op, Conv | QConv2d | Pool):
        return None
    pad = graph.nodes[node.inputs[0]]
    if not isinstance(pad.op, Pad) or pad.op.mode is not PadMode.CONSTANT or len(pad.op.pads) != 4:
        return None
    x = graph.nodes[pad.inputs[0]]
    if x.type.quant != pad.type.quant:
        return None
    channels, rows, columns = _image_axes(pad.op, op.layout)
    if pad.op.pads[0] != (0, 0) or channels != (0, 0):
        return None
    top, left, bottom, right = pad_sides(op.padding)
    wider = replace(op, padding=(top + rows[0], left + columns[0], bottom + rows[1], right + columns[1]))
    if isinstance(wider, Pool):
        return _pool(wider, pad.op.value, _lowest(x, values), node)
    return wider if pad.op.value == 0.0 else None


def _image_axes(op: Pad, layout: Layout) -> tuple[tuple[int, int], ...]:
    """The padding of channels, rows and columns."""
    _, a, b, c = op.pads
    return (a, b, c) if layout is Layout.NCHW else (c, a, b)


def _lowest(x: Node, values: list[Bounds]) -> float:
    """No value of the tensor is smaller. On int8, -128 is the lowest code, and 0 is the zero point."""
    if x.type.quant is None:
        return max(values[x.id][0], -FLOAT_MAX)
    return 0.0 if set(x.type.quant.zero_points) == {-128} else -math.inf


def _pool(wider: Pool, value: float, lowest: float, node: Node) -> Pool | None:
    if max(wider.padding[0], wider.padding[2]) >= wider.kernel_size[0]:
        return None  # Some window would hold no pixel.
    if max(wider.padding[1], wider.padding[3]) >= wider.kernel_size[1]:
        return None
    if wider.kind is ReduceOp.MAX:
        return wider if value <= lowest else None
    if wider.kind is not ReduceOp.MEAN or value != 0.0 or node.type.quant is not None:
        return None
    assert isinstance(node.op, Pool)
    counted = node.op.count_include_pad or not any(node.op.padding)
    return replace(wider, count_include_pad=True) if counted else None
