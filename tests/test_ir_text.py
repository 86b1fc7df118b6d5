"""The text form: what people and golden tests read, and what is read back to an equal graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from any_graphs import MAKERS, any_graphs, any_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.single_ops import SINGLE_OPS, Case

from rlx_edge.errors import EdgeError, ModelError
from rlx_edge.formats import load_tflite
from rlx_edge.ir import (
    Channels,
    DType,
    Graph,
    GraphBuilder,
    Node,
    QuantParams,
    Requant,
    TensorType,
    from_text,
    real_multipliers,
    same_graph,
    to_text,
)
from rlx_edge.ir.equal import difference
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Clamp,
    CmpOp,
    Compare,
    Constant,
    Dequantize,
    Layout,
    Op,
    Pool,
    QConv2d,
    Quantize,
    ReduceOp,
    Reshape,
)
from rlx_edge.ir.ops.control import While
from rlx_edge.ir.parse import params_by_path
from rlx_edge.ir.vocabulary import all_kinds

GOLDEN = """\
graph small {
  metadata preprocess = "scale=1/255"
  %0 x = Input() : f32[1, 4, 4, 1]
  %1 q = Quantize(%0, requant=tflm) : i8[1, 4, 4, 1] s=0.5 z=-128
  %2 w = Param() : i8[2, 3, 3, 1] s=[0.25, 0.1f] z=0 axis=0
  %3 b = Param() : i32[2]
  %4 conv = QConv2d(%1, %2, %3, kernel_size=[3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1, \
layout=NHWC) : i8[1, 4, 4, 2] s=0.1 z=0 from conv1, "relu 1"
  %5 pool = Pool(%4, kind=Max, kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], layout=NHWC) : i8[1, 2, 2, 2] \
s=0.1 z=0
  %6 k = Constant(0) : i8[8] s=0.1 z=0
  %7 flat = Reshape(%5) : i8[1, 8] s=0.1 z=0 from flat
  %8 sum = Binary(%7, %6, fn=Add) : i8[1, 8] s=0.2 z=1 channels [0, 1, 2, 3, 4, 5, 6, 9] of 10
  %9 six = Clamp(%8, min=0.0, max=6.0) : i8[1, 8] s=0.2 z=1
  %10 y = Dequantize(%9) : f32[1, 8]
  return %10, %8
}
"""


def small_graph() -> Graph:
    b = GraphBuilder("small")
    b.metadata["preprocess"] = "scale=1/255"
    x_quant, w_quant = QuantParams.per_tensor(0.5, -128), QuantParams((0.25, float(np.float32(0.1))), (0, 0), 0)
    conv_quant, sum_quant = QuantParams.per_tensor(0.1, 0), QuantParams.per_tensor(0.2, 1)
    x = b.input("x", TensorType((1, 4, 4, 1), DType.F32))
    q = b.add(Quantize.to(x_quant, Requant.TFLM), [x], "q", x_quant)
    w = b.param("w", np.zeros((2, 3, 3, 1), np.int8), w_quant)
    bias = b.param("b", np.zeros(2, np.int32))
    mult = real_multipliers(x_quant, w_quant, conv_quant)
    op = QConv2d((3, 3), (1, 1), (1, 1), (1, 1), 1, -128, 0, 0, mult, Layout.NHWC)
    conv = b.add(op, [q, w, bias], "conv", conv_quant, sources=("conv1", "relu 1"))
    pool = b.add(Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0), Layout.NHWC), [conv], "pool", conv_quant)
    k = b.constant("k", np.zeros(8, np.int8), conv_quant)
    flat = b.add(Reshape((1, 8)), [pool], "flat", conv_quant, sources=("flat",))
    total = b.add(Binary(BinaryOp.ADD), [flat, k], "sum", sum_quant, channels=Channels((0, 1, 2, 3, 4, 5, 6, 9), 10))
    six = b.add(Clamp(0.0, 6.0), [total], "six", sum_quant)
    y = b.add(Dequantize.of(sum_quant), [six], "y")
    return b.build([y, total])


def read_back(graph: Graph) -> Graph:
    return from_text(to_text(graph), graph.params, params_by_path(graph))


def test_golden() -> None:
    assert to_text(small_graph()) == GOLDEN
    assert same_graph(from_text(GOLDEN, small_graph().params), small_graph())


def test_the_page_about_the_text_form_shows_what_is_read() -> None:
    page = (Path(__file__).parent.parent / "docs" / "graph-text.md").read_text(encoding="utf-8")
    start = page.index("    graph small {")
    shown = page[start : page.index("\n    }\n", start) + 6]
    graph = from_text(shown, {"w": np.zeros((2, 3, 3, 1), np.int8)})
    assert [node.op.kind_name for node in graph.nodes] == ["Input", "Quantize", "Param", "Constant", "QConv2d"]


def test_for_people_long_things_are_short() -> None:
    graph = small_graph().with_metadata(explanation="a" * 100)
    text = to_text(graph, brief=True)
    assert f'metadata explanation = "{"a" * 60}"... 100 characters' in text
    assert "%7 flat = Reshape(%5) : i8[1, 8] s=0.1 z=0\n" in text
    scales = QuantParams(tuple(0.1 * i for i in range(1, 21)), (0,) * 20, 0)
    b = GraphBuilder("long")
    node = b.param("functional_1/dense_11/MatMul/ReadVariableOp;functional_1/dense_11", np.zeros(20, np.int8), scales)
    text = to_text(b.build([node]), brief=True)
    assert (
        "%0 functional_1/dense_11 = Param() : i8[20] s=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, ... 20 in all] z=0"
        in text
    )


def test_nested_graphs_stand_in_braces() -> None:
    flag, x = TensorType((), DType.BOOL), TensorType((2,), DType.F32)
    cond = GraphBuilder("cond")
    cond.input("x", x)
    inner = cond.build([cond.constant("go on", np.array(True))])
    body = GraphBuilder("body")
    start = body.input("x", x)
    twice = body.build([body.add(Binary(BinaryOp.ADD), [start, start], "twice")])
    outer = GraphBuilder("outer")
    loop = outer.add(While(inner, twice, 3), [outer.input("x", x)], "y")
    graph = outer.build([loop])
    assert flag == inner.output_nodes[0].type
    assert to_text(graph) == (
        """\
