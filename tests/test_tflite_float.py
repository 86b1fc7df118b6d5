"""Float and hybrid `.tflite` files: the graph computes what tflite-runtime's float kernels do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import tflite
from oracles.tflite_ref import SKIP_REASON, TfliteRuntime, oracle_python
from oracles.tflite_writer import Array, OpSpec, TensorSpec, write_model

from rlx_edge.data import Data
from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.formats.tflite_context import CONSTANT_TYPES
from rlx_edge.formats.tflite_file import OPTION_FIELDS, read_model
from rlx_edge.formats.tflite_float_ops import FLOAT_BUILDERS
from rlx_edge.ir import DType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, Clamp, Conv, Layout, MatMul, Reshape
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quality import quality
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "models"
TOLERANCE = 1e-5
"""Relative to the largest output: the runtime sums in float32, the reference in float64."""

F32 = "FLOAT32"


@pytest.fixture(scope="module")
def runtime() -> Iterator[TfliteRuntime]:
    if oracle_python() is None:
        pytest.skip(SKIP_REASON)
    with TfliteRuntime() as worker:
        yield worker


def evaluated(data: bytes, inputs: list[Array]) -> Array:
    graph = load_tflite(data)
    (value,) = run(graph, {node.name: x for node, x in zip(graph.inputs, inputs, strict=True)}).values()
    return value


def assert_close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


# ---- Single operators -----------------------------------------------------------------------------------------------


def real(name: str, *shape: int, data: Array | None = None, type: str = F32) -> TensorSpec:
    return TensorSpec(name, shape, type, data=data)


def integers(values: object) -> TensorSpec:
    array = np.array(values, np.int32)
    return TensorSpec("integers", array.shape, "INT32", data=array)


@dataclass(frozen=True)
class Single:
    """An operator on `leading` constants, `operands` inputs of `shape`, then constants, giving `out` (None: the same
    shape)."""

    options: str = ""
    fields: Mapping[str, int | float] = field(default_factory=dict)
    operands: int = 1
    leading: tuple[TensorSpec, ...] = ()
    constants: tuple[TensorSpec, ...] = ()
    out: tuple[int, ...] | None = None
    positive: bool = False
    shape: tuple[int, ...] = (2, 3, 4, 5)

    def model(self, kind: str) -> bytes:
        inputs = [real(f"x{i}", *self.shape) for i in range(self.operands)]
        tensors = [*self.leading, *inputs, *self.constants, real("y", *(self.out or self.shape))]
        first, last = len(self.leading), len(tensors) - 1
        return write_model(
            tensors,
            [OpSpec(kind.split()[0], range(last), [last], self.options, self.fields)],
            range(first, first + len(inputs)),
            [last],
        )

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(1)
        draw: Callable[[], Array] = lambda: rng.normal(0, 2, self.shape)  # noqa: E731
        return [(np.abs(draw()) + 0.1 if self.positive else draw()).astype(np.float32) for _ in range(self.operands)]


RNG = np.random.default_rng(7)
_WINDOW = {"StrideH": 2, "StrideW": 1, "Padding": tflite.Padding.SAME, "FusedActivationFunction": 3}
_CONV = {**_WINDOW, "DilationHFactor": 1, "DilationWFactor": 2}


def weights(*shape: int, type: str = F32) -> TensorSpec:
    values = RNG.normal(size=shape).astype(np.float16 if type == "FLOAT16" else np.float32)
    return real("w", *shape, data=values, type=type)


def bias(channels: int) -> TensorSpec:
    return real("b", channels, data=RNG.normal(size=channels).astype(np.float32))


_REDUCED = Single("ReducerOptions", {"KeepDims": 0}, constants=(integers([1, -2]),), out=(2, 5))
_POOL = Single("Pool2DOptions", {**_WINDOW, "FilterHeight": 2, "FilterWidth": 3}, out=(2, 2, 4, 5))
_CORNER = (integers([0, 0, 0, 0]), integers([2, 3, 4, 5]))

SINGLES: Mapping[str, Single] = {
    "CONV_2D": Single("Conv2DOptions", _CONV, constants=(weights(6, 3, 2, 5), bias(6)), out=(2, 2, 4, 6)),
    "DEPTHWISE_CONV_2D": Single(
        "DepthwiseConv2DOptions",
        {**_CONV, "StrideH": 1, "DilationWFactor": 1, "DepthMultiplier": 2},
        constants=(weights(1, 2, 3, 10), bias(10)),
        out=(2, 3, 4, 10),
    ),
    "FULLY_CONNECTED": Single(
        "FullyConnectedOptions", {"FusedActivationFunction": 1}, constants=(weights(3, 20), bias(3)), out=(6, 3)
    ),
    "FULLY_CONNECTED that keeps axes": Single(
        "FullyConnectedOptions", {"KeepNumDims": 1}, constants=(weights(3, 5), bias(3)), out=(2, 3, 4, 3)
    ),
    "BATCH_MATMUL": Single("BatchMatMulOptions", {"AdjY": 1}, 2, out=(2, 3, 4, 4)),
    **{
        kind: Single(f"{kind.title()}Options", {"FusedActivationFunction": 1}, 2)
        for kind in ("ADD", "SUB", "MUL", "DIV")
    },
    "MUL by a constant": Single("MulOptions", constants=(weights(5),)),
    "MAXIMUM": Single("MaximumMinimumOptions", operands=2),
    "MINIMUM": Single("MaximumMinimumOptions", operands=2),
    "SQUARED_DIFFERENCE": Single("SquaredDifferenceOptions", operands=2),
    "POW": Single("PowOptions", operands=2, positive=True),
    "SQUARE": Single("SquareOptions"),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), _REDUCED),
    "SOFTMAX": Single("SoftmaxOptions", {"Beta": 0.7}),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH"), Single()),
    "HARD_SWISH": Single("HardSwishOptions"),
    "LEAKY_RELU": Single("LeakyReluOptions", {"Alpha": 0.3}),
    "PRELU": Single(constants=(real("slope", 1, 1, 5, data=np.full((1, 1, 5), 0.2, np.float32)),)),
    "GELU": Single("GeluOptions"),
    "GELU approximate": Single("GeluOptions", {"Approximate": 1}),
    **{kind: Single(f"{kind.title()}Options") for kind in ("EXP", "NEG", "ABS")},
    **dict.fromkeys(("SIN", "COS", "FLOOR", "SIGN"), Single()),
    **dict.fromkeys(("LOG", "SQRT", "RSQRT"), Single(positive=True)),
    "RESHAPE": Single(constants=(integers([6, -1]),), out=(6, 20)),
    "TRANSPOSE": Single(constants=(integers([2, 0, 3, 1]),), out=(4, 2, 5, 3)),
    "PAD": Single("PadOptions", constants=(integers([[0, 0], [1, 0], [0, 2], [0, 0]]),), out=(2, 4, 6, 5)),
    "CONCATENATION": Single("ConcatenationOptions", {"Axis": -1}, 2, out=(2, 3, 4, 10)),
    "SQUEEZE": Single("SqueezeOptions", shape=(1, 3, 1, 2), out=(3, 2)),
    "EXPAND_DIMS": Single("ExpandDimsOptions", constants=(integers(0),), out=(1, 2, 3, 4, 5)),
    "SLICE": Single("SliceOptions", constants=_CORNER),
    "STRIDED_SLICE": Single("StridedSliceOptions", constants=(*_CORNER, integers([1, 1, 1, 1]))),
    "STRIDED_SLICE of a first element": Single(
        "StridedSliceOptions",
        {"BeginMask": 2, "ShrinkAxisMask": 3},
        constants=(integers([-1, 2, 1, 4]), integers([0, 0, 4, 0]), integers([1, 1, 2, -2])),
        out=(2, 2),
    ),
    "SPLIT": Single("SplitOptions", {"NumSplits": 1}, leading=(integers(-2),)),
    "SPLIT_V": Single("SplitVOptions", {"NumSplits": 1}, constants=(integers([-1]), integers(2))),
    "TILE": Single("TileOptions", constants=(integers([1, 2, 1, 3]),), out=(2, 6, 4, 15)),
    "REVERSE_V2": Single("ReverseV2Options", constants=(integers([-1]),)),
    "MIRROR_PAD": Single(
        "MirrorPadOptions", constants=(integers([[0, 0], [1, 0], [0, 3], [2, 4]]),), out=(2, 4, 7, 11)
    ),
    "PACK": Single("PackOptions", {"ValuesCount": 1}, out=(1, 2, 3, 4, 5)),
    "UNPACK": Single("UnpackOptions", {"Num": 1}, shape=(1, 3, 2), out=(3, 2)),
}
"""Every operator that the runtime's reference resolver has on FLOAT32."""

