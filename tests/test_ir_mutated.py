"""`verify` on random graphs of all kinds: it accepts each, and finds every error that is planted in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from any_graphs import any_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.errors import ModelError
from rlx_edge.ir import DType, Graph, GraphBuilder, Node, TensorType, find_problems, verify
from rlx_edge.ir.nested import bodies_of, map_bodies, nested_graphs, with_bodies
from rlx_edge.ir.ops import Binary, BinaryOp, Constant, Declared, Input, Leaf, Param
from rlx_edge.ir.ops.control import CustomFn, If

Mutation = Callable[[Random, Graph, Node], Node | None]
"""A node with an error, or None for a node that cannot have that error."""


def dangling(rng: Random, graph: Graph, node: Node) -> Node | None:
    if not node.inputs:
        return None
    inputs = list(node.inputs)
    inputs[rng.randrange(len(inputs))] = rng.choice([-1, len(graph.nodes), 10**12])
    return replace(node, inputs=tuple(inputs))


def cycle(rng: Random, graph: Graph, node: Node) -> Node | None:
    if not node.inputs:
        return None
    inputs = list(node.inputs)
    inputs[rng.randrange(len(inputs))] = rng.randrange(node.id, len(graph.nodes))
    return replace(node, inputs=tuple(inputs))


def arity(rng: Random, graph: Graph, node: Node) -> Node | None:
    high, low = node.op.arity.high, node.op.arity.low
    more = node.inputs + (0,) * ((high or 0) + 1 - len(node.inputs))
    choices = ([more] if high is not None and node.id > 0 else []) + ([node.inputs[: low - 1]] if low else [])
    return replace(node, inputs=rng.choice(choices)) if choices else None


def dtype(rng: Random, graph: Graph, node: Node) -> Node | None:
    other = rng.choice([dtype for dtype in DType if dtype is not node.type.dtype])
    if isinstance(node.op, Param):
        same = other.numpy == node.type.dtype.numpy
        return None if same else replace(node, type=replace(node.type, dtype=other, quant=None))
    if isinstance(node.op, Declared):
        return None
    return replace(node, type=replace(node.type, dtype=other, quant=None))


def shape(rng: Random, graph: Graph, node: Node) -> Node | None:
    if isinstance(node.op, Declared) and not isinstance(node.op, Constant | Param):
        return None
    sizes = list(node.type.shape)
    if sizes and rng.random() < 0.5:
        sizes[rng.randrange(len(sizes))] += 9
    else:
        sizes.append(2)
    return replace(node, type=replace(node.type, shape=tuple(sizes)))


def axis(rng: Random, graph: Graph, node: Node) -> Node | None:
    changed: dict[str, Any] = {}
    for field in fields(node.op):
        value = getattr(node.op, field.name)
        if field.name == "axis" and value is not None:
            changed["axis"] = rng.choice([9, -9])
        elif field.name == "axes" and value:
            changed["axes"] = (*value, 9)
        elif field.name == "perm" and len(value) > 1:
            changed["perm"] = (value[0], *value[:-1])
    return replace(node, op=replace(node.op, **changed)) if changed else None


def empty_axis(rng: Random, graph: Graph, node: Node) -> Node | None:
    return replace(node, type=replace(node.type, shape=(0, *node.type.shape)))


def wrong_id(rng: Random, graph: Graph, node: Node) -> Node | None:
    return replace(node, id=node.id + rng.choice([1, -1, 1000]))


def scale(rng: Random, graph: Graph, node: Node) -> Node | None:
    if node.type.quant is None:
        return None
    scales = (rng.choice([0.0, -1.0, float("nan"), float("inf")]), *node.type.quant.scales[1:])
    return replace(node, type=replace(node.type, quant=replace(node.type.quant, scales=scales)))


def rank(rng: Random, graph: Graph, node: Node) -> Node | None:
    return replace(node, type=replace(node.type, shape=(1,) * 33 + node.type.shape, quant=None, dtype=DType.F32))


def leaf(rng: Random, graph: Graph, node: Node) -> Node | None:
    if isinstance(node.op, Input):
        return replace(node, op=Input(node.name + "!"))
    if isinstance(node.op, Param):
        return replace(node, op=Param(node.name + "!"))
    return replace(node, op=Constant(node.op.data + b"\0")) if isinstance(node.op, Constant) else None


MUTATIONS: Mapping[str, Mutation] = {
    **{"dangling": dangling, "cycle": cycle, "arity": arity, "dtype": dtype, "shape": shape, "axis": axis},
    **{"empty axis": empty_axis, "wrong id": wrong_id, "scale": scale, "rank": rank, "leaf": leaf},
}


def planted(rng: Random, graph: Graph, mutate: Mutation) -> tuple[Graph, Node] | None:
    """The graph with one error, and the node that has it now."""
    nodes = list(graph.nodes)
    rng.shuffle(nodes)
    for node in nodes:
        wrong = mutate(rng, graph, node)
        if wrong is not None:
            changed = (*graph.nodes[: node.id], wrong, *graph.nodes[node.id + 1 :])
            return replace(graph, nodes=changed), wrong
    return None


@settings(max_examples=settings().max_examples // 2)
@given(any_graphs())
def test_no_valid_graph_is_rejected(graph: Graph) -> None:
    assert list(find_problems(graph)) == []
    assert map_bodies(graph, lambda body: body) is graph
    copied = map_bodies(graph, lambda body: replace(body, name="copy"))
    assert list(find_problems(copied)) == []
    assert all(body.name == "copy" for _, body in nested_graphs(copied))
    assert [path for path, _ in nested_graphs(copied)] == [path for path, _ in nested_graphs(graph)]


@pytest.mark.parametrize("name", MUTATIONS)
@settings(max_examples=settings().max_examples // 10)
@given(any_graphs(), st.randoms(use_true_random=False))
def test_a_planted_error_is_found(name: str, graph: Graph, rng: Random) -> None:
    made = planted(rng, graph, MUTATIONS[name])
    if made is not None:
        bad, node = made
        found = list(find_problems(bad))
        assert any(line.startswith(str(node)) for line in found), (node, found)
        assert all("\n" not in line for line in found)


@given(any_graphs(), st.randoms(use_true_random=False))
def test_an_error_in_a_nested_graph_is_found(graph: Graph, rng: Random) -> None:
    """Wherever it lies: the line names the nodes and fields on the way to it."""
    holders = [node for node in graph.nodes for _ in bodies_of(node.op)]
    if not holders:
        return
    holder = rng.choice(holders)
    field, body = rng.choice(list(bodies_of(holder.op)))
    made = planted(rng, body, rng.choice(list(MUTATIONS.values())))
    if made is None:
        return
    bad, node = made
    op = with_bodies(holder.op, lambda name, inner: bad if name == field else inner)
    nodes = tuple(replace(n, op=op) if n is holder else n for n in graph.nodes)
    found = list(find_problems(replace(graph, nodes=nodes)))
    assert any(line.startswith(f"{holder}: {field}: {node}") for line in found), found


@settings(max_examples=settings().max_examples // 2)
@given(any_graphs(), st.randoms(use_true_random=False))
def test_several_errors_are_all_found(graph: Graph, rng: Random) -> None:
    """Errors that do not hide each other: none changes a type that another node's error is about."""
    wrong: list[Node] = []
    nodes = list(graph.nodes)
    for node in graph.nodes:
        bad = rng.choice([dangling, cycle, arity, leaf, wrong_id])(rng, graph, node)
        if bad is not None and rng.random() < 0.7:
            nodes[node.id] = bad
            wrong.append(bad)
    found = list(find_problems(replace(graph, nodes=tuple(nodes), outputs=(*graph.outputs, -5))))
    assert all(any(line.startswith(str(node)) for line in found) for node in wrong), (wrong, found)
    assert "output -5 is not a node" in found


