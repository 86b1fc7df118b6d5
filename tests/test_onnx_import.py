"""Every ONNX op that is imported means what onnxruntime computes; everything else is refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper
from onnx_models import make_model, random_array, run_oracle

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.formats.onnx_ops import OPS
from rlx_edge.formats.onnx_quant import DYNAMIC
from rlx_edge.ir import Array
from rlx_edge.ir.ops import Activation, Binary, Clamp, Conv, Reshape
from rlx_edge.reference import run


def check_equal(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> None:
    expected = run_oracle(model, inputs)
    graph = load_onnx(model.SerializeToString())
    found = list(run(graph, inputs).values())
    assert [f.shape for f in found] == [e.shape for e in expected]
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=2e-5, atol=2e-5)


Case = tuple[str, Sequence[Sequence[int]], Mapping[str, Array], Mapping[str, Any], int]


def case(
    op: str, *shapes: Sequence[int], c: Mapping[str, Any] | None = None, opset: int = 17, **attributes: Any
) -> Case:
    """One node: operands of these shapes are inputs, those in `c` are constants (by position: {"1": values})."""
    return op, shapes, {k: np.asarray(v) for k, v in (c or {}).items()}, attributes, opset


IMAGE = (1, 4, 7, 6)
W = random_array((6, 4, 3, 2), 1)
I64 = np.int64

CASES = [
    case("Conv", IMAGE, c={"1": W}),
    case("Conv", IMAGE, c={"1": W, "2": random_array((6,), 2)}, pads=[1, 0, 2, 1], strides=[2, 1]),
    case("Conv", IMAGE, c={"1": random_array((8, 1, 3, 3), 1)}, group=4, dilations=[2, 1], pads=[2, 1, 2, 1]),
    case("Conv", IMAGE, c={"1": W}, auto_pad="SAME_UPPER", strides=[2, 3]),
    case("Conv", IMAGE, c={"1": W}, auto_pad="SAME_LOWER", strides=[2, 2]),
    case("Conv", IMAGE, c={"1": W}, auto_pad="VALID", kernel_shape=[3, 2]),
    case("Conv", (3, 4, 7, 6), c={"1": W}),
    case("Gemm", (3, 5), c={"1": random_array((5, 4), 1)}),
    case("Gemm", (3, 5), c={"1": random_array((4, 5), 1), "2": random_array((4,), 2)}, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", (5, 3), c={"1": random_array((5, 4), 1), "2": random_array((3, 1), 2)}, transA=1),
    case("Gemm", (3, 5), c={"1": random_array((5, 4), 1), "2": np.float32(3)}, beta=0.0),
    case("Gemm", (3, 5), (4, 5), (4,), transB=1, alpha=0.5, beta=2.0),
    case("Gemm", (3, 5), (5, 4), alpha=0.5),
    case("MatMul", (5,), c={"1": random_array((5, 4))}),
    case("MatMul", (2, 3, 5), c={"1": random_array((5,))}),
    case("Conv", (2, 4, 7), c={"1": random_array((6, 2, 3), 1), "2": random_array((6,), 2)}, group=2, pads=[2, 1]),
    case("Conv", (1, 4, 5, 6, 7), c={"1": random_array((6, 2, 3, 2, 1), 1)}, group=2, pads=[2, 1, 0, 1, 0, 3]),
    case("Conv", (1, 4, 5, 6, 7), c={"1": random_array((2, 4, 2, 2, 2), 1)}, strides=[2, 1, 3], dilations=[2, 1, 1]),
    case("ConvTranspose", IMAGE, c={"1": random_array((4, 3, 3, 2), 1), "2": random_array((3,), 2)}, strides=[2, 3]),
    case(
        "ConvTranspose",
        IMAGE,
        c={"1": random_array((4, 1, 3, 3))},
        group=4,
        pads=[1, 0, 2, 1],
        output_padding=[0, 1],
        strides=[1, 2],
        dilations=[2, 1],
    ),
    case("ConvTranspose", (2, 4, 7), c={"1": random_array((4, 3, 3))}, strides=[2], auto_pad="SAME_UPPER"),
    case("MatMul", (3, 5), c={"1": random_array((5, 4), 1)}),
    case("MatMul", (2, 3, 5), (2, 5, 4)),
    case("MatMul", (1, 2, 3, 5), c={"1": random_array((5, 4), 1)}),
    case("Add", IMAGE, IMAGE),
    case("Add", IMAGE, c={"1": random_array((4, 1, 1), 1)}),
    case("Sub", (6, 1), c={"0": random_array((1, 5), 1)}),
    case("Mul", IMAGE, (1, 4, 1, 1)),
    case("Relu", IMAGE),
    case("Clip", IMAGE, c={"1": np.float32(-0.5), "2": np.float32(0.25)}),
    case("Clip", IMAGE, c={"1": np.float32(0)}),
    case("Clip", IMAGE, c={"1": np.float32(1), "2": np.float32(-1)}),
    case("Clip", IMAGE, opset=10, min=0.0, max=6.0),
    case("Clip", IMAGE, opset=10, max=0.5),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 2, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[2, 1, 0, 1], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[2, 3], auto_pad="SAME_UPPER"),
    case("AveragePool", (2, 4, 9), kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1),
    case(
        "AveragePool",
        IMAGE,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
        ceil_mode=1,
        opset=19,
    ),
    case("AveragePool", (1, 2, 5, 6, 7), kernel_shape=[2, 3, 3], strides=[2, 1, 2], pads=[1, 1, 1, 0, 1, 1]),
    case("MaxPool", (1, 2, 5, 6, 7), kernel_shape=[2, 3, 3], strides=[2, 1, 2], pads=[1, 1, 1, 0, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("GlobalAveragePool", IMAGE),
    case("GlobalLpPool", IMAGE, p=3),
    case("ReduceLogSumExp", IMAGE, axes=[1, 3], keepdims=0),
    case("Flatten", IMAGE),
    case("Flatten", IMAGE, axis=-1),
    case("Flatten", IMAGE, axis=0),
    case("Reshape", IMAGE, c={"1": np.array([0, -1, 2], I64)}),
    case("Reshape", IMAGE, c={"1": np.array([-1, 3, 4], I64)}, allowzero=1),
    case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("Transpose", (2, 3, 4)),
    case("Concat", (1, 2, 3), (1, 4, 3), axis=1),
    case("Concat", (1, 2, 3), c={"1": random_array((1, 2, 5), 1)}, axis=-1),
    case("Pad", (2, 3), c={"1": np.array([0, 1, 2, 0], I64)}),
    case("Pad", (2, 3), c={"1": np.array([0, 1, 2, 0], I64), "2": np.float32(1.5)}, mode="constant"),
    case("Pad", (2, 3), c={"1": np.array([1, 2], I64), "2": np.float32(0), "3": np.array([-1], I64)}, opset=18),
    case("Pad", (2, 3), opset=10, pads=[0, 1, 2, 0], value=-1.0),
    case("Pad", (4, 5), c={"1": np.array([0, 1, 2, 3], I64)}, mode="reflect"),
    case("Pad", (4, 5), c={"1": np.array([1, -1, 2, 3], I64)}, mode="edge"),
    case("Softmax", (3, 5)),
    case("Softmax", (2, 3, 4), axis=1),
    case("Softmax", (2, 3, 4), opset=11, axis=1),
    case("Softmax", (2, 3), opset=11),
    case("Identity", IMAGE),
    case("Dropout", IMAGE),
    case("Dropout", IMAGE, opset=10, ratio=0.3),
    case("Squeeze", (1, 3, 1, 2), c={"1": np.array([-2], I64)}),
    case("Squeeze", (1, 3, 1, 2), opset=11),
    case("Unsqueeze", (3, 2), c={"1": np.array([0, -1], I64)}),
    case("Unsqueeze", (3, 2), opset=11, axes=[1]),
    case("ReduceMean", IMAGE, axes=[2, -1]),
    case("ReduceMean", IMAGE, opset=18, c={"1": np.array([1], I64)}, keepdims=0),
    case("ReduceMean", IMAGE),
    case("BatchNormalization", IMAGE, c={str(i + 1): np.abs(random_array((4,), i)) for i in range(4)}, epsilon=0.01),
    case("BatchNormalization", (3, 4), c={str(i + 1): np.abs(random_array((4,), i)) for i in range(4)}, momentum=0.5),
]


def one_node(op: str, shapes: Sequence[Sequence[int]], constants: Mapping[str, Array], attributes: Mapping[str, Any],
             opset: int) -> tuple[onnx.ModelProto, dict[str, Array]]:  # fmt: skip
    names, rest = [], iter(enumerate(shapes))
    inputs: dict[str, Array] = {}
    for position in range(len(shapes) + len(constants)):
        name = f"c{position}" if str(position) in constants else f"x{position}"
        names.append(name)
        if str(position) not in constants:
            index, shape = next(rest)
            inputs[name] = random_array(shape, 10 + index)
    node = helper.make_node(op, names, ["y"], name="the_node", **attributes)
    model = make_model(
        [node], {k: v.shape for k, v in inputs.items()}, ["y"], {f"c{k}": v for k, v in constants.items()}, opset
    )
    return model, inputs


@pytest.mark.parametrize("spec", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_op_equals_onnxruntime(spec: Case) -> None:
    check_equal(*one_node(*spec))


def test_every_op_of_the_table_has_a_case_here_or_among_the_node_tests() -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "onnx-coverage.md"
    passed = set(re.findall(r"^\| `(\w+)` \| \d", page.read_text(encoding="utf-8"), re.MULTILINE))
    foreign = {name for name in OPS if "." in name}  # Ops of ONNX Runtime's domain; test_onnx_quant has them.
    refused = set(DYNAMIC)
    assert set(OPS) - foreign - refused - CASTS <= {spec[0] for spec in CASES} | passed


CASTS = {"Cast", "CastLike", "Not"}


def test_parts_that_are_not_outputs_are_refused() -> None:
    """ONNX's own shape inference ends the process on this node."""
    node = helper.make_node("Split", ["x"], ["y", "z"], num_outputs=1)
    for constants in ({}, {"x": np.ones(4, np.float32)}):
        model = make_model([helper.make_node("Relu", ["i"], ["o"])], {"i": (1,)}, ["o"], constants, opset=18)
        if not constants:
            model.graph.input.append(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4]))
        model.graph.node.append(node)
        for name in "yz":
            model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]))
        with pytest.raises(UnsupportedError, match="num_outputs"):
            load_onnx(model.SerializeToString())