NOT_THERE = {"ELU", "CEIL", "ROUND", "PADV2", "BROADCAST_TO"}
"""What that resolver lacks, and PADV2, which PAD's builder serves."""


@pytest.mark.parametrize("kind", SINGLES)
def test_equals_tflite_runtime(kind: str, runtime: TfliteRuntime) -> None:
    model, inputs = SINGLES[kind].model(kind), SINGLES[kind].inputs()
    assert_close(evaluated(model, inputs), runtime.run(model, inputs)[0])


def test_every_float_operator_is_tested() -> None:
    assert {name.split()[0] for name in SINGLES} | NOT_THERE == set(FLOAT_BUILDERS)


@pytest.mark.parametrize("begin", [3, -4])
def test_an_element_beyond_an_axis_is_refused(begin: int) -> None:
    constants = (integers([begin]), integers([4]), integers([1]))
    single = Single("StridedSliceOptions", {"ShrinkAxisMask": 1}, constants=constants, shape=(3,), out=(1,))
    with pytest.raises(ModelError, match=f"element {begin} along axis 0 of 3"):
        load_tflite(single.model("STRIDED_SLICE"))


# ---- What the graph looks like --------------------------------------------------------------------------------------


def test_a_layer_keeps_its_name_and_prepares_to_one_fusion() -> None:
    graph = load_tflite(SINGLES["CONV_2D"].model("CONV_2D"))
    assert [type(n.op) for n in graph.nodes if n.inputs] == [Conv, Binary, Clamp]
    assert [n.name for n in graph.nodes if n.inputs] == ["y_product", "y_before_activation", "y"]
    assert graph.output_nodes[0].sources == ("y",)
    (conv,) = [n.op for n in graph.nodes if isinstance(n.op, Conv)]
    assert conv.layout is Layout.NHWC
    assert [type(n.op) for n in prepare(graph).nodes if n.inputs] == [Conv, Binary, Clamp]


