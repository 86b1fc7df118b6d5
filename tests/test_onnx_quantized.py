"""Quantized ONNX models against onnxruntime: of ONNX Runtime's quantizer in both formats, and of PyTorch's QAT."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import onnx.utils
import pytest
from onnx import helper, numpy_helper
from onnx_models import make_model, run_oracle
from ort_models import (
    DIGITS,
    ROOT,
    TIE,
    all_tensors,
    dequantized,
    digits_floats,
    distance_to_tie,
    nodes_that_differ,
    quantize_static,
    quantized_digits,
    quantized_input,
)
from random_models import BODY, HEAD, ModelMaker

from rlx_edge.api import load_data
from rlx_edge.engines import predict
from rlx_edge.errors import EdgeError, ModelError, UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import DType, Graph, Requant
from rlx_edge.ir.ops import QConv2d, QMatMul, Reduce
from rlx_edge.passes.freeze import freeze
from rlx_edge.quant.calibrate import Calibration, calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run
from rlx_edge.runtimes import keeps_u8s8_exact

pytest.importorskip("onnxruntime")

QAT = ROOT / "tests" / "fixtures" / "digits_qat.onnx"
SAMPLES = 60

DIGITS_FORMS = [
    *(("QDQ", "QInt8", "QInt8", pc) for pc in (False, True)),
    *(("QDQ", "QUInt8", "QUInt8", pc) for pc in (False, True)),
    *(("QDQ", "QUInt8", "QInt8", pc) for pc in (False, True)),
    *(("QDQ", "QInt8", weights, pc) for weights in ("QInt4", "QUInt4") for pc in (False, True)),
    *(("QOperator", "QInt8", "QInt8", pc) for pc in (False, True)),
    ("QOperator", "QUInt8", "QUInt8", False),
    ("QOperator", "QUInt8", "QInt8", False),
]


def imported(model: onnx.ModelProto) -> Graph:
    return load_onnx(model.SerializeToString())


def differing(model: onnx.ModelProto, graph: Graph, samples: np.ndarray) -> int:
    """How many output values differ from onnxruntime's, without graph optimizations."""
    name = graph.inputs[0].name
    (output,) = graph.output_nodes
    count = 0
    for sample in samples:
        (theirs,) = run_oracle(model, {name: sample})
        ours = run(graph, {name: quantized_input(graph, sample)})[output.name]
        count += int((dequantized(output, ours) != theirs).sum())
    return count


@pytest.mark.parametrize(("form", "activations", "weights", "per_channel"), DIGITS_FORMS)
def test_digits_quantized_by_onnxruntime(form: str, activations: str, weights: str, per_channel: bool) -> None:
    """0 differing. QDQ models compute in float at this level, QOperator ones with the integer kernels."""
    if form == "QOperator" and activations != weights and not keeps_u8s8_exact():
        pytest.skip("this CPU's u8s8 kernels saturate sums of two products")
    model = quantized_digits(form, activations, weights, per_channel)
    graph = imported(model)
    assert [n.name for n in graph.inputs] == ["x"] and [n.name for n in graph.output_nodes] == ["probabilities"]
    assert differing(model, graph, digits_floats("test", SAMPLES)) == 0


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_digits_in_c(form: str) -> None:
    """The same models as C on the host: the reference's bits."""
    graph = imported(quantized_digits(form, "QInt8", "QInt8", True))
    data = load_data(DIGITS / "digits_test.npz", graph, samples="0:60")
    host, reference = predict(graph, data, "host"), predict(graph, data, "reference")
    np.testing.assert_array_equal(host["probabilities"], reference["probabilities"])


