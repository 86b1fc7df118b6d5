"""The rounding rule onnx, op by op, against onnxruntime: QDQ without graph optimizations, and the QLinear kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx_models import run_oracle

from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, Graph
from rlx_edge.reference import run

pytest.importorskip("onnxruntime")

TIE = 1e-3
"""Codes from the middle between two, within which float32 noise may decide."""

scales = st.one_of(st.integers(-8, -1).map(lambda e: 2.0**e), st.floats(2e-3, 0.5).map(lambda s: float(np.float32(s))))
zeros = st.one_of(st.sampled_from([-128, 0, 127]), st.integers(-128, 127))
seeds = st.integers(0, 2**32 - 1)
few = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))


@dataclass
class Model:
    """An ONNX model of int8 or uint8 tensors in the making."""

    dtype: type = np.int8
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def parameters(self, name: str, scale: float, zero: int) -> list[str]:
        moved = zero + (128 if self.dtype is np.uint8 else 0)
        self.constants |= {f"{name}_s": np.array(scale, np.float32), f"{name}_z": np.array(moved, self.dtype)}
        return [f"{name}_s", f"{name}_z"]

    def input(self, name: str, shape: Sequence[int], seed: int) -> str:
        codes = np.random.default_rng(seed).integers(-128, 128, shape)
        self.inputs[name] = (codes + (128 if self.dtype is np.uint8 else 0)).astype(self.dtype)
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], domain=domain, **attributes))
        return output

    def real(self, name: str, shape: Sequence[int], seed: int, scale: float, zero: int) -> str:
        held = self.input(name, shape, seed)
        return self.node("DequantizeLinear", [held, *self.parameters(name, scale, zero)], f"{name}_real")

    def proto(self, output: str, opset: int = 17, kind: int | None = None) -> onnx.ModelProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "test",
            [helper.make_tensor_value_info(k, element, v.shape) for k, v in self.inputs.items()],
            [onnx.ValueInfoProto(name=output)],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in self.constants.items()],
        )
        graph.output[0].CopyFrom(helper.make_tensor_value_info(output, kind or element, None))
        graph.output[0].type.tensor_type.shape.SetInParent()
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=9)
        inferred = onnx.shape_inference.infer_shapes(model)
        if not inferred.graph.output[0].type.tensor_type.shape.dim:
            session_shape = run_oracle(model_without_shape(model), self.inputs)[0].shape
            inferred.graph.output[0].CopyFrom(helper.make_tensor_value_info(output, kind or element, session_shape))
        return inferred


def model_without_shape(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output[0].type.tensor_type.ClearField("shape")
    return copy


def moved(values: Array) -> Array:
    return (values.astype(np.int16) - 128).astype(np.int8) if values.dtype == np.uint8 else values


def both(model: Model, output: str, opset: int = 17) -> tuple[Graph, Array, Array]:
    """(graph, ours, theirs), as int8."""
    proto = model.proto(output, opset)
    graph = load_onnx(proto.SerializeToString())
    ours = run(graph, {name: moved(values) for name, values in model.inputs.items()})[output]
    return graph, ours, moved(run_oracle(proto, model.inputs)[0])


def near_ties_only(ours: Array, theirs: Array, exact: Array) -> None:
    """Equal, or one code apart where the exact quotient lies at a tie."""
    wrong = ours != theirs
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
    assert (np.abs(exact - np.floor(exact) - 0.5)[wrong] < TIE).all()


def codes_of(model: Model, name: str, scale: float, zero: int) -> Array:
    return (moved(model.inputs[name]).astype(np.float64) - zero) * scale


BINARY: dict[str, Callable[[Array, Array], Array]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, dtype: type) -> None:
    """The same float32 steps, so the same bits, ties included."""

    @few
    @given(sa=scales, za=zeros, sb=scales, zb=zeros, zy=zeros, ratio=st.sampled_from([0.25, 0.7, 1.0]), seed=seeds)
    def check(sa: float, za: int, sb: float, zb: int, zy: int, ratio: float, seed: int) -> None:
        model = Model(dtype)
        operands = [model.real("a", (2, 3, 40), seed, sa, za), model.real("b", (3, 40), seed + 1, sb, zb)]
        out = ratio * (sa * sb * 64 if op == "Mul" else sa + sb)
        y = model.node(op, operands, "y_real")
        model.node("QuantizeLinear", [y, *model.parameters("y", float(np.float32(out)), zy)], "y")
        _, ours, theirs = both(model, "y")
        np.testing.assert_array_equal(ours, theirs)

    check()


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_qlinear_binary(op: str) -> None:
    """onnxruntime's kernels round after they add the zero point, so that ties go the other way where it is odd."""

    @few
    @given(sa=scales, za=zeros, sb=scales, zb=zeros, zy=zeros, seed=seeds)
    def check(sa: float, za: int, sb: float, zb: int, zy: int, seed: int) -> None:
        model = Model()
        out = float(np.float32(sa * sb * 64 if op == "Mul" else sa + sb))
        a = [model.input("a", (2, 60), seed), *model.parameters("a", sa, za)]
        b = [model.input("b", (2, 60), seed + 1), *model.parameters("b", sb, zb)]
        model.node(f"QLinear{op}", [*a, *b, *model.parameters("y", out, zy)], "y", "com.microsoft")
        _, ours, theirs = both(model, "y")
        exact = BINARY[op](codes_of(model, "a", sa, za), codes_of(model, "b", sb, zb)) / out
        near_ties_only(ours, theirs, exact)

    check()


