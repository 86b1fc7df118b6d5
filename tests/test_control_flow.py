"""Control flow and custom ops: executed by the reference, against plain Python loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.target import TARGETS
from rlx_edge.engines import default_engine
from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.ir import (
    Array,
    DType,
    Graph,
    GraphBuilder,
    Node,
    QuantParams,
    Requant,
    TensorType,
    find_problems,
    same_graph,
)
from rlx_edge.ir.custom import CustomOp, register_custom, unregister_custom
from rlx_edge.ir.nested import nested_graphs
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    CmpOp,
    Compare,
    Input,
    MatMul,
    Op,
    Reduce,
    ReduceOp,
    Reshape,
    ShapeError,
)
from rlx_edge.ir.ops.control import KINDS, Custom, CustomFn, If, Scan, ScanBackward, ScanBackwardXs, While
from rlx_edge.passes.change_rule import change_rule
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import clean, prepare
from rlx_edge.reference import run

BOOL = TensorType((), DType.BOOL)
F = TensorType((3,), DType.F32)


def body(name: str, types: dict[str, TensorType], make: Callable[[GraphBuilder, list[int]], list[int]]) -> Graph:
    builder = GraphBuilder(name)
    inputs = [builder.input(name, type) for name, type in types.items()]
    return builder.build(make(builder, inputs))


def binary(builder: GraphBuilder, fn: BinaryOp, a: int, b: int) -> int:
    return builder.add(Binary(fn), [a, b], fn.value)


def graph_of(op: Op, types: dict[str, TensorType]) -> Graph:
    return body("outer", types, lambda b, inputs: [b.add(op, inputs, "y")])


def accumulate(type: TensorType = F) -> Graph:
    """carry * decay + x, with a decay of the body's own."""

    def make(b: GraphBuilder, inputs: list[int]) -> list[int]:
        decay = b.param("decay", np.float32([0.5, 0.25, -1.0]))
        return [binary(b, BinaryOp.ADD, binary(b, BinaryOp.MUL, inputs[0], decay), inputs[1])]

    return body("step", {"carry": type, "x": type}, make)


def values(*shape: int) -> Array:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("taken", [True, False])
def test_if_takes_one_branch(taken: bool) -> None:
    then = body("then", {"a": F, "b": F}, lambda b, i: [binary(b, BinaryOp.SUB, *i)])
    other = body("else", {"p": F, "q": F}, lambda b, i: [b.add(Activation(ActivationFn.NEG), [i[1]], "n")])
    graph = graph_of(If(then, other), {"c": BOOL, "a": F, "b": F})
    a, b = values(3), values(3) + 1
    out = run(graph, {"c": np.array(taken), "a": a, "b": b})["y"]
    np.testing.assert_array_equal(out, a - b if taken else -b)


def until(limit: float) -> Graph:
    def make(b: GraphBuilder, inputs: list[int]) -> list[int]:
        largest = b.add(Reduce(ReduceOp.MAX, (0,), False), [inputs[0]], "largest")
        bound = b.constant("bound", np.array(limit, np.float32))
        return [b.add(Compare(CmpOp.LT), [largest, bound], "goes_on")]

    return body("cond", {"x": F, "step": F}, make)


@pytest.mark.parametrize("most", [None, 3, 0])
def test_while_carries_its_values(most: int | None) -> None:
    step = body("step", {"x": F, "step": F}, lambda b, i: [binary(b, BinaryOp.ADD, *i), binary(b, BinaryOp.MUL, *i)])
    graph = graph_of(While(until(50.0), step, most), {"x": F, "step": F})
    x, d = np.float32([1, 2, 3]), np.float32([0.5, 1, 2])
    out = run(graph, {"x": x, "step": d})["y"]
    count = 0
    while x.max() < 50 and count != most:
        x, d, count = x + d, x * d, count + 1
    np.testing.assert_array_equal(out, x)
    assert most is not None or count > 3


