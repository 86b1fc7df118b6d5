"""Import of int8 `.tflite` files: what the graph looks like, and what is refused and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite
from oracles.tflite_writer import OpSpec, TensorSpec, write_model
from tflite_models import WEIGHTS, B, W, X, Y, conv_model, conv_op, int8

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats import load
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import DType, QuantParams, Requant
from rlx_edge.ir.ops import Activation, Binary, Concat, Dequantize, Layout, Pool, QConv2d, QMatMul, Quantize, Reshape

# ---- What the graph looks like --------------------------------------------------------------------------------------


def test_a_convolution() -> None:
    graph = load_tflite(conv_model())
    node = graph.output_nodes[0]
    op = node.op
    assert isinstance(op, QConv2d)
    assert [n.name for n in graph.nodes] == ["x", "w", "b", "y"]
    assert node.sources == ("y",)
    assert (op.layout, op.requant, op.groups, op.clamp) == (Layout.NHWC, Requant.TFLM, 1, None)
    assert (op.x_zp, op.w_zp, op.out_zp) == (-1, 0, 4)
    assert op.mult == pytest.approx((0.5 * 0.25 / 0.1,))
    assert graph.nodes[2].type.quant == QuantParams.per_tensor(0.125, 0)
    np.testing.assert_array_equal(graph.params["w"], WEIGHTS)


def test_the_odd_pixel_of_same_padding_goes_after() -> None:
    op = load_tflite(conv_model()).output_nodes[0].op
    assert isinstance(op, QConv2d)
    assert op.padding == (0, 0, 1, 1)


def test_depthwise_weights_are_turned_and_channels_are_groups() -> None:
    values = np.arange(2 * 3 * 4, dtype=np.int8).reshape(1, 2, 3, 4)
    scales = (0.1, 0.2, 0.3, 0.4)
    tensors = [
        int8("x", 1, 5, 5, 2),
        TensorSpec("w", (1, 2, 3, 4), scales=scales, zero_points=(0,) * 4, axis=3, data=values),
        int8("y", 1, 4, 3, 4, scale=0.7),
    ]
    fields = {"Padding": tflite.Padding.VALID, "StrideH": 1, "StrideW": 1, "DepthMultiplier": 2}
    graph = load_tflite(
        write_model(tensors, [OpSpec("DEPTHWISE_CONV_2D", [0, 1], [2], "DepthwiseConv2DOptions", fields)], [0], [2])
    )
    op = graph.output_nodes[0].op
    assert isinstance(op, QConv2d)
    assert (op.groups, op.kernel_size, len(op.mult)) == (2, (2, 3), 4)
    np.testing.assert_array_equal(graph.params["w"], values[0].transpose(2, 0, 1)[..., None])
    (bias,) = [node for node in graph.nodes if node.type.dtype is DType.I32]
    assert not graph.params[bias.name].any()
    assert bias.type.quant is not None
    assert bias.type.quant.axis == 0


@pytest.mark.parametrize(
    ("activation", "clamp"),
    [
        (tflite.ActivationFunctionType.NONE, None),
        (tflite.ActivationFunctionType.RELU, (4, 127)),
        (tflite.ActivationFunctionType.RELU6, (4, 64)),
        (tflite.ActivationFunctionType.RELU_N1_TO_1, (-6, 14)),
    ],
)
def test_fused_activations_are_bounds_in_quantized_units(activation: int, clamp: tuple[int, int] | None) -> None:
    op = load_tflite(conv_model(FusedActivationFunction=activation)).output_nodes[0].op
    assert isinstance(op, QConv2d)
    assert op.clamp == clamp


def test_a_clamp_that_int8_has_anyway_is_none() -> None:
    tensors = [int8("x", 2, zero=-128), int8("y", 2, zero=-128)]
    relu = {"FusedActivationFunction": tflite.ActivationFunctionType.RELU}
    op = (
        load_tflite(write_model(tensors, [OpSpec("ADD", [0, 0], [1], "AddOptions", relu)], [0], [1])).output_nodes[0].op
    )
    assert isinstance(op, Binary)
    assert op.clamp is None


def dense_model(x_shape: tuple[int, ...], y_shape: tuple[int, ...], keep: bool = False) -> bytes:
    tensors = [int8("x", *x_shape), int8("w", 3, 4, data=np.arange(12, dtype=np.int8)), int8("y", *y_shape)]
    fields = {"KeepNumDims": int(keep)}
    return write_model(tensors, [OpSpec("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions", fields)], [0], [2])


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "keep", "kinds"),
    [
        ((2, 4), (2, 3), False, [QMatMul]),
        ((1, 2, 2, 1), (1, 3), False, [Reshape, QMatMul]),
        ((2, 5, 4), (2, 5, 3), True, [Reshape, QMatMul, Reshape]),
    ],
)
def test_dense_layers_work_on_rows(
    x_shape: tuple[int, ...], y_shape: tuple[int, ...], keep: bool, kinds: list[type]
) -> None:
    graph = load_tflite(dense_model(x_shape, y_shape, keep))
    assert [type(n.op) for n in graph.nodes if type(n.op) in (Reshape, QMatMul)] == kinds
    assert graph.output_nodes[0].name == "y"
    assert graph.output_nodes[0].sources == ("y",)
    np.testing.assert_array_equal(graph.params["w"], np.arange(12).reshape(3, 4).T)


def test_several_inputs_and_outputs_keep_their_order_and_unused_tensors_vanish() -> None:
    tensors = [int8("a", 2), int8("unused", 7), int8("b", 2), int8("sum", 2), int8("product", 2)]
    ops = [OpSpec("ADD", [0, 2], [3], "AddOptions"), OpSpec("MUL", [0, 2], [4], "MulOptions")]
    graph = load_tflite(write_model(tensors, ops, inputs=[2, 0], outputs=[4, 3, 2]))
    assert [node.name for node in graph.inputs] == ["b", "a"]
    assert [node.name for node in graph.output_nodes] == ["product", "sum", "b"]
    assert "unused" not in {node.name for node in graph.nodes}


def test_weights_that_two_operators_share_are_one_parameter() -> None:
    tensors = [X, W, B, Y, replace(Y, name="z")]
    graph = load_tflite(write_model(tensors, [conv_op(), replace(conv_op(), outputs=[4])], [0], [3, 4]))
    assert [node.name for node in graph.nodes].count("w") == 1


def float_borders(*between: OpSpec, inner: tuple[TensorSpec, ...] = ()) -> bytes:
    """x float -> q int8 -> `between` -> r int8 -> y float; tensors 0 to 3, then `inner`."""
    real = [TensorSpec(name, (3,), "FLOAT32") for name in "xy"]
    tensors = [real[0], int8("q", 3), int8("r", 3, scale=0.25), real[1], *inner]
    ops = [OpSpec("QUANTIZE", [0], [1]), *between, OpSpec("DEQUANTIZE", [2], [3])]
    return write_model(tensors, ops, [0], [3])


def test_float_inputs_and_outputs_around_an_int8_core_become_int8() -> None:
    graph = load_tflite(float_borders(OpSpec("QUANTIZE", [1], [2])))
    assert [type(node.op) for node in graph.nodes[1:]] == [Quantize]
    (x,), (y,) = graph.inputs, graph.output_nodes
    assert (x.name, x.type.quant, x.sources) == ("x", QuantParams.per_tensor(0.5, 0), ("q", "x"))
    assert (y.name, y.type.quant, y.sources) == ("y", QuantParams.per_tensor(0.25, 0), ("r", "y"))


def test_float_borders_that_others_read_stay() -> None:
    """The input is read twice, and what is dequantized is an input."""
    tensors = [
        TensorSpec("x", (3,), "FLOAT32"),
        int8("q", 3),
        int8("r", 3, scale=0.25),
        TensorSpec("y", (3,), "FLOAT32"),
    ]
    ops = [OpSpec("QUANTIZE", [0], [1]), OpSpec("QUANTIZE", [0], [2])]
    graph = load_tflite(write_model(tensors, ops, [0], [1, 2]))
    assert graph.inputs[0].type.dtype is DType.F32
    graph = load_tflite(write_model(tensors, [OpSpec("DEQUANTIZE", [1], [3])], [1], [3]))
    assert isinstance(graph.output_nodes[0].op, Dequantize)


def test_conversions_that_change_nothing_are_left_out() -> None:
    inner = (TensorSpec("f", (3,), "FLOAT32"), int8("again", 3), int8("same", 3))
    data = float_borders(
        OpSpec("DEQUANTIZE", [1], [4]),
        OpSpec("QUANTIZE", [4], [5]),
        OpSpec("QUANTIZE", [5], [6]),
        OpSpec("ADD", [5, 6], [2], "AddOptions"),
        inner=inner,
    )
    graph = load_tflite(data)
    assert [type(node.op) for node in graph.nodes[1:]] == [Binary]
    assert graph.nodes[1].inputs == (0, 0)


def test_shape_arithmetic_is_worked_out() -> None:
    """What the converter makes of a flatten with an open batch."""

    def ints(name: str, *values: int) -> TensorSpec:
        return TensorSpec(name, (len(values),), "INT32", data=np.array(values, np.int32))

    tensors = [
        *(int8("x", 1, 2, 3), TensorSpec("shape", (3,), "INT32"), ints("0", 0), ints("1", 1), ints("one", 1)),
        *(TensorSpec("batch", (), "INT32"), TensorSpec("rest", (), "INT32", data=np.array(-1, np.int32))),
        *(TensorSpec("new", (2,), "INT32"), int8("y", 1, 6)),
    ]
    ops = [
        OpSpec("SHAPE", [0], [1], "ShapeOptions"),
        OpSpec("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        OpSpec("PACK", [5, 6], [7], "PackOptions", {"ValuesCount": 2}),
        OpSpec("RESHAPE", [0, 7], [8]),
    ]
    graph = load_tflite(write_model(tensors, ops, [0], [8]))
    assert [node.op for node in graph.nodes[1:]] == [Reshape((1, -1))]


def test_constants_that_grow_are_refused() -> None:
    size = 5000
    tensors = [TensorSpec("x", (1,), "FLOAT32"), TensorSpec("y", (size, size), "FLOAT32")]
    tensors += [TensorSpec("a", (size, 1), "FLOAT32", data=np.ones((size, 1), np.float32))]
    tensors += [TensorSpec("b", (1, size), "FLOAT32", data=np.ones((1, size), np.float32))]
    tensors += [TensorSpec("z", (size, size), "FLOAT32")]
    ops = [OpSpec("ADD", [2, 3], [1], "AddOptions"), OpSpec("ADD", [0, 1], [4], "AddOptions")]
    assert "grow beyond 16777216 elements" in refusal(write_model(tensors, ops, [0], [4]))


def test_the_rule_is_the_callers() -> None:
    graph = load_tflite(conv_model(), requant=Requant.TFLITE_REF)
    op = graph.output_nodes[0].op
    assert isinstance(op, QConv2d)
    assert op.requant is Requant.TFLITE_REF


def test_a_negative_concatenation_axis_counts_from_the_end() -> None:
    tensors = [int8("a", 2, 3), int8("b", 2, 1), int8("y", 2, 4)]
    ops = [OpSpec("CONCATENATION", [0, 1], [2], "ConcatenationOptions", {"Axis": -1})]
    op = load_tflite(write_model(tensors, ops, [0, 1], [2])).output_nodes[0].op
    assert op == Concat(1)


def test_a_file_names_its_graph(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(conv_model())
    assert load(path).name == "small"


def test_names_that_cannot_be_printed_are_made_printable() -> None:
    graph = load_tflite(write_model([int8("a\n*/", 2), int8("", 2)], [OpSpec("RESHAPE", [0], [1])], [0], [1]))
    assert [node.name for node in graph.nodes] == ["a?*/", "tensor_1"]


def test_pools_keep_their_layout() -> None:
    tensors = [int8("x", 1, 4, 4, 1), int8("y", 1, 2, 2, 1)]
    fields = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3, "Padding": tflite.Padding.SAME}
    model = write_model(tensors, [OpSpec("AVERAGE_POOL_2D", [0], [1], "Pool2DOptions", fields)], [0], [1])
    op = load_tflite(model).output_nodes[0].op
    assert isinstance(op, Pool)
    assert (op.layout, op.padding, op.count_include_pad) == (Layout.NHWC, (0, 0, 1, 1), False)


# ---- What is refused ------------------------------------------------------------------------------------------------


def refusal(data: bytes) -> str:
    with pytest.raises(UnsupportedError) as caught:
        load_tflite(data)
    return str(caught.value)


def test_everything_unsupported_is_listed_with_its_position() -> None:
    tensors = [int8("x", 4), int8("a", 4), int8("b", 4), int8("c", 4), int8("d", 4)]
    ops = [
        OpSpec("CUMSUM", [0], [1]),
        OpSpec("ADD", [0, 1], [2], "AddOptions"),
        OpSpec("CUSTOM", [2], [3], custom_code="Detect"),
        OpSpec("ADD", [3, 3], [4], "AddOptions", {"FusedActivationFunction": tflite.ActivationFunctionType.TANH}),
    ]
    with pytest.raises(UnsupportedError) as caught:
        load_tflite(write_model(tensors, ops, [0], [4]))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "operator 0 CUMSUM (output 'a')",
        "operator 2 CUSTOM 'Detect' (output 'c')",
        "operator 3 ADD (output 'd')",
    ]


@pytest.mark.parametrize("type", ["UINT8", "INT16", "FLOAT16", "BOOL", "FLOAT32", "INT32"])
def test_other_activation_types_are_refused_by_name(type: str) -> None:
    tensors = [replace(int8("x", 4), type=type), int8("y", 4)]
    message = refusal(write_model(tensors, [OpSpec("ADD", [0, 0], [1], "AddOptions")], [0], [1]))
    assert "operator 0 ADD (output 'y')" in message
    assert "UINT8 and INT8" in message if type == "UINT8" else "'x'" in message


@pytest.mark.parametrize(
    ("kind", "type", "words"), [("CUMSUM", "FLOAT32", "no such operator"), ("SUM", "INT8", "FLOAT32")]
)
def test_an_operator_of_the_other_type_says_so(kind: str, type: str, words: str) -> None:
    tensors = [replace(int8("x", 4), type=type), replace(int8("y", 4), type=type)]
    assert words in refusal(write_model(tensors, [OpSpec(kind, [0], [1], "ReducerOptions")], [0], [1]))


def test_int16_activations_are_refused_by_name() -> None:
    tensors = [replace(int8(name, 4), type="INT16") for name in "xy"]
    message = refusal(write_model(tensors, [OpSpec("ADD", [0, 0], [1], "AddOptions")], [0], [1]))
    assert "the INT16 tensor 'x'" in message
    assert "16x8" in message


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_zero_points_of_int8_convolution_weights_are_refused(kind: str) -> None:
    """TFLite's own int8 kernels do not look at them, so that the file has no clear meaning."""
    if kind == "CONV_2D":
        data = write_model([X, replace(W, zero_points=(3,)), B, Y], [conv_op()], [0], [3])
    else:
        w = replace(W, shape=(1, 2, 2, 2), zero_points=(3,), data=WEIGHTS[:1])
        fields = {"Padding": tflite.Padding.SAME, "StrideH": 2, "StrideW": 2, "DepthMultiplier": 1}
        op = OpSpec(kind, [0, 1], [2], "DepthwiseConv2DOptions", fields)
        data = write_model([X, w, replace(Y, shape=(1, 3, 3, 2))], [op], [0], [2])
    assert "which TFLite's kernels ignore" in refusal(data)


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
def test_functions_with_fixed_outputs_take_no_others(kind: str) -> None:
    assert "an output of scale" in refusal(
        write_model([int8("x", 4), int8("y", 4)], [OpSpec(kind, [0], [1])], [0], [1])
    )


