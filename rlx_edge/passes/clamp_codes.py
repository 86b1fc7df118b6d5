"""Bounds of int8 codes go into the op that makes the codes, and go where they bound nothing.

What only bounds codes (a Clamp, a Relu's table, a requantization to the same parameters) is told by its 256 results
over the codes that its operand can hold, not by its name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Op, Reshape, Transpose
from rlx_edge.passes.code_functions import CODES, function_of, table_of
from rlx_edge.passes.code_ranges import HIGHEST, LOWEST, Clamped, Codes, Ranges, code_ranges, unclamped
from rlx_edge.passes.rebuild import Ids, only_user, rebuild

Bounds = tuple[int, int]


def clamp_codes(graph: Graph) -> Graph:
    """The same function, to the last bit, with fewer clamps. Outputs keep their names."""
    if not any(_bounds_codes(graph, node) for node in graph.nodes):
        return graph
    ranges = code_ranges(graph)

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        return _rule(graph, node, builder, ids, ranges)

    return rebuild(graph, rule)


def _bounds_codes(graph: Graph, node: Node) -> bool:
    return (isinstance(node.op, Clamped) and node.op.clamp is not None) or function_of(graph, node) is not None


def _rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids, ranges: Ranges) -> int | None:
    found = clamp_of(graph, node, ranges)
    if found is None:
        return _without_clamp(graph, node, builder, ids, ranges)
    x, bounds = found
    if bounds == (LOWEST, HIGHEST) and node.id not in graph.outputs:
        return ids[x.id]
    made = builder[ids[x.id]]
    if only_user(graph, x) is not node or made.name != x.name:  # Of another name: it stands for x, and has others.
        return None
    if isinstance(made.op, Clamped):
        op = _with_clamp(made.op, bounds)
        return builder.add(op, made.inputs, node.name, node.type.quant, node.sources)
    if isinstance(made.op, Reshape | Transpose):
        inner = builder[made.inputs[0]]
        bounded = builder.add(node.op, [inner.id], f"{inner.name}.bounded", node.type.quant)
        return builder.add(made.op, [bounded], node.name, node.type.quant, node.sources)
    return None


def clamp_of(graph: Graph, node: Node, ranges: Ranges) -> tuple[Node, Bounds] | None:
    """(operand, bounds) of a node that only bounds its operand's codes; (-128, 127) where these bound nothing."""
    x = function_of(graph, node)
    if x is None or x.type != node.type:
        return None
    low, high = _limits(ranges[x.id])
    part = slice(low - LOWEST, high - LOWEST + 1)
    table, codes = table_of(graph, node)[part].astype(np.int64), CODES[part].astype(np.int64)
    bounds = int(table.min()), int(table.max())
    if not (table == codes.clip(*bounds)).all():
        return None
    return x, (bounds[0] if bounds[0] > low else LOWEST, bounds[1] if bounds[1] < high else HIGHEST)


def _limits(codes: Codes) -> Bounds:
    return int(codes.low.min()), int(codes.high.max())


def _with_clamp(op: Clamped, bounds: Bounds) -> Op:
    low, high = op.clamp or (LOWEST, HIGHEST)
    return replace(op, clamp=(min(max(low, bounds[0]), bounds[1]), min(max(high, bounds[0]), bounds[1])))


def _without_clamp(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids, ranges: Ranges) -> int | None:
    """The op without a clamp that its result keeps anyway, so that plain kernels serve it."""
    if not isinstance(node.op, Clamped) or node.op.clamp is None or node.id not in ranges:
        return None
    free = unclamped(graph, node, ranges)
    (low, high), bounds = _limits(free), node.op.clamp
    if low < bounds[0] or high > bounds[1]:
        return None
    operands = [ids[i] for i in node.inputs]
    return builder.add(replace(node.op, clamp=None), operands, node.name, node.type.quant, node.sources)