@pytest.mark.parametrize(("saved", "checkpoints"), [(False, 0), (True, 0), (True, 7), (True, 3), (True, 1)])
def test_scan_steps_through_rows(saved: bool, checkpoints: int) -> None:
    op = Scan(accumulate(), 7, saved, 0, 1, checkpoints)
    graph = graph_of(op, {"init": F, "xs": TensorType((7, 3), DType.F32)})
    carry, xs = values(3), values(7, 3)
    out = run(graph, {"init": carry, "xs": xs})["y"]
    rows = []
    for x in xs:
        carry = carry * np.float32([0.5, 0.25, -1.0]) + x
        rows.append(carry)
    kept = [rows[math.floor(t * 7 / (checkpoints or 7))] for t in range(checkpoints or 7)]
    np.testing.assert_array_equal(out, np.stack(kept) if saved else carry)


def test_scan_gives_broadcast_values_to_each_step() -> None:
    step = body(
        "step",
        {"carry": F, "rate": F, "x": F},
        lambda b, i: [binary(b, BinaryOp.ADD, i[0], binary(b, BinaryOp.MUL, i[1], i[2]))],
    )
    graph = graph_of(Scan(step, 4, False, 1, 1, 0), {"init": F, "rate": F, "xs": TensorType((4, 3), DType.F32)})
    carry, rate, xs = values(3), values(3) * 2, values(4, 3)
    out = run(graph, {"init": carry, "rate": rate, "xs": xs})["y"]
    for x in xs:
        carry = carry + rate * x
    np.testing.assert_array_equal(out, carry)


def test_a_scan_within_an_if_within_a_while() -> None:
    """Bodies in bodies: the sum of a carry's halvings, while it is large."""
    halve = body(
        "halve", {"c": F}, lambda b, i: [binary(b, BinaryOp.MUL, i[0], b.constant("half", np.float32([0.5] * 3)))]
    )
    halved = body("halved", {"c": F}, lambda b, i: [b.add(Scan(halve, 2, False, 0, 0, 0), i, "s")])
    same = body("same", {"c": F}, lambda b, i: [b.add(Activation(ActivationFn.ABS), i, "s")])

    def large(b: GraphBuilder, i: list[int]) -> list[int]:
        largest = b.add(Reduce(ReduceOp.MAX, (0,), False), [i[0]], "largest")
        return [b.add(Compare(CmpOp.GT), [largest, b.constant("one", np.array(1, np.float32))], "large")]

    cond = body("cond", {"c": F}, large)
    step = body("step", {"c": F}, lambda b, i: [b.add(If(halved, same), [*large(b, i), *i], "y")])
    out = run(graph_of(While(cond, step, None), {"x": F}), {"x": np.float32([9, -8, 4])})["y"]
    np.testing.assert_array_equal(out, np.float32([9, -8, 4]) / 16)


def test_int8_values_go_through_bodies() -> None:
    q = TensorType((3,), DType.I8, QuantParams.per_tensor(0.5, 3))
    same = body("same", {"a": q}, lambda b, i: [b.add(Activation(ActivationFn.RELU), i, "r", q.quant)])
    builder = GraphBuilder("outer")
    inputs = [builder.input("c", BOOL), builder.input("a", q)]
    graph = builder.build([builder.add(If(same, same), inputs, "y", q.quant)])
    out = run(graph, {"c": np.array(True), "a": np.int8([-5, 3, 9])})["y"]
    np.testing.assert_array_equal(out, np.int8([3, 3, 9]))
    other = builder.add(If(same, same), inputs, "z", QuantParams.per_tensor(0.25, 3))
    with pytest.raises(ModelError, match=r"node 3 If 'z'.*declared .*s=0\.25.* but its body gives .*s=0\.5"):
        builder.build([other])