@pytest.mark.parametrize("seed", range(8))
def test_random_models_quantized_by_onnxruntime(seed: int) -> None:
    """Every tensor, from onnxruntime's own operands: equal, but for sums so near a tie that float32 noise decides."""
    rng = np.random.default_rng(seed)
    maker = ModelMaker(seed)
    chosen = rng.choice([k for k in BODY if k not in ("batchnorm", "there", "scale", "clip")], 3)
    for kind in ("conv", *chosen):  # onnxruntime leaves a pooling of the model's input in float.
        maker.body(str(kind))
    maker.head(str(rng.choice([h for h in HEAD if h not in ("relu_flatten_dense", "mean_rows")])))
    model, samples = maker.model(), rng.standard_normal((16, *maker.input_shape)).astype(np.float32)
    made = quantize_static(model, {"x": samples}, per_channel=bool(seed % 2), **options(seed))
    graph = imported(made)
    for sample in samples[:4]:
        theirs = all_tensors(made, {"x": sample}) | {"x": quantized_input(graph, sample)}
        for node, ours, held, operands in nodes_that_differ(graph, theirs):
            assert isinstance(node.op, QConv2d | QMatMul | Reduce), node
            wrong = ours != held
            assert np.abs(ours.astype(int) - held.astype(int)).max() == 1
            assert distance_to_tie(graph, node, operands)[wrong].max() < TIE, node


def audio_model() -> onnx.ModelProto:
    """One-dimensional convolutions with biases, a padding and poolings, as keyword spotting on raw audio has them."""
    rng = np.random.default_rng(5)
    f = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("w", (4, 2, 3)), ("v", (4, 1, 5)))}
    f |= {name: rng.standard_normal(4).astype(np.float32) for name in ("b", "c")}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"]),
        op("Relu", "a", "r"),
        op("Pad", "r amounts value", "p"),
        helper.make_node("Conv", ["p", "v", "c"], ["d"], group=4),
        op("Add", "d r", "sum"),
        helper.make_node("AveragePool", ["sum"], ["m"], kernel_shape=[2], strides=[2]),
        op("GlobalAveragePool", "m", "g"),
    ]
    amounts = np.array([0, 0, 2, 0, 0, 2], np.int64)
    return make_model(nodes, {"x": (1, 2, 18)}, ["g"], f | {"amounts": amounts, "value": np.array(0, np.float32)})


@pytest.mark.parametrize("contrib", [False, True])
def test_audio_quantized_by_onnxruntime(contrib: bool) -> None:
    """With the ops of ONNX Runtime's own domain too, which its quantizer writes on demand."""
    model, samples = audio_model(), np.random.default_rng(6).standard_normal((8, 1, 2, 18)).astype(np.float32)
    made = quantize_static(model, {"x": samples}, **options(0), extra_options={"UseQDQContribOps": contrib})
    assert {n.domain for n in made.graph.node if n.op_type == "DequantizeLinear"} == {
        "com.microsoft" if contrib else ""
    }
    graph = imported(made)
    assert sum(isinstance(n.op, QConv2d) for n in graph.nodes) == 2
    assert differing(made, graph, samples) == 0


