"""uint8 `.tflite` files become int8 graphs that compute the same, 128 less: equal to tflite-runtime, every element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from oracles.single_functions import ALL_OPS, examples
from oracles.single_ops import Case
from oracles.tflite_ref import SKIP_REASON, TfliteRuntime, oracle_python
from oracles.tflite_writer import Array, OpSpec, TensorSpec, write_model

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import DType, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Binary
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

OPS = [name for name in ALL_OPS if name not in ("ABS", "ELU", "EXP")]
"""The operators that tflite-runtime has on uint8."""


@pytest.fixture(scope="module")
def runtime() -> Iterator[TfliteRuntime]:
    if oracle_python() is None:
        pytest.skip(SKIP_REASON)
    with TfliteRuntime() as worker:
        yield worker


def flipped(values: Array) -> Array:
    """int8 values as uint8, 128 more."""
    return (values.view(np.uint8) ^ 128).astype(np.uint8) if values.dtype == np.int8 else values


def unsigned(spec: TensorSpec, weight_zero: int) -> TensorSpec:
    """The tensor with uint8 for int8; weights get a zero point, and one scale as uint8 files have."""
    if spec.type == "INT32" and spec.scales:
        return replace(spec, scales=spec.scales[:1], zero_points=(0,))
    if spec.type != "INT8":
        return spec
    zero = weight_zero if spec.name == "weights" else spec.zero_points[0] + 128
    data = None if spec.data is None else flipped(spec.data)
    return replace(spec, type="UINT8", scales=spec.scales[:1], zero_points=(zero,), axis=0, data=data)


def as_uint8(case: Case, weight_zero: int) -> Case:
    tensors = [unsigned(spec, weight_zero) for spec in case.tensors]
    assert case.operator is not None
    model = write_model(tensors, [case.operator], case.input_tensors, case.operator.outputs)
    return Case(model, tuple(flipped(x) for x in case.inputs))


@pytest.mark.parametrize("name", OPS)
def test_equals_tflite_runtime(name: str, runtime: TfliteRuntime) -> None:
    @settings(deadline=None, max_examples=max(examples(name) // 2, 20), suppress_health_check=list(HealthCheck))
    @given(ALL_OPS[name], st.sampled_from([128, 0, 255, 101]))
    def check(signed: Case, weight_zero: int) -> None:
        case = as_uint8(signed, weight_zero)
        try:
            expected = runtime.run(case.model, case.inputs)
        except RuntimeError as error:
            if "has_bias" not in str(error):  # its CONV_2D needs a bias
                raise
            reject()
        graph = load_tflite(case.model, Requant.TFLM)
        inputs = {n.name: x for n, x in zip(graph.inputs, signed.inputs, strict=True)}
        for found, wanted in zip(run(graph, inputs).values(), expected, strict=True):
            np.testing.assert_array_equal(flipped(found), wanted)

    check()


# ---- What random models seldom meet ---------------------------------------------------------------------------------


def codes(*shape: int) -> Array:
    return np.arange(256, dtype=np.uint8).reshape(shape)


def uint8(name: str, *shape: int, scale: float, zero: int, data: Array | None = None) -> TensorSpec:
    return TensorSpec(name, shape, "UINT8", (scale,), (zero,), data=data)


def found_by_us(model: bytes, *inputs: Array) -> Array:
    graph = load_tflite(model)
    values = {node.name: (x ^ 128).view(np.int8) for node, x in zip(graph.inputs, inputs, strict=True)}
    (found,) = run(graph, values).values()
    return flipped(found)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.5, 0.25, 0.75, 2.5]))
def test_multipliers_at_ties(runtime: TfliteRuntime, kind: str, seed: int, ratio: float) -> None:
    """The product of the scales is rounded to float32, which shows where a result lies between two codes."""
    x_scale, w_scale = (float(np.float32(s)) for s in np.random.default_rng(seed).uniform(0.01, 1, 2))
    y_scale = float(np.float32(x_scale * w_scale / ratio))
    tensors = [
        uint8("x", 1, 16, 16, 1, scale=x_scale, zero=3),
        uint8("w", 1, 1, 1, 1, scale=w_scale, zero=100, data=np.full((1, 1, 1, 1), 101, np.uint8)),
        TensorSpec("b", (1,), "INT32", (float(np.float32(x_scale * w_scale)),), (0,), data=np.zeros(1, np.int32)),
        uint8("y", 1, 16, 16, 1, scale=y_scale, zero=5),
    ]
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    options = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
    fields |= {} if kind == "CONV_2D" else {"DepthMultiplier": 1}
    model = write_model(tensors, [OpSpec(kind, [0, 1, 2], [3], options, fields)], [0], [3])
    x = codes(1, 16, 16, 1)
    np.testing.assert_array_equal(found_by_us(model, x), runtime.run(model, [x])[0])


def small_net() -> bytes:
    """Convolution, mean pool, dense layer, softmax, as converters of uint8 models wrote them."""
    rng = np.random.default_rng(3)
    tensors = [
        uint8("image", 1, 8, 8, 3, scale=0.0078125, zero=128),
        uint8("w", 6, 3, 3, 3, scale=0.02, zero=131, data=rng.integers(0, 256, (6, 3, 3, 3)).astype(np.uint8)),
        TensorSpec("b", (6,), "INT32", data=rng.integers(-500, 500, 6).astype(np.int32)),
        uint8("features", 1, 8, 8, 6, scale=0.09, zero=0),
        uint8("pooled", 1, 2, 2, 6, scale=0.09, zero=0),
        uint8("dense", 5, 24, scale=0.03, zero=120, data=rng.integers(0, 256, (5, 24)).astype(np.uint8)),
        uint8("logits", 1, 5, scale=0.4, zero=90),
        uint8("probabilities", 1, 5, scale=1 / 256, zero=0),
    ]
    conv = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": 3}
    window = {"StrideH": 4, "StrideW": 4, "FilterHeight": 4, "FilterWidth": 4}
    operators = [
        OpSpec("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", conv),
        OpSpec("AVERAGE_POOL_2D", [3], [4], "Pool2DOptions", window),
        OpSpec("FULLY_CONNECTED", [4, 5, -1], [6], "FullyConnectedOptions"),
        OpSpec("SOFTMAX", [6], [7], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return write_model(tensors, operators, [0], [7])


def test_a_small_net(runtime: TfliteRuntime, tmp_path: Path) -> None:
    """The graph, and the C code made from it."""
    model, images = small_net(), np.random.default_rng(4).integers(0, 256, (20, 1, 8, 8, 3)).astype(np.uint8)
    graph = load_tflite(model)
    assert graph.inputs[0].type == TensorType((1, 8, 8, 3), DType.I8, QuantParams.per_tensor(0.0078125, 0))
    expected = np.stack([runtime.run(model, [image])[0] for image in images])
    np.testing.assert_array_equal(np.stack([found_by_us(model, image) for image in images]), expected)
    (bundled,) = generate({"model": graph}, tmp_path / "bundle")
    found = HostModel(bundled).run({"image": (images ^ 128).view(np.int8)})["probabilities"]
    np.testing.assert_array_equal(flipped(found), expected)


@pytest.mark.parametrize("inner", ["INT8", "UINT8"])
def test_float_inputs_and_outputs_give_the_same_numbers(runtime: TfliteRuntime, inner: str) -> None:
    """QUANTIZE and DEQUANTIZE at the borders are left out; quantizing the data by the same formula replaces them."""
    offset = 128 if inner == "UINT8" else 0
    tensors = [
        TensorSpec("x", (1, 300), "FLOAT32"),
        *(TensorSpec(n, (1, 300), inner, (s,), (z + offset,)) for n, s, z in (("q", 0.05, 3), ("r", 0.07, -20))),
        TensorSpec("y", (1, 300), "FLOAT32"),
    ]
    ops = [OpSpec("QUANTIZE", [0], [1]), OpSpec("ADD", [1, 1], [2], "AddOptions"), OpSpec("DEQUANTIZE", [2], [3])]
    model = write_model(tensors, ops, [0], [3])
    rng = np.random.default_rng(0)
    x = np.where(rng.random((1, 300)) < 0.5, rng.integers(-300, 300, (1, 300)) * 0.025, rng.normal(0, 3, (1, 300)))
    graph = load_tflite(model)
    given, out = graph.inputs[0].type.quant, graph.output_nodes[0].type.quant
    assert given is not None
    assert out is not None
    (found,) = run(graph, {"x": quantize_f32(x.astype(np.float32), given)}).values()
    np.testing.assert_array_equal(dequantize_f32(found, out), runtime.run(model, [x.astype(np.float32)])[0])


def test_uint8_at_the_border_of_an_int8_model_changes_nothing() -> None:
    """The converter's inference_input_type=uint8: a QUANTIZE from uint8 to int8 whose zero points are 128 apart."""
    tensors = [
        uint8("x", 1, 4, scale=0.5, zero=130),
        TensorSpec("q", (1, 4), scales=(0.5,), zero_points=(2,)),
        TensorSpec("r", (1, 4), scales=(0.25,), zero_points=(0,)),
        uint8("y", 1, 4, scale=0.25, zero=128),
    ]
    ops = [OpSpec("QUANTIZE", [0], [1]), OpSpec("ADD", [1, 1], [2], "AddOptions"), OpSpec("QUANTIZE", [2], [3])]
    graph = load_tflite(write_model(tensors, ops, [0], [3]))
    (x, total) = graph.nodes
    assert (x.name, x.type.quant) == ("x", QuantParams.per_tensor(0.5, 2))
    assert (total.name, total.sources) == ("y", ("r", "y"))
    assert isinstance(total.op, Binary)
    assert total.op.requant is Requant.TFLM
