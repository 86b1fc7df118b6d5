"""Nodes whose result's code depends on one operand's code alone: a table of 256 entries says all about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, DType, Graph, Node, TensorType
from rlx_edge.ir.ops import Activation, Binary, Clamp, Dequantize, Quantize
from rlx_edge.reference.run import evaluate

CODES = np.arange(-128, 128).astype(np.int8)


def function_of(graph: Graph, node: Node) -> Node | None:
    """The computed operand of an elementwise int8 node with no other (a constant may be one number); else None."""
    computed = [operand for operand in graph.operands(node) if graph.constant(operand) is None]
    if len(computed) != 1 or not is_elementwise(graph, node):
        return None
    return computed[0] if holds_codes(computed[0].type) and holds_codes(node.type) else None


def table_of(graph: Graph, node: Node) -> Array:
    """int8 [256]: the node's code for each code of its computed operand, -128 first, as the reference has it."""
    return values_on(graph, node, [CODES])


def values_on(graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
    """The values of an elementwise node for values of its computed operands, in their order."""
    rest = iter(operands)
    constants = (graph.constant(operand) for operand in graph.operands(node))
    full = [next(rest) if values is None else np.full(1, values.reshape(-1)[0], values.dtype) for values in constants]
    return evaluate(graph, node, full)


def is_elementwise(graph: Graph, node: Node) -> bool:
    """Whether every element depends on the same element of each computed operand, and on numbers, alone."""
    if isinstance(node.op, Quantize | Dequantize):
        return node.op.axis is None
    if isinstance(node.op, Activation | Clamp):
        return True
    if not isinstance(node.op, Binary):
        return False
    constants = ((operand, graph.constant(operand)) for operand in graph.operands(node))
    return all(
        operand.type.shape == node.type.shape if values is None else _is_number(values) for operand, values in constants
    )


def _is_number(values: Array) -> bool:
    """Whether all elements of a constant are equal."""
    return bool((values == values.reshape(-1)[0]).all())


def holds_codes(type: TensorType) -> bool:
    """Whether a tensor is int8 and stands for real values with one scale."""
    return type.dtype is DType.I8 and type.quant is not None and type.quant.axis is None