def test_a_dense_layer_is_a_matrix_product_of_rows() -> None:
    graph = load_tflite(SINGLES["FULLY_CONNECTED"].model("FULLY_CONNECTED"))
    assert [type(n.op) for n in graph.nodes if n.inputs] == [Reshape, MatMul, Binary, Activation]
    assert graph.params["w"].shape == (20, 3)


@pytest.mark.parametrize("stored", ["FLOAT16", "INT8"])
def test_weights_behind_dequantize_are_folded(stored: str) -> None:
    """As the converter stores float16 weights: a constant, DEQUANTIZE, then the layer."""
    values = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)
    held = (values * 4).astype(np.int8) if stored == "INT8" else values.astype(np.float16)
    quant = dict(scales=(0.25,), zero_points=(0,)) if stored == "INT8" else {}
    tensors = [real("x", 1, 2), TensorSpec("h", (2, 2), stored, data=held, **quant), real("w", 2, 2), real("y", 1, 2)]
    ops = [OpSpec("DEQUANTIZE", [1], [2]), OpSpec("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions")]
    graph = load_tflite(write_model(tensors, ops, [0], [3]))
    assert [type(n.op) for n in graph.nodes if n.inputs] == [MatMul]
    np.testing.assert_array_equal(graph.params["w"], values.T)