graph outer {
  %0 x = Input() : f32[2]
  %1 y = While(%0, cond=graph cond {
    %0 x = Input() : f32[2]
    %1 "go on" = Constant(true) : bool[]
    return %1
  }, body=graph body {
    %0 x = Input() : f32[2]
    %1 twice = Binary(%0, %0, fn=Add) : f32[2]
    return %1
  }, max_iterations=3) : f32[2]
  return %1
}
"""
    )
    assert same_graph(read_back(graph), graph)


def test_random_graphs_have_all_kinds() -> None:
    assert {*all_kinds().values()} == MAKERS.keys()


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
@settings(max_examples=settings().max_examples // 60)
@given(st.data())
def test_each_kind_is_read_back(kind: type[Op], data: st.DataObject) -> None:
    graph = data.draw(any_graphs([kind]))
    assert difference(read_back(graph), graph) is None, to_text(graph)


@settings(max_examples=settings().max_examples // 2)
@given(any_graphs())
def test_random_graphs_are_read_back(graph: Graph) -> None:
    assert difference(read_back(graph), graph) is None, to_text(graph)


@given(any_ops)
def test_any_op_is_read_back(op: Op) -> None:
    """Attributes that no valid graph has, too."""
    data = op.data if isinstance(op, Constant) else b""
    node = Node(0, op, (), TensorType((len(data),), DType.I8), "y")
    graph = Graph("g", (node,), (0,))
    assert difference(from_text(to_text(graph), {}, check=False), graph) is None, to_text(graph)


@settings(max_examples=settings().max_examples // 4)
@given(st.one_of(*SINGLE_OPS.values()))
def test_imported_models_are_read_back(case: Case) -> None:
    graph = load_tflite(case.model)
    assert difference(read_back(graph), graph) is None, to_text(graph)


@given(st.text(), st.text(), st.text())
def test_any_name_is_read_back(name: str, source: str, text: str) -> None:
    b = GraphBuilder(name)
    b.metadata[text] = name
    graph = b.build([b.input(name, TensorType((1,), DType.F32), [source, name])])
    assert difference(read_back(graph), graph) is None, to_text(graph)


@given(st.floats(), st.floats(width=32))
def test_any_number_is_read_back(wide: float, single: float) -> None:
    b = GraphBuilder("g")
    x = b.input("x", TensorType((1,), DType.F32))
    graph = b.build([b.add(Clamp(wide, single), [x], "y"), b.constant("k", np.array([wide, single]))])
    assert difference(read_back(graph), graph) is None, to_text(graph)


@given(st.sampled_from(DType).flatmap(lambda d: st.tuples(st.just(d), st.binary(min_size=0, max_size=48))))
def test_any_constant_is_read_back(case: tuple[DType, bytes]) -> None:
    """NaNs of any payload, bools that are neither 0 nor 1."""
    dtype, data = case
    size = len(data) * 8 // dtype.bits
    data = data[: size * dtype.bits // 8]
    if size:
        b = GraphBuilder("g")
        node = b.build([b.constant("k", np.zeros(size, dtype.numpy))]).nodes[0]
        graph = Graph("g", (replace(node, op=Constant(data), type=TensorType((size,), dtype)),), (0,))
        assert difference(read_back(graph), graph) is None, to_text(graph)


# ---- What cannot be read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("%1 q", "%2 q", "line 4, column 3: node %1 or return is expected, not %2"),
        ("Quantize(%0", "Quantized(%0", "line 4, column 10: Quantized is no kind of op"),
        ("Quantize(%0", "Quantize(%1", "line 4, column 19: there is no node %1 before this"),
        ("requant=tflm", "requant=tf", "line 4, column 31: requant is 'tf', which is no Requant"),
        ("requant=tflm", "rule=tflm", "line 4, column 28: a Quantize has no attribute rule"),
        ("fn=Add", "", "line 11, column 12: a Binary needs the attribute fn"),
        ("fn=Add", "fn=Add, fn=Add", "line 11, column 35: fn is given twice"),
        ("min=0.0", "min=[]", "line 12, column 26: min should be a number, not []"),
        ("i8[1, 4, 4, 1] s=0.5", "i7[1, 4, 4, 1] s=0.5", "line 4, column 39: a dtype is expected, not i7"),
        ("f32[1, 4, 4, 1]", "f32[N, 4, 4, 1]", "line 3, column 24: N stands for the batch: say which with batch="),
        ("f32[1, 4, 4, 1]", "f32[1, 4, 4, x]", "line 3, column 33: a size is expected, not 'x]'"),
        ("s=0.5 z=-128", "s=0.5 z=a", "line 4, column 56: z[0] should be an integer, not 'a'"),
        ("Constant(0) : i8", "Constant(300) : i8", "line 9, column 10: a value that i8 does not hold"),
        ("Constant(0) : i8", "Constant(1e39) : f32", "line 9, column 10: a value that f32 does not hold"),
        ("min=0.0", "min=1e39f", "1e39f is beyond float32"),
        ("Constant(0) : i8", "Constant([0, 0]) : i8", "line 9, column 10: 2 values for i8[8]"),
        ("Constant(0) : i8[8]", "Constant(0) : i8[99999999999]", "line 9, column 10: values of i8[99999999999]"),
        ("preprocess =", "preprocess", "line 2, column 23: '=' is expected, not '\"scale=1/255\"'"),
        ("return %10, %8\n}", "return %10, %8", "line 15, column 1: ',' is expected, not the end"),
        ("return %10, %8\n}", "return %10, %8\n} more", "line 15, column 3: the graph has ended, but there is 'more'"),
        ("[3, 3]", "[" * 100_000, "lists, records and graphs deeper than 64 in each other"),
        ("[3, 3]", "9" * 100_000, "an integer of more than 40 digits"),
        ("[3, 3]", "[3, 3", "line 7, column 58: ',' is expected, not '=[1,'"),
        ('"relu 1"', '"relu \\x"', "line 7, column 163: a quoted text with an escape"),
        ("f32[1, 8]\n", "f32[1, 9]\n", "declared f32[1, 9], but its operands give f32[1, 8]"),
    ],
)
def test_errors_say_where(old: str, new: str, words: str) -> None:
    assert GOLDEN.count(old) >= 1
    with pytest.raises(ModelError) as caught:
        from_text(GOLDEN.replace(old, new, 1), small_graph().params, where="kws.txt")
    assert str(caught.value).startswith("kws.txt") and words in str(caught.value)


def test_parameters_come_from_the_mapping() -> None:
    with pytest.raises(ModelError, match="no values for the parameter 'w'"):
        from_text(GOLDEN, {"b": np.zeros(2, np.int32)})


def test_deep_graphs_are_refused() -> None:
    text = "x=" + "graph g { %0 y = CustomFn(fwd_body=" * 1000
    with pytest.raises(ModelError, match="graphs nested deeper than 32"):
        from_text(text[2:], {})


def test_mixed_depths_are_refused() -> None:
    """Lists around graphs around lists, and ops within ops."""
    step = "[" * 30 + "graph g { %0 y = CustomFn(fwd_body="
    with pytest.raises(ModelError, match="deeper than 64 in each other"):
        from_text((step * 50)[30:], {})
    steps = "TransformRegion(steps=[ChainStep(op=" * 200
    with pytest.raises(ModelError, match="deeper than 64 in each other"):
        from_text(f"graph g {{ %0 y = {steps}", {})
    deep = "Cast(to=f32)"
    for _ in range(20):
        deep = f"TransformRegion(num_inputs=1, steps=[ChainStep(op={deep}, operands=[])])"
    of_x = deep.replace("(num", "(%0, num", 1)
    with pytest.raises(ModelError, match="not one of ResizeNearest2x"):
        from_text(f"graph g {{ %0 x = Input() : f32[1] %1 y = {of_x} : f32[1] return %1 }}", {})


def test_comments_and_spaces_do_not_matter() -> None:
    spaced = GOLDEN.replace(", ", " ,  ").replace("\n", "  # a comment }\n\n")
    assert same_graph(from_text(spaced, small_graph().params), small_graph())


@settings(max_examples=settings().max_examples)
@given(
    st.integers(0, len(GOLDEN) - 1),
    st.integers(0, 8),
    st.text(st.sampled_from('%0123.-ef"\\[](){}=,: N#xgraph\n'), max_size=6),
)
def test_any_text_is_read_or_refused(at: int, removed: int, added: str) -> None:
    changed = GOLDEN[:at] + added + GOLDEN[at + removed :]
    try:
        graph = from_text(changed, small_graph().params)
    except EdgeError:
        return
    assert difference(read_back(graph), graph) is None


# ---- Equality -------------------------------------------------------------------------------------------------------


def test_equality_sees_everything() -> None:
    graph = small_graph()
    assert same_graph(graph, small_graph())
    other = replace(graph, params={**graph.params, "b": np.ones(2, np.int32)})
    assert difference(graph, other) == "graph.params['b']: values differ"
    assert difference(graph, replace(graph, outputs=(10,))) == "graph.outputs: 2 and 1 entries"
    assert difference(graph, graph.with_metadata(a="b")) == "graph.metadata: ['a'] on one side only"
    node = replace(graph.nodes[9], op=Clamp(-0.0, 6.0))
    changed = replace(graph, nodes=(*graph.nodes[:9], node, graph.nodes[10]))
    assert difference(graph, changed) == "graph.nodes[9].op.min: 0.0 and -0.0"
    assert difference(Clamp(float("nan"), 1.0), Clamp(float("nan"), 1.0)) is None
    assert difference(Compare(CmpOp.LT), Compare(CmpOp.LE)) == "graph.fn: <CmpOp.LT: 'Lt'> and <CmpOp.LE: 'Le'>"
    nan = np.array([np.nan, 0.0])
    assert difference(nan, nan.copy()) is None
    assert difference(nan, np.array([np.nan, -0.0])) is not None


def test_half_a_surrogate_pair_is_refused() -> None:
    """No file could hold a parameter of such a name."""
    text = 'graph g {\n  %0 "\\ud800" = Param() : f32[1]\n  return %0\n}'
    with pytest.raises(ModelError, match="line 2, column 6: a quoted text"):
        from_text(text, {"\ud800": np.ones(1, np.float32)})
