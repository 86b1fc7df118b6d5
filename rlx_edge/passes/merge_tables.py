"""Chains of elementwise int8 ops become one table of 256 codes, made by the reference.

A requantization of a requantization, an Add or Mul with a number, Dequantize before Quantize, x times its own sigmoid:
wherever each code of the result follows from one code of one tensor, a look-up gives it, whatever was between.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir import Array, FrozenTable, Graph, GraphBuilder, Node, Requant
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, Dequantize, Leaf, Quantize
from rlx_edge.passes.code_functions import CODES, holds_codes, is_elementwise, values_on
from rlx_edge.passes.rebuild import Ids, only_user, rebuild


def merge_tables(graph: Graph) -> Graph:
    """The same function, to the last bit, with one look-up where several elementwise ops were. Outputs keep names."""
    found = {node.id: table for node in graph.nodes if (table := _table(graph, node)) is not None}

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        table = found.get(node.id)
        if table is None:
            return None
        op = Activation(ActivationFn.TABLE, requant=table.rule, frozen=FrozenTable(tuple(map(int, table.values))))
        return builder.add(op, [ids[table.root]], node.name, node.type.quant, node.sources)

    return rebuild(graph, rule) if found else graph


@dataclass(frozen=True, eq=False)
class _Expression:
    """A node's values for each of the 256 codes of the tensor `root`, and how many ops lie between."""

    root: int
    values: Array
    ops: int
    rule: Requant


def _table(graph: Graph, node: Node) -> _Expression | None:
    """What can stand for the node: more than one op, or an op whose kernel does more than look a code up."""
    if not holds_codes(node.type) or not isinstance(node.op, Binary | Activation | Quantize):
        return None
    found = _expression(graph, node)
    if found is None or (found.ops < 2 and not isinstance(node.op, Binary)):
        return None
    return found


def _expression(graph: Graph, node: Node) -> _Expression | None:
    """The node as a function of one int8 tensor, through operands that nothing else reads."""
    if isinstance(node.op, Leaf) or not is_elementwise(graph, node):
        return None
    operands = [operand for operand in graph.operands(node) if graph.constant(operand) is None]
    inner = [_absorbed(graph, node, operand) for operand in operands]
    for sides in (inner, *_mixed(operands, inner), [_itself(operand) for operand in operands]):
        known = [side for side in sides if side is not None]
        if len(known) == len(sides) and len({side.root for side in known}) == 1:
            values = values_on(graph, node, [side.values for side in known])
            ops = 1 + sum(side.ops for side in {id(side): side for side in known}.values())
            rule = getattr(node.op, "requant", known[0].rule)
            return _Expression(known[0].root, values, ops, rule)
    return None


def _absorbed(graph: Graph, node: Node, operand: Node) -> _Expression | None:
    """The operand as a function of what it reads, where it would not be needed any more, or holds no codes."""
    if isinstance(operand.op, Dequantize) or only_user(graph, operand) is node:
        return _expression(graph, operand)
    return None


def _itself(node: Node) -> _Expression | None:
    return _Expression(node.id, CODES, 0, Requant.TFLM) if holds_codes(node.type) else None


def _mixed(operands: list[Node], inner: list[_Expression | None]) -> list[list[_Expression | None]]:
    """Of two operands one as it is, the other as a function: x times a function of x."""
    if len(operands) != 2:
        return []
    a, b = operands
    return [[_itself(a), inner[1]], [inner[0], _itself(b)]]