def test_casts_equal_onnxruntime() -> None:
    """To int32 and back (toward zero), to bool and its opposite, and to another tensor's dtype."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=onnx.TensorProto.INT32),
        helper.make_node("Cast", ["x"], ["b"], to=onnx.TensorProto.BOOL),
        helper.make_node("Not", ["b"], ["n"]),
        helper.make_node("CastLike", ["i"], ["y"], name="back"),
        helper.make_node("Cast", ["n"], ["z"], to=onnx.TensorProto.FLOAT),
    ]
    nodes[3].input.append("x")
    model = make_model(nodes, {"x": (2, 5)}, ["y", "z"])
    check_equal(model, {"x": np.array([[-1.5, -0.5, 0.0, 0.5, 2.5], [1e9, -1e9, 0.1, -0.0, 3.0]], np.float32)})


@given(st.data())
def test_random_windows_equal_onnxruntime(data: st.DataObject) -> None:
    small = st.integers(1, 3)
    op = data.draw(st.sampled_from(["Conv", "MaxPool", "AveragePool"]))
    size = [data.draw(st.integers(1, 9)) for _ in range(2)]
    kernel = [data.draw(small) for _ in range(2)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [data.draw(small) for _ in range(2)]}
    pad_rule = data.draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    groups, constants, dilation = 1, {}, [1, 1]
    if op == "Conv":
        groups = data.draw(small)
        dilation = [data.draw(small) for _ in range(2)]
        attributes |= {"group": groups, "dilations": dilation}
        constants = {"1": random_array((2 * groups, 2, *kernel), 3), "2": random_array((2 * groups,), 4)}
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    if pad_rule == "NOTSET":
        attributes["pads"] = [data.draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4)]
    else:
        attributes["auto_pad"] = pad_rule
    pads = attributes.get("pads", [0] * 4)
    if not pad_rule.startswith("SAME"):
        for axis in range(2):
            assume(size[axis] + pads[axis] + pads[2 + axis] >= (kernel[axis] - 1) * dilation[axis] + 1)
    elif op != "Conv":
        # Windows wholly outside of the image are refused by the IR; strides that skip pixels, by onnxruntime.
        assume(all(s >= k for s, k in zip(size, kernel, strict=True)))
        assume(all(s <= k for s, k in zip(attributes["strides"], kernel, strict=True)))
    else:
        assume(dilation == [1, 1])  # onnxruntime has no dilated SAME convolution.
    check_equal(*one_node(op, [(1, 2 * groups, *size)], constants, attributes, 17))


def test_small_network_keeps_names_and_sources() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv_out"]),
        helper.make_node("Relu", ["conv_out"], ["relu_out"]),
        helper.make_node("Dropout", ["relu_out"], ["kept"]),
        helper.make_node("Identity", ["kept"], ["y"]),
    ]
    constants = {"w": random_array((2, 3, 1, 1)), "b": random_array((2,))}
    model = make_model(nodes, {"x": ("batch", 3, 4, 4)}, ["y"], constants)
    graph = load_onnx(model.SerializeToString())
    assert [type(n.op) for n in graph.nodes if n.inputs] == [Conv, Binary, Activation]
    assert graph.inputs[0].type.shape == (1, 3, 4, 4)
    assert graph.output_nodes[0].name == "y"
    assert graph.output_nodes[0].sources == ("relu_out", "kept", "y")
    assert graph.nodes[graph.outputs[0] - 1].sources == ("conv_out",)


def test_shapes_computed_by_the_model_are_worked_out() -> None:
    """The flatten that PyTorch writes for a dynamic batch: Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Constant", [], ["first"], value_ints=[0]),
        helper.make_node("Unsqueeze", ["batch", "first"], ["batch_1d"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["batch_1d", "rest"], ["new_shape"], axis=0),
        helper.make_node("Reshape", ["x", "new_shape"], ["y"]),
    ]
    model = make_model(nodes, {"x": ("n", 3, 4, 4)}, ["y"])
    graph = load_onnx(model.SerializeToString())
    assert [type(n.op) for n in graph.nodes] == [type(graph.inputs[0].op), Reshape]
    check_equal(model, {"x": random_array((1, 3, 4, 4))})


