"""What one node is replaced by, in the making."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rlx_edge.ir import Array, Graph, GraphBuilder, Node, Shape
from rlx_edge.ir.ops import Concat, Expand, Narrow, Op, Reshape
from rlx_edge.passes.rebuild import Ids, rebuild

PartRule = Callable[["Parts"], int | None]
"""Builds what has a node's result, and returns its id; None where there is no exact form."""


def replace_kinds(graph: Graph, rules: Mapping[type[Op], PartRule]) -> Graph:
    """The same function without the kinds of `rules`, wherever these have an exact form."""

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        found, before = rules.get(type(node.op)), len(builder)
        made = None if found is None else found(Parts(graph, node, builder, ids))
        if made is not None and made >= before:
            builder.rename(made, node.name, node.sources)
        return made

    return rebuild(graph, rule)


class Parts:
    """Every part that only moves elements has the node's quantization parameters."""

    def __init__(self, graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> None:
        self.graph, self.node, self.builder = graph, node, builder
        self.operands = [ids[i] for i in node.inputs]

    def shape(self, part: int) -> Shape:
        return self.builder[part].type.shape

    def add(self, op: Op, *operands: int) -> int:
        name = f"{self.node.name}.{op.kind_name.lower()}"
        return self.builder.add(op, operands, name, self.node.type.quant)

    def constant(self, name: str, values: Array) -> int:
        return self.builder.param(f"{self.node.name}.{name}", values)

    def reshape(self, x: int, shape: Shape) -> int:
        return x if self.shape(x) == shape else self.add(Reshape(shape), x)

    def narrow(self, x: int, axis: int, start: int, count: int) -> int:
        return x if count == self.shape(x)[axis] else self.add(Narrow(axis, start, count), x)

    def join(self, parts: list[int], axis: int) -> int:
        return parts[0] if len(parts) == 1 else self.add(Concat(axis), *parts)

    def repeat(self, x: int, axis: int, count: int, *, each: bool) -> int:
        """The axis `count` times as long: each element `count` times in a row, or the whole again and again.

        The first axis, which may be a batch, stays by itself unless it is the one that grows.
        """
        shape = self.shape(x)
        first = shape[: min(axis, 1)]
        before, after = math.prod(shape[len(first) : axis + each]), math.prod(shape[axis + each :])
        apart = self.add(Expand((*first, before, count, after)), self.add(Reshape((*first, before, 1, after)), x))
        return self.add(Reshape((*shape[:axis], count * shape[axis], *shape[axis + 1 :])), apart)