def test_custom_fn_runs_its_forward_body() -> None:
    forward = body("fwd", {"a": F, "b": F}, lambda b, i: [binary(b, BinaryOp.MUL, *i)])
    types = {"a": F, "b": F, "primal_output": F, "d_output": F}
    vjp = body("vjp", types, lambda b, i: [binary(b, BinaryOp.MUL, i[1], i[3]), binary(b, BinaryOp.MUL, i[0], i[3])])
    op = CustomFn(forward, vjp, None, 2)
    assert op.display() == "custom_fn(in=2,vjp)" and op.subgraphs == (forward, vjp)
    a, b = values(3), values(3) * 3
    np.testing.assert_array_equal(run(graph_of(op, {"a": F, "b": F}), {"a": a, "b": b})["y"], a * b)
    with pytest.raises(ShapeError, match="vjp_body has the inputs"):
        graph_of(CustomFn(forward, forward, None, 2), {"a": F, "b": F})


@pytest.fixture
def doubled() -> Iterator[CustomOp]:
    """Repeats each element as often as its first attribute byte says."""
    op = CustomOp(
        "test.repeat",
        lambda op, types: ((types[0].elements * op.attrs[0],), types[0].dtype),
        lambda op, operands, types, out: np.repeat(operands[0], op.attrs[0]),
    )
    register_custom(op)
    yield op
    unregister_custom(op.name)


def test_custom_ops_are_found_by_name(doubled: CustomOp) -> None:
    register_custom(doubled)
    graph = graph_of(Custom("test.repeat", 1, b"\2"), {"x": F})
    x = values(3)
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], [x[0], x[0], x[1], x[1], x[2], x[2]])
    with pytest.raises(ModelError, match="registered already"):
        register_custom(CustomOp("test.repeat", doubled.infer, lambda *_: np.zeros(1)))
    builder = GraphBuilder("wrong")
    operands = [builder.input("x", F)]
    with pytest.raises(ShapeError, match=r"declared f32\[9\], but its operands give f32\[6\]"):
        builder.add(Custom("test.repeat", 1, b"\2"), operands, "y", type=TensorType((9,), DType.F32))


def test_a_custom_op_that_is_not_registered_is_held_but_not_run() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", F)
    with pytest.raises(ShapeError, match="not registered"):
        builder.add(Custom("test.unknown", 1, b""), [x], "y")
    graph = builder.build([builder.add(Custom("test.unknown", 1, b""), [x], "y", type=TensorType((5,), DType.I32))])
    with pytest.raises(UnsupportedError, match=r"'test\.unknown' is not registered"):
        run(graph, {"x": values(3)})


def test_a_shape_function_that_fails_is_a_problem_of_the_graph(doubled: CustomOp) -> None:
    """A file may give a registered op attributes that its author never thought of."""
    wrong = replace(graph_of(Custom("test.repeat", 1, b"\2"), {"x": F}).nodes[1], op=Custom("test.repeat", 1, b""))
    graph = Graph("g", (Node(0, Input("x"), (), F, "x"), wrong), (1,))
    assert list(find_problems(graph)) == [
        "node 1 Custom 'y': its attributes cannot be (index out of range); operands: 'x' f32[3]"
    ]


def test_a_reference_that_breaks_its_shape_function_is_named(doubled: CustomOp) -> None:
    unregister_custom(doubled.name)
    register_custom(CustomOp(doubled.name, doubled.infer, lambda op, operands, types, out: operands[0]))
    with pytest.raises(ModelError, match=r"'test\.repeat' gives float32\[3\], but its shape function f32\[6\]"):
        run(graph_of(Custom("test.repeat", 1, b"\2"), {"x": F}), {"x": values(3)})