def test_functions_without_a_kernel_under_the_rule_are_refused() -> None:
    data = write_model([int8("x", 4), int8("y", 4)], [OpSpec("EXP", [0], [1])], [0], [1])
    assert "import with the rule tflite_ref" in refusal(data)
    assert isinstance(load_tflite(data, Requant.TFLITE_REF).output_nodes[0].op, Activation)


def test_slices_that_take_nothing_are_refused() -> None:
    bounds = [TensorSpec(n, (1,), "INT32", data=np.array([v], np.int32)) for n, v in (("begin", 4), ("size", -1))]
    tensors = [int8("x", 4), *bounds, int8("y", 2)]
    assert "no element is left" in refusal(write_model(tensors, [OpSpec("SLICE", [0, 1, 2], [3])], [0], [3]))


def test_variable_tensors_are_refused() -> None:
    tensors = [int8("x", 4), replace(int8("state", 4), is_variable=True), int8("y", 4)]
    message = refusal(write_model(tensors, [OpSpec("ADD", [0, 1], [2], "AddOptions")], [0], [2]))
    assert "the variable tensor 'state'" in message


def test_several_subgraphs_are_refused() -> None:
    assert "2 subgraphs" in refusal(write_model([X, W, B, Y], [conv_op()], [0], [3], subgraphs=2))