def test_a_line_names_node_op_operands_and_both_shapes() -> None:
    builder = GraphBuilder("g")
    a = builder.input("a", TensorType((2, 3), DType.F32))
    b = builder.input("b", TensorType((3,), DType.F32))
    graph = builder.build([builder.add(Binary(BinaryOp.ADD), [a, b], "y")])
    nodes = (*graph.nodes[:2], replace(graph.nodes[2], type=TensorType((2, 4), DType.F32)))
    assert list(find_problems(replace(graph, nodes=nodes))) == [
        "node 2 Binary 'y': declared f32[2, 4], but its operands give f32[2, 3]; operands: 'a' f32[2, 3], 'b' f32[3]"
    ]
    nodes = (graph.nodes[0], replace(graph.nodes[1], type=TensorType((4,), DType.F32)), graph.nodes[2])
    assert list(find_problems(replace(graph, nodes=nodes))) == [
        "node 2 Binary 'y': shapes [2, 3] and [4] do not broadcast; operands: 'a' f32[2, 3], 'b' f32[4]"
    ]
    with pytest.raises(ModelError, match="graph 'g' is not well formed, 3 problems:"):
        verify(replace(graph, nodes=(*nodes[:2], replace(nodes[2], inputs=(0, 1, 2, 9)))))


def test_graphs_lie_in_each_other_to_a_limit() -> None:
    def deep(levels: int) -> Graph:
        builder = GraphBuilder(f"level {levels}")
        x = builder.input("x", TensorType((1,), DType.F32))
        y = builder.add(CustomFn(deep(levels - 1), None, None, 1), [x], "y") if levels else x
        return Graph(builder.name, tuple(builder._nodes), (y,))

    assert list(find_problems(deep(32))) == []
    assert any("lies deeper than 32 graphs in each other" in line for line in find_problems(deep(33)))


def test_a_branch_without_outputs_gets_one_line() -> None:
    builder = GraphBuilder("g")
    flag = builder.input("flag", TensorType((), DType.BOOL))
    k = builder.constant("k", np.zeros(3, np.float32))
    branch = builder.build([k])
    outer = GraphBuilder("outer")
    empty = replace(branch, nodes=branch.nodes[1:2], outputs=())
    nodes = (
        Node(0, Input("flag"), (), builder[flag].type, "flag"),
        Node(1, If(empty, empty), (0,), TensorType((3,), DType.F32), "y"),
    )
    found = list(find_problems(Graph(outer.name, nodes, (1,))))
    assert sum("then_branch: the graph has no output" in line for line in found) == 1
    assert isinstance(nodes[1].op, If) and not isinstance(nodes[1].op, Leaf)
