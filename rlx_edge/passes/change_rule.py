"""The same int8 graph under another rounding rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Graph, GraphBuilder, Node, QuantParams, Requant
from rlx_edge.ir.nested import change_bodies
from rlx_edge.ir.ops import Activation, ActivationFn, Op, Quantize, Softmax
from rlx_edge.passes.rebuild import Ids, builder_like
from rlx_edge.reference.fixedpoint import freeze, rules_of

SOFTMAX_OUTPUT = QuantParams.per_tensor(1 / 256, -128)
"""What TensorFlow Lite's rules ask of a softmax."""


def change_rule(graph: Graph, rule: Requant) -> Graph:
    """The graph with every op that rounds under `rule`; scales, zero points and names stay.

    Where the rule fixes a softmax's output parameters and the graph has others, the softmax is computed at the fixed
    ones and requantized. A function whose kernel fixes them becomes a table made by the rule `rlx`, which every target
    looks up. Raises UnsupportedError listing every op that cannot follow the rule.
    """
    graph = change_bodies(graph, lambda body: change_rule(body, rule))
    builder, ids = builder_like(graph), Ids()
    problems: list[str] = []
    for node in graph.nodes:
        operands = [ids[i] for i in node.inputs]
        try:
            ids[node.id] = _changed(graph, node, rule, operands, builder)
        except UnsupportedError as error:
            problems.append(f"{node}: {error}")
            ids[node.id] = builder.copy(node, operands, graph)
    if problems:
        raise UnsupportedError(f"{graph.name!r} cannot follow the rule {rule.value!r} (docs/numerics.md):", problems)
    return builder.build([ids[i] for i in graph.outputs])


def _changed(graph: Graph, node: Node, rule: Requant, operands: list[int], builder: GraphBuilder) -> int:
    if not hasattr(node.op, "requant") or (isinstance(node.op, Activation) and node.op.fn is ActivationFn.TABLE):
        return builder.copy(node, operands, graph)
    if rule not in rules_of(type(node.op)):
        raise UnsupportedError(f"no rounding rule {rule.value!r}")
    op, types = _under(node.op, rule), graph.operand_types(node)
    try:
        freeze(op, types, node.type)
    except UnsupportedError:
        if isinstance(op, Activation):
            op = _under(op, Requant.RLX)
        elif isinstance(op, Softmax) and node.type.quant not in (None, SOFTMAX_OUTPUT):
            return _softmax(node, op, rule, operands, builder)
        else:
            raise
    return builder.copy(replace(node, op=op), operands, graph)


def _under(op: Op, rule: Requant) -> Op:
    changes: dict[str, Any] = {"requant": rule, "frozen": None} if hasattr(op, "frozen") else {"requant": rule}
    return replace(op, **changes)


def _softmax(node: Node, op: Op, rule: Requant, operands: list[int], builder: GraphBuilder) -> int:
    assert node.type.quant is not None
    fixed = builder.add(op, operands, f"{node.name}.softmax", SOFTMAX_OUTPUT)
    freeze(op, [builder[i].type for i in operands], builder[fixed].type)
    return builder.add(Quantize.to(node.type.quant, rule), [fixed], node.name, node.type.quant, node.sources)