def test_clip_from_zero_is_relu_and_relu6_is_clamp() -> None:
    def op_of(spec: Case) -> object:
        return load_onnx(one_node(*spec)[0].SerializeToString()).output_nodes[0].op

    assert isinstance(op_of(case("Clip", IMAGE, c={"1": np.float32(0)})), Activation)
    assert op_of(case("Clip", IMAGE, opset=10, min=0.0, max=6.0)) == Clamp(0.0, 6.0)


REFUSED = [
    (case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 1]), "dilations"),
    (case("MaxPool", IMAGE, kernel_shape=[2, 2], storage_order=1), "storage_order"),
    (case("MaxPool", (1, 4, 7), kernel_shape=[2, 2]), r"shape \[1, 4, 7\] for a window \[2, 2\]"),
    (case("Conv", (1, 4, 5, 5, 5, 5), c={"1": random_array((6, 4, 1, 1, 1, 1))}), "1 to 3 axes"),
    (case("Reshape", (2, 3), (2,)), "the new shape is computed"),
    (case("LSTM", (5, 1, 3), c={"1": random_array((1, 8, 3)), "2": random_array((1, 8, 2))}, hidden_size=2), "LSTM"),
    (case("Det", (3, 3)), "not supported on computed values"),
    (case("Expand", (1,), c={"1": np.array([1 << 14, 1 << 14], I64)}), "more than 67108864 elements"),
    (case("Conv", IMAGE, c={"1": W}, pads=[1 << 40, 0, 0, 0], strides=[1 << 40, 1]), "the padded image has more than"),
    (case("AveragePool", IMAGE, kernel_shape=[1 << 20, 1], pads=[1 << 19, 0, 1 << 19, 0]), "a window"),
    (case("Cast", (2,), to=1000), "to=1000"),
    (case("Tile", (2, 3), c={"1": np.array([1 << 30, 1 << 30], I64)}), "more than 67108864 elements"),
]