def test_hybrid_layers_compute_with_the_weights_that_int8_stands_for() -> None:
    """One scale a channel, as newer converters write; what the runtime rounds while it runs is not the model's."""
    codes = np.array([[4, -8], [1, 12]], np.int8)
    w = TensorSpec("w", (2, 2), scales=(0.25, 0.5), zero_points=(0, 0), axis=0, data=codes)
    tensors = [real("x", 1, 2), w, real("y", 1, 2)]
    op = OpSpec("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")
    graph = load_tflite(write_model(tensors, [op], [0], [2]))
    np.testing.assert_array_equal(graph.params["w"], (codes * np.array([[0.25], [0.5]], np.float32)).T)
    assert graph.output_nodes[0].type.dtype is DType.F32


def test_slopes_that_differ_are_refused() -> None:
    single = Single(constants=(real("slope", 5, data=np.arange(5, dtype=np.float32)),))
    with pytest.raises(UnsupportedError, match="slopes that differ from channel to channel"):
        load_tflite(single.model("PRELU"))


def test_functions_that_the_runtime_lacks() -> None:
    x = np.array([[-1.5, -0.2, 0.0, 0.5, 2.5]], np.float32)
    for kind, expected in (("ELU", np.where(x < 0, np.expm1(x), x)), ("CEIL", np.ceil(x)), ("ROUND", np.rint(x))):
        single = Single(shape=(1, 5))
        np.testing.assert_allclose(evaluated(single.model(kind), [x]), expected, rtol=1e-6)
    graph = load_tflite(single.model("ELU"))
    assert graph.output_nodes[0].op == Activation(ActivationFn.ELU)


# ---- Public models --------------------------------------------------------------------------------------------------


def with_float_weights(data: bytes) -> bytes:
    """The file with float32 for int8 weights: a runtime's hybrid kernels also round operands, sample by sample."""
    model = read_model(data, "the model")
    tensors = []
    for held in model.tensors:
        values = np.frombuffer(held.data, CONSTANT_TYPES[held.type_name]).reshape(held.shape) if held.data else None
        if held.type_name == "INT8" and held.quant is not None and values is not None:
            values = (values * np.float64(held.quant.scales[0])).astype(np.float32)
        stored = F32 if held.type_name == "INT8" else held.type_name
        tensors.append(TensorSpec(held.name, held.shape, stored, data=values))
    options = {op.kind: OPTION_FIELDS[op.kind][0] if op.kind in OPTION_FIELDS else "" for op in model.operators}
    operators = [OpSpec(op.kind, op.inputs, op.outputs, options[op.kind], op.options) for op in model.operators]
    return write_model(tensors, operators, model.inputs, model.outputs)


@pytest.mark.parametrize("name", ["kws", "ic", "vww", "ad", "hello_world", "mnist_dw", "mnist_valid", "mnist_resnet"])
def test_public_float_models(name: str, runtime: TfliteRuntime) -> None:
    path = SHARED / f"{name}_float.tflite"
    if not path.exists():
        pytest.skip("../shared with the public models is not here")
    graph = load_tflite(path)
    limit = 255.0 if name == "ic" else 1.0
    x = np.random.default_rng(0).uniform(0, limit, graph.inputs[0].type.shape).astype(np.float32)
    (found,) = run(graph, {graph.inputs[0].name: x}).values()
    data = path.read_bytes()
    assert_close(found, runtime.run(with_float_weights(data) if name == "kws" else data, [x])[0])


@pytest.mark.parametrize("name", ["kws", "ic", "vww", "ad", "hello_world", "mnist_dw", "mnist_valid", "mnist_resnet"])
def test_public_float_models_can_be_quantized(name: str) -> None:
    path = SHARED / f"{name}_float.tflite"
    if not path.exists():
        pytest.skip("../shared with the public models is not here")
    graph = load_tflite(path)
    x = np.random.default_rng(0).uniform(0, 255 if name == "ic" else 1, (8, *graph.inputs[0].type.shape[1:]))
    data = Data({graph.inputs[0].name: x.astype(np.float32)})
    int8 = quantize(graph, calibrate(graph, data))
    assert all(node.type.dtype is not DType.F32 for node in int8.nodes)
    assert quality(graph, int8, data).output_sqnr_db > 20