def options(seed: int) -> dict[str, object]:
    from onnxruntime.quantization import QuantFormat, QuantType

    kind = (QuantType.QInt8, QuantType.QUInt8)[seed // 2 % 2]
    return {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": kind}


# ---- Quantization-aware training -------------------------------------------------------------------------------------


def test_qat_keeps_what_was_learned() -> None:
    """Scales are those of the file; weights are what its QuantizeLinear gives; biases become int32."""
    model, graph = onnx.load_model(QAT), load_onnx(QAT)
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    scales = {float(v.reshape(())) for v in held.values() if v.dtype == np.float32 and v.size == 1}
    activations = [n for n in graph.nodes if n.type.dtype is DType.I8 and n.type.quant and n.type.quant.axis is None]
    assert all(n.type.quant.scale in scales for n in activations if n.type.quant)
    assert all(n.op.requant is Requant.ONNX for n in graph.nodes if hasattr(n.op, "requant"))
    weighted = [n for n in graph.nodes if isinstance(n.op, QConv2d | QMatMul)]
    assert len(weighted) == 5
    assert all(graph.nodes[n.inputs[2]].type.dtype is DType.I32 for n in weighted)


def test_qat_accuracy_is_kept() -> None:
    graph = load_onnx(QAT)
    samples, labels = digits_floats("test", 200), np.load(DIGITS / "digits_test.npz")["y"][:200]
    ours = [run(graph, {"x": quantized_input(graph, s)})["logits"].argmax() for s in samples]
    theirs = [run_oracle(onnx.load_model(QAT), {"x": s})[0].argmax() for s in samples[:40]]
    assert np.mean(np.array(ours) == labels) > 0.93
    assert np.mean(np.array(ours[:40]) == np.array(theirs)) >= 0.98


def test_qat_differs_only_by_its_float_biases() -> None:
    """onnxruntime adds float biases as they are. With multiples of x_scale * w_scale, what is left lies at ties."""
    graph = load_onnx(QAT)
    rounded = with_rounded_biases(onnx.load_model(QAT), graph)
    again = imported(rounded)
    for sample in digits_floats("test", 20):
        theirs = all_tensors(rounded, {"x": sample}) | {"x": quantized_input(again, sample)}
        for node, ours, held, operands in nodes_that_differ(again, theirs):
            wrong = ours != held
            assert distance_to_tie(again, node, operands)[wrong].max() < TIE, node


def with_rounded_biases(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """The model with each float bias moved to the nearest multiple of x_scale * w_scale."""
    initializers = {t.name: t for t in model.graph.initializer}
    alias = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Identity"}
    weighted = [n for n in graph.nodes if isinstance(n.op, QConv2d | QMatMul)]
    theirs = [n for n in model.graph.node if n.op_type in ("Conv", "Gemm")]
    for ours, node in zip(weighted, theirs, strict=True):
        bias = graph.nodes[ours.inputs[2]]
        assert bias.type.quant is not None
        real = (graph.params[bias.name] * np.array(bias.type.quant.scales)).astype(np.float32)
        name = alias.get(node.input[2], node.input[2])
        initializers[name].CopyFrom(numpy_helper.from_array(real, name))
    return model


# ---- Whole graphs ----------------------------------------------------------------------------------------------------


def test_a_quantized_model_is_not_quantized_again() -> None:
    graph = load_onnx(QAT)
    data = load_data(DIGITS / "digits_calibration.npz", graph)
    with pytest.raises(ModelError, match="quantized already"):
        calibrate(graph, data)
    with pytest.raises(ModelError, match="quantized already"):
        quantize(graph, Calibration({}, 0))


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT8, onnx.TensorProto.UINT8])
def test_integer_inputs_and_outputs(kind: int) -> None:
    """A model whose file has int8 or uint8 at its ends is int8 here; uint8 values are those less 128."""
    model = quantized_digits("QDQ", "QInt8" if kind == onnx.TensorProto.INT8 else "QUInt8", "QInt8", False)
    cut = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(
        [q_output(model, "x")], [q_output(model, "logits")]
    )
    graph = imported(cut)
    assert graph.inputs[0].type.dtype is DType.I8
    codes = np.random.default_rng(0).integers(-128, 128, (1, 1, 8, 8))
    fed = codes.astype(np.int8) if kind == onnx.TensorProto.INT8 else (codes + 128).astype(np.uint8)
    (theirs,) = run_oracle(cut, {graph.inputs[0].name: fed})
    (ours,) = run(graph, {graph.inputs[0].name: codes.astype(np.int8)}).values()
    np.testing.assert_array_equal(ours.astype(int) + (0 if kind == onnx.TensorProto.INT8 else 128), theirs)


def q_output(model: onnx.ModelProto, name: str) -> str:
    """The tensor that the QuantizeLinear of a float tensor makes."""
    return next(str(n.output[0]) for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == name)


def test_weights_alone_make_a_float_model() -> None:
    """int8 weights behind DequantizeLinear in a float model: the real values are stored."""
    w = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    model = make_model(
        [
            helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], axis=1),
            helper.make_node("MatMul", ["x", "real"], ["y"]),
        ],
        {"x": (2, 3)},
        ["y"],
        {"w": w, "s": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "z": np.array([0, 1, 0, 2], np.int8)},
    )
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    graph = imported(model)
    assert graph.output_nodes[0].type.dtype is DType.F32
    np.testing.assert_allclose(run(graph, {"x": x})["y"], run_oracle(model, {"x": x})[0], rtol=1e-6)


