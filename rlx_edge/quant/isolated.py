"""What each int8 layer loses by itself: on float inputs, rounded to its input parameters, with its exact integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Input, Leaf
from rlx_edge.reference.fast_integer import evaluate
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32


def run_isolated(graph: Graph, expected: Mapping[str, Array], callback: Callable[[Node, Array], None]) -> None:
    """Call `callback(node, real values)` for each computed node of an int8 graph that `expected` has by name.

    `expected` holds the float model's values. Every such node is computed from its operands' float values, rounded to
    their parameters; operands that only the int8 graph has (a requantization, say) are computed the same way.
    """
    rounded: dict[int, Array] = {}
    last_use = {operand: node.id for node in graph.nodes for operand in node.inputs}
    for node in graph.nodes:
        constant = graph.constant(node)
        if constant is not None:
            rounded[node.id] = constant
            continue
        known = expected.get(node.name)
        if not isinstance(node.op, Leaf):
            value = evaluate(graph, node, [rounded[i] for i in node.inputs])
            if known is not None:
                callback(node, real(node, value))
            rounded[node.id] = value
        if known is not None:
            rounded[node.id] = known if node.type.quant is None else quantize_f32(known, node.type.quant)
        elif isinstance(node.op, Input):
            raise ValueError(f"no float values for the input {node.name!r}")
        for operand in {*node.inputs, node.id}:
            if last_use.get(operand, node.id) <= node.id:
                rounded.pop(operand, None)


def real(node: Node, values: Array) -> Array:
    """The real values of a node's values."""
    return values if node.type.quant is None else dequantize_f32(values, node.type.quant)