@pytest.mark.parametrize(
    ("op", "types", "words"),
    [
        (If(accumulate(), accumulate()), {"c": F, "a": F, "b": F}, r"the predicate is f32\[3\]; one bool"),
        (
            If(accumulate(), accumulate()),
            {"c": BOOL, "a": F},
            r"then_branch has inputs f32\[3\], f32\[3\]; f32\[3\] is",
        ),
        (If(accumulate(), until(1.0)), {"c": BOOL, "a": F, "b": F}, r"else_branch gives bool\[\]; f32\[3\] is needed"),
        (While(until(1.0), accumulate(), None), {"a": F, "b": F}, r"body gives f32\[3\]; f32\[3\], f32\[3\] is needed"),
        (While(accumulate(), accumulate(), None), {"a": F, "b": F}, r"the output of cond is f32\[3\]; one bool"),
        (Scan(accumulate(), 7, False, 0, 1, 0), {"a": F, "b": F}, r"xs 0 is f32\[3\]; 7 rows"),
        (Scan(accumulate(), 7, True, 1, 0, 8), {"a": F, "b": F}, "8 checkpoints of 7 steps"),
    ],
)
def test_bodies_must_fit(op: Op, types: dict[str, TensorType], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        graph_of(op, types)


def scan_vjp() -> Graph:
    return body("vjp", {"carry": F, "x": F, "d_output": F}, lambda b, i: [binary(b, BinaryOp.MUL, i[2], i[1]), i[2]])


def test_gradients_of_a_scan_are_declared_and_not_run() -> None:
    rows = TensorType((4, 3), DType.F32)
    types = {"init": F, "trajectory": rows, "upstream": F, "xs": rows}
    graph = graph_of(ScanBackward(scan_vjp(), 4, False, 1, 0, None), types)
    assert graph.output_nodes[0].type == F
    given = {name: np.zeros(type.shape, np.float32) for name, type in types.items()}
    with pytest.raises(UnsupportedError, match="the reference has no ScanBackward"):
        run(graph, given)
    op = ScanBackwardXs(scan_vjp(), 4, False, 1, 0, 0, None)
    graph = graph_of(op, types)
    assert graph.output_nodes[0].type == rows
    with pytest.raises(ShapeError, match=r"upstream is f32\[4, 3, 1\]; f32\[3\] or rows of that"):
        graph_of(op, {**types, "upstream": TensorType((4, 3, 1), DType.F32)})
    types["trajectory"] = TensorType((2, 3), DType.F32)
    with pytest.raises(ShapeError, match="no forward_body"):
        graph_of(ScanBackward(scan_vjp(), 4, False, 1, 2, None), types)
    assert ScanBackward(scan_vjp(), 4, False, 1, 2, accumulate()).subgraphs[1].name == "step"


def test_display_is_the_vocabularys() -> None:
    step, vjp = accumulate(), scan_vjp()
    shown = {
        "if(...)": If(step, step),
        "while(...)": While(step, step, None),
        "while(...max=3)": While(step, step, 3),
        "scan(len=7)": Scan(step, 7, False, 1, 0, 0),
        "scan(len=7,xs=2,traj)": Scan(step, 7, True, 0, 2, 0),
        "scan_bwd(len=4,xs=1)": ScanBackward(vjp, 4, False, 1, 0, None),
        "scan_bwd_xs(len=4,xs=1,idx=0,traj)": ScanBackwardXs(vjp, 4, True, 1, 0, 0, None),
        "custom(fft,in=2,attrs=3B)": Custom("fft", 2, b"abc"),
        "custom_fn(in=2,vjp,jvp)": CustomFn(step, vjp, vjp, 2),
    }
    assert [op.display() for op in shown.values()] == list(shown)


def test_nested_graphs_are_walked_in_the_vocabularys_order() -> None:
    assert [(kind.__name__, *kind.bodies) for kind in KINDS if kind.bodies] == [
        ("If", "then_branch", "else_branch"),
        ("While", "cond", "body"),
        ("Scan", "body"),
        ("ScanBackward", "body_vjp", "forward_body"),
        ("ScanBackwardXs", "body_vjp", "forward_body"),
        ("CustomFn", "fwd_body", "vjp_body", "jvp_body"),
    ]
    step, vjp = accumulate(), scan_vjp()
    assert ScanBackward(vjp, 4, False, 1, 0, None).subgraphs == (vjp,)
    assert CustomFn(step, None, vjp, 2).subgraphs == (step, vjp)


def test_multiply_accumulates_of_bodies_count() -> None:
    square = TensorType((3, 3), DType.F32)
    product = body("product", {"a": square, "b": square}, lambda b, i: [b.add(MatMul(), i, "p")])
    types = {"a": square, "b": square}
    assert graph_of(Scan(product, 7, False, 1, 0, 0), types).total_macs == 7 * 27
    assert graph_of(CustomFn(product, None, None, 2), types).total_macs == 27
    assert graph_of(If(product, accumulate(square)), {"c": BOOL, **types}).total_macs == 27


def test_code_generation_refuses_nested_graphs_by_name() -> None:
    graph = graph_of(If(accumulate(), accumulate()), {"c": BOOL, "a": F, "b": F})
    refused = r"node 3 If 'y': no code is generated for nested graphs \(then_branch, else_branch\)"
    with pytest.raises(UnsupportedError, match=refused):
        legalize(graph, TARGETS["portable"])
    assert default_engine(graph) == "reference"


def test_passes_work_inside_nested_graphs() -> None:
    """Dead nodes, needless ops and constants to fold go, at any depth; results stay."""

    def untidy(b: GraphBuilder, i: list[int]) -> list[int]:
        b.add(Activation(ActivationFn.EXP), [i[0]], "dead")
        ones = b.add(
            Binary(BinaryOp.ADD), [b.param("a", np.ones(3, np.float32)), b.param("b", np.ones(3, np.float32))], "s"
        )
        return [binary(b, BinaryOp.MUL, b.add(Reshape((3,)), i, "same"), ones)]

    inner = body("inner", {"x": F}, untidy)
    outer = body("outer", {"x": F}, lambda b, i: [b.add(Scan(inner, 3, False, 0, 0, 0), i, "scan")])
    graph = graph_of(CustomFn(outer, None, None, 1), {"x": F})
    for made in (clean(graph), prepare(graph)):
        found = dict(nested_graphs(made))
        assert [node.op.kind_name for node in found["1.fwd_body.1.body"].nodes] == ["Input", "Param", "Binary"]
        np.testing.assert_array_equal(run(made, {"x": values(3)})["y"], values(3) * 8)
    tidy = clean(graph)
    assert clean(tidy) is tidy and same_graph(clean(graph), tidy)


def test_a_loop_on_constants_alone_is_not_run_ahead() -> None:
    """It might never end."""
    forever = body("cond", {"x": F}, lambda b, i: [b.constant("yes", np.array(True))])
    step = body("step", {"x": F}, lambda b, i: [b.add(Activation(ActivationFn.NEG), i, "n")])
    b = GraphBuilder("g")
    loop = b.add(While(forever, step, None), [b.param("k", np.ones(3, np.float32))], "loop")
    graph = b.build([binary(b, BinaryOp.ADD, loop, b.input("x", F))])
    assert any(isinstance(node.op, While) for node in prepare(graph).nodes)


def test_rounding_rules_and_frozen_integers_reach_nested_graphs() -> None:
    q = TensorType((3,), DType.I8, QuantParams.per_tensor(0.5, 3))
    double = body("double", {"a": q}, lambda b, i: [b.add(Binary(BinaryOp.ADD), [*i, *i], "d", q.quant)])
    builder = GraphBuilder("outer")
    x = builder.input("a", q)
    graph = builder.build([builder.add(CustomFn(double, None, None, 1), [x], "y", q.quant)])
    changed = freeze(change_rule(graph, Requant.TFLM))
    op = dict(nested_graphs(changed))["1.fwd_body"].nodes[1].op
    assert isinstance(op, Binary) and op.requant is Requant.TFLM and op.frozen is not None
    out = run(changed, {"a": np.int8([3, 5, 100])})["y"]
    np.testing.assert_array_equal(out, np.int8([3, 7, 127]))