def small(nodes: list[onnx.NodeProto], **changed: np.ndarray) -> onnx.ModelProto:
    constants = {
        "s": np.array(0.1, np.float32),
        "z": np.array(3, np.int8),
        "w": np.ones((4, 5), np.int8),
        "ws": np.array(0.02, np.float32),
        "wz": np.array(0, np.int8),
    }
    return make_model(nodes, {"x": (2, 4)}, [nodes[-1].output[0]], constants | changed)


def q(name: str, out: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", [name, "s", "z"], [out], **attributes)


def dq(name: str, out: str, scale: str = "s", zero: str = "z", **attributes: object) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [name, scale, zero], [out], **attributes)


def dense(tail: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    product = helper.make_node("MatMul", ["xr", "wr"], ["p"])
    return [q("x", "xq"), dq("xq", "xr"), dq("w", "wr", "ws", "wz"), product, *tail]


END = [q("p", "pq"), dq("pq", "y")]
AROUND = [q("x", "xq"), dq("xq", "y")]


def op(kind: str, inputs: str, output: str) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output])


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "float tail": (small(dense([op("Softmax", "p", "y")])), "computed in float at the model's end"),
    "float middle": (
        small(dense([op("Relu", "p", "r"), op("Exp", "r", "e"), q("e", "eq"), dq("eq", "y")])),
        "'r' is computed in float",
    ),
    "no int8 form": (
        small(
            [*dense([])[:3], helper.make_node("Gemm", ["xr", "wr", "f"], ["p"], alpha=0.5), *END],
            f=np.ones(5, np.float32),
        ),
        "Binary 'p.scaled' is computed in float: it has no int8 form",
    ),
    "float head": (small([op("Exp", "x", "e"), q("e", "xq"), dq("xq", "y")]), "the input is read in float by 'e'"),
    "float weights": (
        small([q("x", "xq"), dq("xq", "xr"), op("MatMul", "xr f", "p"), *END], f=np.ones((4, 5), np.float32)),
        "its weights 'f' are not quantized",
    ),
    "other parameters": (
        small([q("x", "xq"), dq("xq", "y", "ws", "wz")]),
        "not the one that its operand was quantized with",
    ),
    "int16": (small(AROUND, z=np.array(3, np.int16)), "int16 integers are not supported"),
    "scale of zero": (small(AROUND, s=np.array(0, np.float32)), "no positive number"),
    "zero points that differ": (
        small(dense(END), ws=np.full(5, 0.1, np.float32), wz=np.arange(5, dtype=np.int8)),
        "zero points differ",
    ),
    "scales per row": (
        small(
            [*dense(END)[:2], dq("w", "wr", "ws", "wz", axis=0), *dense(END)[3:]],
            ws=np.full(4, 0.1, np.float32),
            wz=np.zeros(4, np.int8),
        ),
        "output channels are axis 1",
    ),
    "per-channel activation": (
        small(AROUND, s=np.full(4, 0.1, np.float32), z=np.zeros(4, np.int8)),
        "4 scales on a tensor that the model computes",
    ),
    "dynamic": (
        small([helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "s2", "z2"]), dq("xq", "y", "s2", "z2")]),
        "dynamic quantization is not supported",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name(what: str) -> None:
    model, message = REFUSED[what]
    if what == "int16":
        del model.opset_import[:]
        model.opset_import.extend([helper.make_opsetid("", 21)])
        model.ir_version = 10
    with pytest.raises(UnsupportedError, match=message):
        imported(model)