@few
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    pads=st.booleans(),
    counted=st.booleans(),
    scale=scales,
    zero=zeros,
    own=st.booleans(),
    seed=seeds,
)
def test_average_pool(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: bool,
    counted: bool,
    scale: float,
    zero: int,
    own: bool,
    seed: int,
) -> None:
    """Sums in onnxruntime's order, so the same bits also at the many ties of small windows."""
    model = Model()
    x = model.real("x", (1, 3, 9, 10), seed, scale, zero)
    half = [k // 2 for k in kernel]
    attributes = dict(kernel_shape=kernel, strides=stride, count_include_pad=int(counted))
    y = model.node("AveragePool", [x], "y_real", pads=[*half, *half] if pads else [0] * 4, **attributes)
    out = model.parameters("y", scale * 0.6, -3) if own else model.parameters("y", scale, zero)
    model.node("QuantizeLinear", [y, *out], "y")
    _, ours, theirs = both(model, "y")
    np.testing.assert_array_equal(ours, theirs)


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], dict[str, float]]] = {
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), {}),
    "Tanh": (np.tanh, {}),
    "LeakyRelu": (lambda x: np.where(x > 0, x, x * float(np.float32(0.1))), {"alpha": 0.1}),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "Softmax": (lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True), {}),
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_function(op: str) -> None:
    @few
    @given(scale=scales, zero=zeros, out=st.sampled_from([1 / 256, 1 / 255, 0.01]), zy=zeros, seed=seeds)
    def check(scale: float, zero: int, out: float, zy: int, seed: int) -> None:
        model = Model()
        y = model.node(op, [model.real("x", (3, 12), seed, scale, zero)], "y_real", **FUNCTIONS[op][1])
        target = float(np.float32(out))
        model.node("QuantizeLinear", [y, *model.parameters("y", target, zy)], "y")
        _, ours, theirs = both(model, "y")
        near_ties_only(ours, theirs, FUNCTIONS[op][0](codes_of(model, "x", scale, zero)) / target)

    check()


QLINEAR: Mapping[str, tuple[str, dict[str, Any]]] = {
    "QLinearSigmoid": ("Sigmoid", {}),
    "QLinearLeakyRelu": ("LeakyRelu", {"alpha": 0.1}),
    "QLinearSoftmax": ("Softmax", {"axis": -1, "opset": 17}),
}


@pytest.mark.parametrize("op", QLINEAR)
def test_qlinear_function(op: str) -> None:
    @few
    @given(scale=scales, zero=zeros, seed=seeds)
    def check(scale: float, zero: int, seed: int) -> None:
        model = Model(np.uint8)
        out = float(np.float32(1 / 256 if op != "QLinearLeakyRelu" else scale * 0.7))
        x = [model.input("x", (3, 12), seed), *model.parameters("x", scale, zero)]
        name, attributes = QLINEAR[op]
        model.node(op, [*x, *model.parameters("y", out, -128)], "y", "com.microsoft", **attributes)
        _, ours, theirs = both(model, "y")
        near_ties_only(ours, theirs, FUNCTIONS[name][0](codes_of(model, "x", scale, zero)) / out)

    check()


@few
@given(scale=scales, zero=zeros, zy=zeros, same=st.booleans(), size=st.sampled_from([3, 4, 5, 8]), seed=seeds)
def test_qlinear_global_average_pool(scale: float, zero: int, zy: int, same: bool, size: int, seed: int) -> None:
    """The sum in integers, then one float32 product: its ties are exact, and equal."""
    model = Model()
    x = [model.input("x", (1, 6, size, size), seed), *model.parameters("x", scale, zero)]
    out = model.parameters("y", scale if same else float(np.float32(scale * 0.3)), zero if same else zy)
    model.node("QLinearGlobalAveragePool", [*x, *out], "y", "com.microsoft")
    _, ours, theirs = both(model, "y")
    np.testing.assert_array_equal(ours, theirs)