@pytest.mark.parametrize(("spec", "needle"), REFUSED, ids=[f"{i}-{r[1]}" for i, r in enumerate(REFUSED)])
def test_what_is_not_honored_is_refused_by_name(spec: Case, needle: str) -> None:
    with pytest.raises(UnsupportedError, match=r"node 0 'the_node'") as caught:
        load_onnx(one_node(*spec)[0].SerializeToString())
    assert re.search(needle, str(caught.value))


def test_all_problems_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["x"], ["c", "indices"], kernel_shape=[2, 2], dilations=[2, 2], name="second"),
        helper.make_node("Special", ["x"], ["d"], domain="com.example", name="third"),
        helper.make_node("NonZero", ["b"], ["y"], name="fourth"),
    ]
    model = make_model(nodes, {"x": (1, 2, 8, 8)}, ["y", "d"])
    with pytest.raises(UnsupportedError) as caught:
        load_onnx(model.SerializeToString())
    assert [p.split(": ")[0] for p in caught.value.problems] == [
        "node 0 'first' (Det)",
        "node 2 'second' (MaxPool)",
        "node 3 'third' (com.example.Special)",
        "node 4 'fourth' (NonZero)",
    ]


def test_a_second_output_in_use_is_refused() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])
    model = make_model([node], {"x": (1, 2, 8, 8)}, ["y"])
    model.graph.output.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [1, 2, 7, 7]))
    with pytest.raises(UnsupportedError, match="further output 'i'"):
        load_onnx(model.SerializeToString())


def test_inputs_must_be_float_with_fixed_sizes() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(UnsupportedError, match=r"at axis 2 \(height\), axis 3 \(w\).* --dim height=SIZE --dim w=SIZE"):
        load_onnx(make_model([relu], {"x": ("n", 3, "height", "w")}, ["y"]).SerializeToString())
    model = make_model([relu], {"x": (1, 3)}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    with pytest.raises(UnsupportedError, match="DOUBLE"):
        load_onnx(model.SerializeToString())
