"""Find functions that a file spells out as several ops, and put one op in their place (tables of pattern -> op).

On int8 a spelled out function would be rounded at every step; as one op it is one table of 256 codes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Constant, Op, Param, ShapeError
from rlx_edge.passes.pattern import Apply, Either, Found, Pattern, View, matches_op
from rlx_edge.passes.rebuild import Ids, rebuild, uniform


@dataclass(frozen=True)
class Site:
    """Where a pattern was found: the node that it computes, the graph in the making, what the names stand for."""

    node: Node
    builder: GraphBuilder
    found: Found

    def tensor(self, name: str) -> int:
        """The node of a name."""
        held = self.found[name]
        assert isinstance(held, int)
        return held

    def scalar(self, name: str) -> float:
        held = self.found[name]
        assert isinstance(held, float)
        return held

    def type(self, name: str) -> TensorType:
        return self.builder[self.tensor(name)].type

    def values(self, name: str) -> Array | None:
        """The values of a name that stands for a constant."""
        return _constant(self.builder, self.tensor(name))

    def result(self, op: Op, operands: Sequence[int]) -> int | None:
        """The op in the node's place, or None where it has another shape: constants of a pattern may have grown it."""
        try:
            made = op.infer([self.builder[i].type for i in operands])
        except ShapeError:
            return None
        if made != (self.node.type.shape, self.node.type.dtype):
            return None
        return self.builder.add(op, operands, self.node.name, sources=self.node.sources)


@dataclass(frozen=True)
class Rule:
    """Puts one op in place of a pattern; `build` returns the id of the result, or None: not in this case."""

    name: str
    pattern: Pattern
    build: Callable[[Site], int | None]


def one_op(op: Callable[[Site], Op | None], *operands: str) -> Callable[[Site], int | None]:
    """How a rule builds an op on tensors of the pattern; x, where none is named."""

    def build(site: Site) -> int | None:
        made = op(site)
        return None if made is None else site.result(made, [site.tensor(name) for name in operands or ("x",)])

    return build


def activation(fn: ActivationFn) -> Callable[[Site], int | None]:
    """How a rule builds a function of x without parameters."""
    return one_op(lambda site: Activation(fn))


class Recognizer:
    """A pass made of rules; the first that fits wins. Rules see what earlier nodes have become already."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules: Mapping[tuple[type[Op], object], list[tuple[Apply, Rule]]] = defaultdict(list)
        for rule in rules:
            for root in roots(rule.pattern):
                self._rules[root.kind, dict(root.attributes).get("fn")].append((root, rule))

    def __call__(self, graph: Graph) -> Graph:
        """The same function, but for rounding in between, with one op for every pattern found."""
        before = _view(graph.nodes, graph.params)
        if not any(True for node in graph.nodes for _ in self._matches(node, node.inputs, before)):
            return graph
        built: set[int] = set()

        def replace(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
            view = _view(builder, builder.params)
            for rule, found in self._matches(node, [ids[i] for i in node.inputs], view):
                result = rule.build(Site(node, builder, found))
                if result is not None:
                    built.add(result)
                    return result
            return None

        result = rebuild(graph, replace)
        return result if built else graph

    def _matches(self, node: Node, operands: Sequence[int], view: View) -> Iterator[tuple[Rule, Found]]:
        if node.type.dtype is DType.F32:
            for root, rule in self._rules.get((type(node.op), getattr(node.op, "fn", None)), ()):
                for found in matches_op(root, node.op, operands, view, {}):
                    yield rule, found


def roots(pattern: Pattern) -> Iterable[Apply]:
    """The forms of a pattern, each with an op at its root."""
    if isinstance(pattern, Apply):
        yield pattern
    elif isinstance(pattern, Either):
        for form in pattern.forms:
            yield from roots(form)


def _view(nodes: GraphBuilder | Sequence[Node], params: Mapping[str, Array]) -> View:
    def node(node_id: int) -> tuple[Op, Sequence[int]]:
        return nodes[node_id].op, nodes[node_id].inputs

    def number(node_id: int) -> float | None:
        held = nodes[node_id]
        return uniform(_values(held, params))

    return View(node, number)


def _constant(builder: GraphBuilder, node_id: int) -> Array | None:
    return _values(builder[node_id], builder.params)


def _values(node: Node, params: Mapping[str, Array]) -> Array | None:
    if isinstance(node.op, Param | Constant):
        return Graph("", (node,), (), params).constant(node)
    return None