def test_blocks_of_scales_are_refused() -> None:
    model = small(dense(END), ws=np.full((2, 5), 0.1, np.float32), wz=np.zeros((2, 5), np.int8))
    model.graph.node[2].attribute.extend([helper.make_attribute("axis", 0), helper.make_attribute("block_size", 2)])
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", 21)])
    model.ir_version = 10
    with pytest.raises(UnsupportedError, match="DequantMatMul 'p' is computed in float"):
        imported(model)


@pytest.mark.parametrize("opset", [11, 13, 19, 21, 23, 25])
def test_opsets(opset: int) -> None:
    """From 11 to the newest that onnxruntime here runs."""
    model = small(dense(END))
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", opset)])
    model.ir_version = 6 if opset < 13 else 10
    graph = imported(model)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    (theirs,) = run_oracle(model, {"x": x})
    ours = run(graph, {"x": quantized_input(graph, x)})["y"]
    np.testing.assert_array_equal(dequantized(graph.output_nodes[0], ours), theirs)


def test_a_bias_of_all_31_bits_is_kept() -> None:
    """Not by way of float32, which has 24."""
    bias = np.array([2**30 + 1, -(2**30) - 3, 2**24 + 1, 7, 0], np.int32)
    nodes = [*dense(END)[:3], dq("b", "br", "bs", "bz", axis=0), op("Gemm", "xr wr br", "p"), *END]
    scale = np.array(np.float32(0.1) * np.float32(0.02), np.float32)
    graph = imported(small(nodes, b=bias, bs=scale, bz=np.array(0, np.int32)))
    (node,) = (n for n in graph.nodes if isinstance(n.op, QMatMul))
    np.testing.assert_array_equal(graph.params[graph.nodes[node.inputs[2]].name], bias)


def test_the_same_quantization_twice_is_one() -> None:
    """PyTorch's exporter writes a QuantizeLinear for every reader of a tensor."""
    twice = [
        q("p", "pq"),
        q("p", "pq2"),
        dq("pq", "a"),
        dq("pq2", "b"),
        op("Add", "a b", "c"),
        q("c", "cq"),
        dq("cq", "y"),
    ]
    graph = imported(small(dense(twice)))
    assert [node.op.kind_name for node in graph.nodes if isinstance(node.op, QMatMul)] == ["QMatMul"]


DAMAGED: dict[str, dict[str, np.ndarray]] = {
    "no scale": {"ws": np.zeros(0, np.float32)},
    "no zero point": {"wz": np.zeros(0, np.int8)},
    "too many zero points": {"wz": np.zeros(3, np.int8)},
    "too many scales": {"ws": np.ones(3, np.float32), "wz": np.zeros(3, np.int8)},
    "another dtype": {"wz": np.zeros((), np.uint8)},
    "NaN": {"ws": np.array(np.nan, np.float32)},
    "half precision": {"ws": np.array(0.1, np.float16)},
    "a tiny scale": {"ws": np.array(1e-38, np.float32), "s": np.array(1e-30, np.float32)},
    "weights of another shape": {"w": np.ones((3, 5), np.int8)},
    "weights without elements": {"w": np.ones((4, 0), np.int8)},
    "weights of int32": {"w": np.ones((4, 5), np.int32), "wz": np.zeros((), np.int32)},
}


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_damaged_parameters(what: str, form: str) -> None:
    """One EdgeError, or a graph: never anything else."""
    linear = helper.make_node("QLinearMatMul", ["xq", "s", "z", "w", "ws", "wz", "s", "z"], ["pq"])
    nodes = dense(END) if form == "QDQ" else [q("x", "xq"), linear, dq("pq", "y")]
    try:
        model = small(nodes, **DAMAGED[what])
    except onnx.shape_inference.InferenceError:
        pytest.skip("ONNX refuses to build it")
    with contextlib.suppress(EdgeError):
        freeze(imported(model))
