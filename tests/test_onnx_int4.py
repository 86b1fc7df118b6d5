"""int4 weights in ONNX files: QDQ in and out against onnxruntime, float models with blocks of weights, and damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.checker
import pytest
from models import random_model, samples
from onnx import TensorProto, helper, numpy_helper
from onnx_models import run_oracle
from test_export_onnx import under_onnx
from test_tflite_int4 import of_few_bits

from rlx_edge.errors import EdgeError, ModelError, UnsupportedError
from rlx_edge.formats.export_onnx import onnx_bytes
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph, subbyte
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.reference import run

RNG = np.random.default_rng(11)
BITS = {TensorProto.INT4: (-8, 7), TensorProto.UINT4: (0, 15), TensorProto.INT8: (-128, 127)}


def stored(name: str, values: Array, kind: int) -> onnx.TensorProto:
    packed = subbyte.pack(values, 4) if kind != TensorProto.INT8 else values.astype(np.int8)
    return helper.make_tensor(name, kind, values.shape, packed.tobytes(), raw=True)


def model_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], constants: Mapping[str, Array | onnx.TensorProto]
) -> onnx.ModelProto:
    """Float input x, float output y."""
    held = [v if isinstance(v, TensorProto) else numpy_helper.from_array(v, k) for k, v in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "test", [x], [y], held)
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )
    onnx.checker.check_model(model)
    return model


def qdq(x: str, y: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [x, scale, zero], [f"{y}_codes"]),
        helper.make_node("DequantizeLinear", [f"{y}_codes", scale, zero], [y]),
    ]


def layer_model(op: str, kind: int, per_axis: bool, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """A QDQ layer whose weights are int4 or uint4, with the output channels last (dense) or first."""
    low, high = BITS[kind]
    axis = 1 if op == "MatMul" else 0
    channels = shape[axis]
    scale = RNG.uniform(0.05, 0.2, channels).astype(np.float32) if per_axis else np.array(0.1, np.float32)
    zero = np.full(scale.shape, 8 if kind == TensorProto.UINT4 else 0, np.int8)
    constants = {
        "w": stored("w", RNG.integers(low, high + 1, shape).astype(np.int8), kind),
        "ws": scale,
        "wz": stored("wz", zero, kind),
        **{"xs": np.array(0.05, np.float32), "xz": np.array(3, np.int8)},
        **{"ys": np.array(0.0371, np.float32), "yz": np.array(-7, np.int8)},
    }
    nodes = [
        *qdq("x", "xr", "xs", "xz"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], **({"axis": axis} if per_axis else {})),
        helper.make_node(op, ["xr", "wr"], ["product"], **attributes),
        *qdq("product", "y", "ys", "yz"),
    ]
    image = (1, shape[1] * attributes.get("group", 1), 5, 6) if op == "Conv" else (2, shape[0])
    return model_of(nodes, image, constants)


def imported(model: onnx.ModelProto) -> Graph:
    return load_onnx(model.SerializeToString())


def assert_equals_onnxruntime(model: onnx.ModelProto, count: int = 3) -> None:
    graph = imported(model)
    (x,), (y,) = graph.inputs, graph.output_nodes
    assert x.type.quant is not None and y.type.quant is not None
    for _ in range(count):
        codes = RNG.integers(-128, 128, x.type.shape).astype(np.int8)
        real = ((codes.astype(int) - x.type.quant.zero_point) * x.type.quant.scale).astype(np.float32)
        (theirs,) = run_oracle(model, {"x": real})
        ours = run(graph, {"x": codes})[y.name]
        wanted = (ours.astype(int) - y.type.quant.zero_point) * np.float32(y.type.quant.scale)
        np.testing.assert_array_equal(theirs, wanted.astype(np.float32))


# ---- Quantized models -----------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "dense": ("MatMul", (7, 5), {}),
    "conv": ("Conv", (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", (3, 1, 3, 3), {"group": 3}),
}


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_4_bits_equal_onnxruntime(layer: str, kind: int, per_axis: bool) -> None:
    op, shape, attributes = LAYERS[layer]
    model = layer_model(op, kind, per_axis, shape, **attributes)
    graph = imported(model)
    (made,) = (node for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul))
    assert graph.nodes[made.inputs[1]].type.dtype is DType.I4
    assert_equals_onnxruntime(model)


def test_float_weights_quantized_to_4_bits_in_the_file() -> None:
    """As quantization-aware training exports them; an attribute may say the type instead of a zero point."""
    weights = RNG.normal(0, 0.3, (6, 4)).astype(np.float32)
    for zero, attributes in ((["wz"], {}), ([], {"output_dtype": TensorProto.INT4})):
        constants = {
            "w": weights,
            "ws": np.array(0.1, np.float32),
            **({"wz": stored("wz", np.zeros((), np.int8), TensorProto.INT4)} if zero else {}),
            **{"xs": np.array(0.05, np.float32), "xz": np.array(3, np.int8)},
            **{"ys": np.array(0.0371, np.float32), "yz": np.array(-7, np.int8)},
        }
        nodes = [
            *qdq("x", "xr", "xs", "xz"),
            helper.make_node("QuantizeLinear", ["w", "ws", *zero], ["wq"], **attributes),
            helper.make_node("DequantizeLinear", ["wq", "ws", *zero], ["wr"]),
            helper.make_node("MatMul", ["xr", "wr"], ["product"]),
            *qdq("product", "y", "ys", "yz"),
        ]
        model = model_of(nodes, (1, 6), constants)
        (values,) = (v for v in imported(model).params.values() if v.ndim == 2)
        np.testing.assert_array_equal(values, np.clip(np.rint(weights / np.float32(0.1)), -8, 7))
        assert_equals_onnxruntime(model)


@pytest.mark.parametrize("dtype", [DType.I4, DType.I2])
@pytest.mark.parametrize("seed", range(4))
def test_exported_models_equal_onnxruntime_and_come_back(seed: int, dtype: DType) -> None:
    graph = under_onnx(of_few_bits(random_model(seed), dtype))
    data = onnx_bytes(graph)
    model = onnx.load_model_from_string(data)
    assert model.opset_import[0].version == 21 and model.ir_version == 10
    stored_bits = {t.data_type for t in model.graph.initializer if t.name.endswith(".weights")}
    assert stored_bits == {TensorProto.INT4}
    again = load_onnx(data)
    assert all(n.type.dtype is DType.I4 for n in again.nodes if n.name.endswith(".weights"))
    fed = {name: values[0] for name, values in samples(graph, 1, seed).items()}
    expected, loaded = run(graph, fed), run(again, fed)
    for node, values in zip(graph.output_nodes, run_oracle(model, fed), strict=True):
        np.testing.assert_array_equal(loaded[node.name], expected[node.name])
        assert np.abs(values.astype(int) - expected[node.name]).max() <= 1  # It sums in float32.


def test_models_of_8_bits_stay_at_the_old_opset() -> None:
    model = onnx.load_model_from_string(onnx_bytes(under_onnx(random_model(1))))
    assert model.opset_import[0].version == 17 and model.ir_version == 8


# ---- Float models whose weights alone are quantized -----------------------------------------------------------------


def weight_only(shape: tuple[int, int], kind: int, axis: int, block: int, with_zero: bool) -> onnx.ModelProto:
    low, high = BITS[kind]
    scales = [*shape]
    if block:
        scales[axis] = -(-shape[axis] // block)
    grid = tuple(scales) if block else (shape[axis],)
    constants: dict[str, Array | onnx.TensorProto] = {
        "w": stored("w", RNG.integers(low, high + 1, shape).astype(np.int8), kind),
        "s": RNG.uniform(0.05, 0.2, grid).astype(np.float32),
    }
    if with_zero:
        constants["z"] = stored("z", RNG.integers(low, high + 1, grid).astype(np.int8), kind)
    attributes = {"axis": axis} | ({"block_size": block} if block else {})
    names = ["w", "s", "z"] if with_zero else ["w", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["wr"], **attributes),
        helper.make_node("MatMul", ["x", "wr"], ["y"]),
    ]
    return model_of(nodes, (3, shape[0]), constants)


@pytest.mark.parametrize("with_zero", [False, True])
@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize(("axis", "block"), [(1, 0), (0, 16), (0, 12), (1, 4)])
def test_float_models_equal_onnxruntime(axis: int, block: int, kind: int, with_zero: bool) -> None:
    model = weight_only((32, 8), kind, axis, block, with_zero)
    graph = imported(model)
    x = RNG.normal(size=(3, 32)).astype(np.float32)
    (theirs,) = run_oracle(model, {"x": x})
    np.testing.assert_allclose(run(graph, {"x": x})["y"], theirs, rtol=1e-5, atol=1e-5)


# ---- Refusals and damage --------------------------------------------------------------------------------------------


def problem(model: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedError) as caught:
        imported(model)
    return caught.value.problems[0]


def test_activations_of_4_bits_are_refused_by_name() -> None:
    constants = {"s": np.array(0.5, np.float32), "z": stored("z", np.zeros((), np.int8), TensorProto.INT4)}
    model = model_of(qdq("x", "y", "s", "z"), (2, 3), constants)
    assert "int4 integers of computed tensors are not supported; int8 and uint8 are" in problem(model)


@pytest.mark.parametrize(("grid", "block"), [((2, 8), 8), ((2, 8), -1), ((1, 8), 16), ((32, 8), 16), ((2,), 16)])
def test_scales_that_fit_no_blocks(grid: tuple[int, ...], block: int) -> None:
    model = weight_only((32, 8), TensorProto.INT4, 0, 16, False)
    (scale,) = (t for t in model.graph.initializer if t.name == "s")
    scale.CopyFrom(numpy_helper.from_array(np.full(grid, 0.5, np.float32), "s"))
    (attribute,) = (a for a in model.graph.node[0].attribute if a.name == "block_size")
    attribute.i = block
    with pytest.raises(EdgeError) as caught:
        imported(model)
    assert "\n" not in str(caught.value) or isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("size", [1, 17, 19, 36])
def test_another_number_of_bytes_is_damage(size: int) -> None:
    """Of 35 values in 18 bytes."""
    model = layer_model("MatMul", TensorProto.INT4, True, (7, 5))
    (weights,) = (t for t in model.graph.initializer if t.name == "w")
    weights.raw_data = bytes(size)
    with pytest.raises(ModelError) as caught:
        imported(model)
    assert "\n" not in str(caught.value)
    assert f"{size} bytes" in str(caught.value)


def test_scales_of_another_count() -> None:
    model = layer_model("MatMul", TensorProto.INT4, True, (7, 5))
    (scale,) = (t for t in model.graph.initializer if t.name == "ws")
    scale.CopyFrom(numpy_helper.from_array(np.full(4, 0.1, np.float32), "ws"))
    assert "5 zero points for 4 scales" in problem(model)