@few
@given(scale=scales, zero=zeros, seed=seeds)
def test_qlinear_average_pool(scale: float, zero: int, seed: int) -> None:
    model = Model()
    x = [model.input("x", (1, 3, 8, 8), seed), *model.parameters("x", scale, zero)]
    out = model.parameters("y", scale, zero)
    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    model.node("QLinearAveragePool", [*x, *out], "y", "com.microsoft", **pool)
    _, ours, theirs = both(model, "y")
    blocks = codes_of(model, "x", scale, zero).reshape(1, 3, 4, 2, 4, 2)
    near_ties_only(ours, theirs, blocks.mean(axis=(3, 5)) / scale)


@few
@given(sa=scales, sb=scales, zero=zeros, seed=seeds, form=st.sampled_from(["QDQ", "QOperator"]))
def test_concat(sa: float, sb: float, zero: int, seed: int, form: str) -> None:
    model = Model()
    out = model.parameters("y", max(sa, sb), 5)
    if form == "QDQ":
        parts = [model.real("a", (2, 30), seed, sa, zero), model.real("b", (2, 7), seed + 1, sb, -zero - 1)]
        model.node("QuantizeLinear", [model.node("Concat", parts, "y_real", axis=1), *out], "y")
    else:
        a = [model.input("a", (2, 30), seed), *model.parameters("a", sa, zero)]
        b = [model.input("b", (2, 7), seed + 1), *model.parameters("b", sb, -zero - 1)]
        model.node("QLinearConcat", [*out, *a, *b], "y", "com.microsoft", axis=1)
    _, ours, theirs = both(model, "y")
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_qlinear_matmul_and_gemm(dtype: type) -> None:
    """Integer kernels: equal bits. uint8 weights keep their zero point, less 128."""

    @few
    @given(sx=scales, zx=zeros, wz=st.sampled_from([0, 5, -9]), per_column=st.booleans(), zy=zeros, seed=seeds)
    def check(sx: float, zx: int, wz: int, per_column: bool, zy: int, seed: int) -> None:
        rng, model = np.random.default_rng(seed), Model(dtype)
        weights, bias = rng.integers(-127, 128, (9, 14)), rng.integers(-3000, 3000, 14).astype(np.int32)
        shift = 128 if dtype is np.uint8 else 0
        ws = rng.uniform(0.001, 0.01, 14 if per_column else ()).astype(np.float32)
        wz = 0 if per_column else wz
        constants = {"w": (weights + shift).astype(dtype), "ws": ws, "wz": np.full(ws.shape, wz + shift, dtype)}
        model.constants |= {**constants, "b": bias}
        x = [model.input("x", (4, 9), seed), *model.parameters("x", sx, zx)]
        out = model.parameters("y", float(np.float32(sx * ws.max() * 900)), zy)
        model.node("QGemm", [*x, "w", "ws", "wz", "b", *out], "y", "com.microsoft")
        _, ours, theirs = both(model, "y")
        np.testing.assert_array_equal(ours, theirs)
        model.nodes.clear()
        model.node("QLinearMatMul", [*x, "w", "ws", "wz", *out], "y")
        _, ours, theirs = both(model, "y")
        np.testing.assert_array_equal(ours, theirs)

    check()


@few
@given(
    groups=st.sampled_from([1, 2, 4]),
    stride=st.integers(1, 2),
    sx=scales,
    zx=zeros,
    zy=zeros,
    per_channel=st.booleans(),
    seed=seeds,
)
def test_qlinear_conv(groups: int, stride: int, sx: float, zx: int, zy: int, per_channel: bool, seed: int) -> None:
    rng, model = np.random.default_rng(seed), Model()
    ws = rng.uniform(0.001, 0.01, 8 if per_channel else ()).astype(np.float32)
    weights = rng.integers(-127, 128, (8, 4 // groups, 3, 3)).astype(np.int8)
    model.constants |= {"w": weights, "ws": ws, "wz": np.zeros(ws.shape, np.int8)}
    model.constants["b"] = rng.integers(-3000, 3000, 8).astype(np.int32)
    x = [model.input("x", (1, 4, 7, 6), seed), *model.parameters("x", sx, zx)]
    out = model.parameters("y", float(np.float32(sx * ws.max() * 1500)), zy)
    window = dict(pads=[1, 0, 1, 2], strides=[stride, stride], group=groups)
    model.node("QLinearConv", [*x, "w", "ws", "wz", *out, "b"], "y", **window)
    _, ours, theirs = both(model, "y")
    np.testing.assert_array_equal(ours, theirs)