def test_weights_that_are_computed_are_refused() -> None:
    tensors = [X, replace(W, data=None), B, Y]
    assert "weights that the model computes" in refusal(write_model(tensors, [conv_op()], [0, 1], [3]))


def test_int16_biases_and_uint8_weights_are_refused() -> None:
    assert "INT16" in refusal(write_model([X, W, replace(B, type="INT16"), Y], [conv_op()], [0], [3]))
    assert "UINT8 and INT8" in refusal(write_model([X, replace(W, type="UINT8"), B, Y], [conv_op()], [0], [3]))


@pytest.mark.parametrize("kind", ["CONCATENATION", "RESHAPE", "MAX_POOL_2D", "PAD"])
def test_moved_bytes_need_equal_parameters(kind: str) -> None:
    tensors = [int8("x", 1, 2, 2, 1), int8("y", 1, 2, 2, 1, scale=0.3)]
    tensors.append(TensorSpec("p", (4, 2), "INT32", data=np.zeros((4, 2), np.int32)))
    options = {"CONCATENATION": "ConcatenationOptions", "MAX_POOL_2D": "Pool2DOptions"}.get(kind, "")
    fields = {"StrideH": 1, "StrideW": 1, "FilterHeight": 1, "FilterWidth": 1} if kind == "MAX_POOL_2D" else {}
    inputs = [0, 2] if kind == "PAD" else [0]
    message = refusal(write_model(tensors, [OpSpec(kind, inputs, [1], options, fields)], [0], [1]))
    assert "different quantization parameters" in message


def test_a_softmax_with_another_output_scale_is_refused() -> None:
    tensors = [int8("x", 1, 4), int8("y", 1, 4, scale=1 / 128, zero=-128)]
    model = write_model(tensors, [OpSpec("SOFTMAX", [0], [1], "SoftmaxOptions", {"Beta": 1.0})], [0], [1])
    assert "1/256" in refusal(model)


def test_activations_without_parameters_are_refused() -> None:
    tensors = [TensorSpec("x", (4,)), int8("y", 4)]
    message = refusal(write_model(tensors, [OpSpec("ADD", [0, 0], [1], "AddOptions")], [0], [1]))
    assert "without quantization parameters" in message
