"""From a node to the kernel calls that compute it: one table, op kind -> function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_edge.cgen import lower_custom, lower_dequant, lower_elementwise, lower_moves, lower_reductions, lower_windows
from rlx_edge.cgen.plan import Call, Step
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Dequantize,
    DequantMatMul,
    Expand,
    Leaf,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Softmax,
    Transpose,
)
from rlx_edge.ir.ops.control import Custom

LOWER: dict[type[Op], Callable[[Graph, Node], tuple[Call, ...]]] = {
    QConv2d: lower_windows.conv,
    QMatMul: lower_windows.dense,
    DequantMatMul: lower_dequant.dequant_matmul,
    Pool: lower_windows.pool,
    Binary: lower_elementwise.binary,
    Quantize: lower_elementwise.quantize,
    Dequantize: lower_elementwise.dequantize,
    Activation: lower_elementwise.activation,
    Clamp: lower_elementwise.clamp,
    Reduce: lower_reductions.mean,
    Softmax: lower_reductions.softmax,
    Reshape: lambda graph, node: (),
    Transpose: lower_moves.transpose,
    Narrow: lower_moves.narrow,
    Slice: lower_moves.slice,
    Expand: lower_moves.expand,
    Reverse: lower_moves.reverse,
    Pad: lower_moves.pad,
    Concat: lower_moves.concat,
    Custom: lower_custom.custom,
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to compute a node: the variant's name ("portable" always exists) and its calls."""

    variant: str
    calls: tuple[Call, ...]


def candidates(graph: Graph, node: Node, isas: Sequence[Isa]) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """All ways to compute a node with these instruction sets, and why the other variants cannot, a line each."""
    found, reasons = [], []
    for variant in VARIANTS:
        if variant.isa in isas and isinstance(node.op, variant.op):
            calls = variant.lower(graph, node)
            if isinstance(calls, str):
                reasons.append(f"{variant.name}: {calls}")
            else:
                found.append(Candidate(variant.name, calls))
    return (*found, Candidate("portable", LOWER[type(node.op)](graph, node))), tuple(reasons)


def lower(graph: Graph) -> tuple[Step, ...]:
    """A step of portable kernels per computed node, in the graph's order. The graph must be legal for its target."""
    return tuple(
        Step(node.id, LOWER[type(node.op)](graph, node)) for node in graph.nodes if not isinstance(node.op, Leaf)
    )
