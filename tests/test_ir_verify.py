"""`verify` finds every problem at once, and never fails in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.errors import ModelError
from rlx_edge.ir import DType, Graph, GraphBuilder, Node, QuantParams, TensorType, find_problems, verify
from rlx_edge.ir.frozen import FrozenScale
from rlx_edge.ir.ops import (
    ALL,
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Constant,
    Conv,
    Dequantize,
    Layout,
    Op,
    Pool,
    QMatMul,
    Quantize,
    ReduceOp,
    Reshape,
)

Q = QuantParams.per_tensor(0.5, 3)
F = TensorType((2, 4), DType.F32)
I = TensorType((2, 4), DType.I8, Q)  # noqa: E741


def dense_graph() -> Graph:
    builder = GraphBuilder("dense")
    x = builder.input("x", I)
    w = builder.param("w", np.ones((4, 3), np.int8), QuantParams.per_tensor(0.25, 0))
    bias = builder.param("b", np.zeros(3, np.int32), QuantParams.per_tensor(0.125, 0))
    op = QMatMul(x_zp=3, w_zp=0, out_zp=-1, mult=(0.5 * 0.25 / 0.1,))
    y = builder.add(op, [x, w, bias], "y", QuantParams.per_tensor(0.1, -1))
    return builder.build([y])


def with_node(graph: Graph, index: int, **changes: Any) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def problems(graph: Graph) -> list[str]:
    return list(find_problems(graph))


def test_a_good_graph_has_none() -> None:
    assert problems(dense_graph()) == []


def test_all_problems_are_reported_at_once() -> None:
    graph = dense_graph()
    bad = with_node(graph, 0, type=TensorType((2, 0), DType.I8, Q))
    bad = with_node(bad, 1, type=TensorType((4, 5), DType.I8, QuantParams.per_tensor(-1.0, 0)))
    bad = replace(bad, outputs=(7,), params={"w": graph.params["w"]})
    with pytest.raises(ModelError) as caught:
        verify(bad)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"graph 'dense' is not well formed, {len(lines) - 1} problems:"
    for words in ("node 0 Input 'x'", "not a positive number", "no values for the parameter 'b'", "output 7"):
        assert any(words in line for line in lines), words


@pytest.mark.parametrize(
    ("index", "changes", "words"),
    [
        (0, {"id": 5}, "stands at position 0"),
        (0, {"name": "z"}, "an input called 'x'"),
        (1, {"name": "x"}, "the name 'x' is used more than once"),
        (1, {"type": TensorType((4, 4), DType.I8, Q)}, "declared i8[4, 4]"),
        (1, {"type": TensorType((4, 3), DType.U8, Q)}, "its values are int8"),
        (3, {"inputs": (0, 1, 3)}, "operands [3] do not come before it"),
        (3, {"inputs": (0, 1, -1)}, "operands [-1]"),
        (3, {"inputs": (0, 1)}, "2 operands where 3 are needed"),
        (3, {"type": TensorType((2, 9), DType.I8, QuantParams.per_tensor(0.1, -1))}, "its operands give i8[2, 3]"),
        (3, {"type": TensorType((2, 3), DType.I8)}, "need quantization parameters"),
        (3, {"op": QMatMul(2, 0, -1, (1.25,))}, "zero points (2, 0, -1), but its tensors have (3, 0, -1)"),
        (3, {"op": QMatMul(3, 0, -1, (1.26,))}, "mult does not agree"),
        (3, {"op": QMatMul(3, 0, -1, (1.25, 1.25))}, "mult does not agree"),
        (3, {"op": QMatMul(3, 0, -1, (1.25,), frozen=FrozenScale((1, 1), (0, 0)))}, "for [2] channels, but it has 3"),
        (3, {"op": QMatMul(3, 0, -1, (1.25,), frozen=FrozenScale((1,), (0, 0)))}, "for [1, 2] channels, but it has 3"),
    ],
)
def test_each_problem_is_named(index: int, changes: dict[str, Any], words: str) -> None:
    found = problems(with_node(dense_graph(), index, **changes))
    assert any(words in line for line in found), found


@pytest.mark.parametrize(
    ("quant", "words"),
    [
        (QuantParams((0.1, 0.2), (0, 0)), "2 scales without an axis"),
        (QuantParams((0.1, 0.2), (0,), 1), "2 scales beside 1 zero points"),
        (QuantParams((0.1, 0.2), (0, 0), 1), "2 scales for 4 channels"),
        (QuantParams((0.1,), (0,), 2), "quantization axis 2 of a tensor of rank 2"),
        (QuantParams((float("nan"),), (0,)), "not a positive number"),
        (QuantParams((float("inf"),), (0,)), "not a positive number"),
        (QuantParams((0.1,), (128,)), "a zero point outside of i8"),
        (QuantParams((), ()), "0 scales"),
    ],
)
def test_quantization_parameters_are_checked(quant: QuantParams, words: str) -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2, 4), DType.I8, quant))
    with pytest.raises(ModelError, match=words):
        builder.build([x])


def test_float_tensors_have_no_quantization_parameters() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2, 4), DType.F32, Q))
    with pytest.raises(ModelError, match="quantization parameters on a f32 tensor"):
        builder.build([x])


def test_quantize_and_dequantize_agree_with_their_tensors() -> None:
    builder = GraphBuilder("g")
    q = builder.add(Quantize.to(Q, Binary(BinaryOp.ADD).requant), [builder.input("x", F)], "q", Q)
    other = QuantParams.per_tensor(0.25, 3)
    y = builder.add(Dequantize.of(other), [q], "y")
    with pytest.raises(ModelError, match="the operand's quantization parameters are not the op's"):
        builder.build([y])


def test_a_graph_needs_an_output() -> None:
    builder = GraphBuilder("g")
    builder.input("x", F)
    with pytest.raises(ModelError, match="no output"):
        builder.build([])


def test_names_are_made_unique_and_constants_keep_their_values() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", F)
    k = builder.constant("x", np.arange(8, dtype=np.float32).reshape(2, 4))
    y = builder.add(Binary(BinaryOp.ADD), [x, k], "x")
    graph = builder.build([y])
    assert [node.name for node in graph.nodes] == ["x", "x_2", "x_3"]
    values = graph.constant(graph.nodes[k])
    assert values is not None
    np.testing.assert_array_equal(values, np.arange(8).reshape(2, 4))
    assert graph.constant(graph.nodes[y]) is None


def test_users_and_operands() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", F)
    a = builder.add(Activation(ActivationFn.RELU), [x], "a")
    y = builder.add(Binary(BinaryOp.MUL), [a, a], "y")
    z = builder.add(Reshape((8,)), [x], "z")
    graph = builder.build([y, z])
    assert graph.users == ((a, z), (y,), (), ())
    assert [node.name for node in graph.operands(graph.nodes[y])] == ["a", "a"]
    assert [node.name for node in graph.output_nodes] == ["y", "z"]


def test_constants_need_all_their_bytes() -> None:
    node = Node(0, Constant(b"\0" * 7), (), TensorType((2,), DType.F32), "k")
    assert problems(Graph("g", (node,), (0,))) == ["node 0 Constant 'k': 7 bytes of data for f32[2]"]


any_op = st.sampled_from(ALL).flatmap(st.from_type)
any_quant = st.builds(
    QuantParams,
    st.lists(st.floats() | st.just(0.5), max_size=3).map(tuple),
    st.lists(st.integers() | st.just(0), max_size=3).map(tuple),
    st.none() | st.integers(-1, 4),
)
any_type = st.builds(
    TensorType,
    st.lists(st.integers(-1, 5), max_size=5).map(tuple) | st.just((1, 2, 2, 2)) | st.just((2, 2)),
    st.sampled_from(DType),
    st.none() | st.just(Q) | any_quant,
)


def judged(op: Op, operands: list[TensorType], out: TensorType) -> list[str]:
    leaves = [Node(i, Constant(b""), (), type, f"k{i}") for i, type in enumerate(operands)]
    node = Node(len(leaves), op, tuple(range(len(leaves))), out, "y")
    return problems(Graph("g", (*leaves, node), (node.id,)))


@given(any_op, st.lists(any_type, max_size=3), any_type)
def test_any_attributes_on_any_operands_are_judged(op: Op, operands: list[TensorType], out: TensorType) -> None:
    """Files can say anything: `find_problems` answers with lines, never with another exception."""
    lines = judged(op, operands, out)
    assert not any("its attributes cannot be (" in line for line in lines), lines  # Rules say it in their own words.


@given(any_quant, any_quant, any_quant)
def test_any_parameters_on_a_dense_layer_are_judged(x: QuantParams, w: QuantParams, out: QuantParams) -> None:
    operands = [TensorType((2, 4), DType.I8, x), TensorType((4, 3), DType.I8, w), TensorType((3,), DType.I32)]
    judged(QMatMul(0, 0, 0, (1.0,)), operands, TensorType((2, 3), DType.I8, out))
    judged(QMatMul(0, 0, 0, (1.0,)), operands, TensorType((2, 9), DType.I8, out))


numbers = st.lists(st.integers(-1, 3), max_size=5).map(tuple)


@given(numbers, numbers, numbers, numbers, st.integers(-1, 2))
def test_any_window_is_judged(
    kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> None:
    image, out = TensorType((1, 2, 4, 4), DType.F32), TensorType((1, 2, 2, 2), DType.F32)
    judged(Pool(ReduceOp.MAX, kernel, stride, padding), [image], out)
    weights = TensorType((2, 2, 3, 3), DType.F32)
    for kernel_size in (kernel, (3, 3)):
        judged(Conv(kernel_size, stride, padding, dilation, groups), [image, weights], out)


@pytest.mark.parametrize("clamp", [(100, -100), (-(10**6), 0), (0, 10**12)])
def test_bounds_must_be_rising_int8_values(clamp: tuple[int, int]) -> None:
    """The reference would clip otherwise than C does."""
    builder = GraphBuilder("bounds")
    quant = QuantParams.per_tensor(0.1, 0)
    x = builder.input("x", TensorType((1, 2, 2, 1), DType.I8, quant))
    op = Pool(ReduceOp.MAX, (1, 1), (1, 1), (0, 0), Layout.NHWC, clamp=clamp)
    y = builder.add(op, [x], "pool", quant)
    with pytest.raises(ModelError, match="bounds"):
        builder.build([y])
