"""INT4 weights in `.tflite` files: out and in again, in TFLite's own runtimes, and damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from command import rlx_edge
from models import ModelMaker, random_model, samples
from oracles.tflite_ref import SKIP_REASON, TfliteRuntime, oracle_python
from oracles.tflite_writer import OpSpec, TensorSpec, write_model
from oracles.tflm import Tflm
from test_tflite_damage import good_or_refused
from tflite_models import BIAS, CONV, B, X, Y, conv_op

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats import export_tflite_file
from rlx_edge.formats.export_tflite import export, tflite_bytes
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.formats.tflite_file import read_model
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, subbyte
from rlx_edge.ir.ops import MatMul, QConv2d, QMatMul
from rlx_edge.passes.change_rule import change_rule
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.widen_weights import widen_weights
from rlx_edge.reference import run

LAYERS = (QConv2d, QMatMul)


def of_few_bits(graph: Graph, dtype: DType) -> Graph:
    """The graph with the lowest bits of its weights."""
    nodes, params = list(graph.nodes), dict(graph.params)
    for node in graph.nodes:
        if isinstance(node.op, LAYERS):
            held = graph.nodes[node.inputs[1]]
            nodes[held.id] = replace(held, type=replace(held.type, dtype=dtype))
            packed = subbyte.pack(graph.params[held.name], dtype.bits)
            params[held.name] = subbyte.unpack(packed, dtype.bits, held.type.shape)
    return replace(graph, nodes=tuple(nodes), params=params)


def stored_types(data: bytes) -> dict[str, str]:
    """The types of the weights in a file, by the name of the layer's output."""
    model = read_model(data, "the file")
    layers = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    return {
        model.tensors[op.outputs[0]].name: model.tensors[op.inputs[1]].type_name
        for op in model.operators
        if op.kind in layers
    }


def dense_with(
    scales: tuple[float, ...], dtype: DType = DType.I4, rule: Requant = Requant.TFLM, zero: int = 0
) -> Graph:
    """Seven to three, with one scale a column, or one."""
    builder, rng = GraphBuilder("dense"), np.random.default_rng(5)
    quant, axis = QuantParams.per_tensor(float(np.float32(0.05)), -20), None if len(scales) == 1 else 1
    maker = ModelMaker("dense", 5)
    maker.builder = builder
    x = maker.input((2, 7))
    w_quant = QuantParams(scales, (zero,) * len(scales), axis)
    source = maker.quant_of(x)
    mult = tuple(source.scale * s / quant.scale for s in scales)
    values = rng.integers(dtype.limits[0], dtype.limits[1] + 1, (7, 3)).astype(np.int8)
    w = builder.param("w", values, w_quant, dtype=dtype)
    b = builder.param("b", rng.integers(-50, 50, 3).astype(np.int32))
    op = QMatMul(source.zero_point, zero, quant.zero_point, mult, rule)
    return freeze(builder.build([builder.add(op, [x, w, b], "y", quant)]))


def assert_equal_bits(graph: Graph, data: bytes) -> None:
    """What tflite-micro computes from the file, and what is imported from it, is what the graph computes."""
    oracle, again = Tflm(data), load_tflite(data)
    inputs = samples(graph, 3)
    for index in range(3):
        fed = {name: values[index] for name, values in inputs.items()}
        expected, loaded = run(graph, fed), run(again, fed)
        found = oracle.run(list(fed.values()), len(graph.outputs))
        for node, values in zip(graph.output_nodes, found, strict=True):
            np.testing.assert_array_equal(values, expected[node.name])
            np.testing.assert_array_equal(loaded[node.name], expected[node.name])


# ---- Out and in again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [DType.I4, DType.I2])
@pytest.mark.parametrize("seed", range(6))
def test_models_equal_tflite_micro_and_come_back(seed: int, dtype: DType) -> None:
    graph = of_few_bits(random_model(seed), dtype)
    data, notes = export(graph)
    assert set(stored_types(data).values()) == {"INT4"}  # random_model's dense layers have one scale
    assert notes == ()
    assert_equal_bits(graph, data)
    weights = [n.type for n in load_tflite(data).nodes if n.name.endswith("/w")]
    assert weights and all(type.dtype is DType.I4 for type in weights)


def test_a_graph_with_4_bits_comes_back_the_same() -> None:
    graph = of_few_bits(random_model(2), DType.I4)
    again = load_tflite(tflite_bytes(graph))
    assert tflite_bytes(again) == tflite_bytes(graph)
    kept = {n.name: n for n in again.nodes}
    for node in graph.nodes:
        if node.type.dtype is DType.I4:
            np.testing.assert_array_equal(again.params[node.name], graph.params[node.name])
            assert (kept[node.name].type.shape, kept[node.name].type.dtype) == (node.type.shape, DType.I4)


def test_tflite_runtime_takes_them_too() -> None:
    if oracle_python() is None:
        pytest.skip(SKIP_REASON)
    graph = change_rule(of_few_bits(random_model(4), DType.I4), Requant.TFLITE_REF)
    fed = {name: values[0] for name, values in samples(graph, 1).items()}
    expected = run(freeze(graph), fed)
    with TfliteRuntime() as runtime:
        found = runtime.run(tflite_bytes(freeze(graph)), list(fed.values()))
    for node, values in zip(graph.output_nodes, found, strict=True):
        np.testing.assert_array_equal(values, expected[node.name])


def test_operator_versions() -> None:
    root = tflite.Model.GetRootAs(tflite_bytes(of_few_bits(random_model(0), DType.I4)), 0)
    codes = [root.OperatorCodes(index) for index in range(root.OperatorCodesLength())]
    versions = {code.BuiltinCode(): code.Version() for code in codes}
    assert versions[tflite.BuiltinOperator.CONV_2D] == 7
    assert versions[tflite.BuiltinOperator.FULLY_CONNECTED] == 10


# ---- Dense layers: kernels take one scale only ----------------------------------------------------------------------

DIFFERENT, EQUAL = (0.25, 0.5, 0.125), (0.25, 0.25, 0.25)


def test_a_dense_layer_with_a_scale_a_column_is_int8_and_says_so() -> None:
    graph = dense_with(DIFFERENT)
    data, (told,) = export(graph)
    assert stored_types(data) == {"y": "INT8"}
    assert told.startswith("'y' has its i4 weights as INT8, a byte each, of equal results: kernels take INT4 weights")
    assert_equal_bits(graph, data)


@pytest.mark.parametrize("scales", [EQUAL, EQUAL[:1]])
def test_a_dense_layer_with_equal_scales_is_int4(scales: tuple[float, ...]) -> None:
    graph = dense_with(scales)
    data, notes = export(graph)
    assert (stored_types(data), notes) == ({"y": "INT4"}, ())
    assert_equal_bits(graph, data)


def test_equal_scales_stay_apart_where_the_runtime_would_round_otherwise() -> None:
    """tflite-runtime multiplies one scale in float32, and scales a column in double."""
    assert stored_types(tflite_bytes(dense_with(EQUAL, rule=Requant.TFLITE_REF))) == {"y": "INT8"}


def test_a_zero_point_of_a_dense_layer() -> None:
    graph = dense_with(EQUAL[:1], zero=3)
    data, notes = export(graph)
    assert (stored_types(data), notes) == ({"y": "INT4"}, ())
    assert_equal_bits(graph, data)


def test_why_a_scale_a_column_is_not_written_as_int4() -> None:
    """The day that tflite-micro takes it, this fails, and the export can change."""
    data = np.zeros(4, np.uint8)
    w = TensorSpec("w", (2, 4), "INT4", (0.25, 0.5), (0, 0), 0, data)
    model = write_model([int8_matrix("x", 4), w, int8_matrix("y", 2)], [dense_op()], [0], [2])
    with pytest.raises(RuntimeError):
        Tflm(model)


def test_convolutions_whose_zero_point_leaves_no_int4() -> None:
    graph = of_few_bits(random_model(1), DType.I4)
    nodes = list(graph.nodes)
    layer = next(n for n in nodes if isinstance(n.op, QConv2d))
    w = nodes[layer.inputs[1]]
    assert w.type.quant is not None
    zeros = (2,) * len(w.type.quant.scales)
    nodes[w.id] = replace(w, type=replace(w.type, quant=replace(w.type.quant, zero_points=zeros)))
    nodes[layer.id] = replace(layer, op=replace(layer.op, w_zp=2))
    data, (told,) = export(replace(graph, nodes=tuple(nodes)))
    assert stored_types(data)[layer.name] == "INT8"
    assert "values from -10 to 5 around their zero point, which INT4 does not hold" in told


def test_the_command_tells_what_became_int8(tmp_path: Path) -> None:
    save_rlx(dense_with(DIFFERENT), tmp_path / "m.rlx")
    done = rlx_edge("convert", tmp_path / "m.rlx", "-o", tmp_path / "m.tflite")
    assert done.returncode == 0, done.stderr
    assert "m.tflite: 'y' has its i4 weights as INT8" in done.stderr


# ---- Files of other tools -------------------------------------------------------------------------------------------

CODES = np.random.default_rng(3).integers(-8, 8, (3, 2, 2, 2)).astype(np.int8)
W4 = TensorSpec("w", CODES.shape, "INT4", (0.25, 0.5, 0.125), (0, 0, 0), 0, subbyte.pack(CODES, 4))


def int8_matrix(name: str, columns: int) -> TensorSpec:
    return TensorSpec(name, (1, columns), scales=(0.5,), zero_points=(0,))


def dense_op() -> OpSpec:
    return OpSpec("FULLY_CONNECTED", [0, 1], [2], "FullyConnectedOptions")


def weights_of(graph: Graph) -> Array:
    (layer,) = (node for node in graph.nodes if len(node.inputs) > 1 and graph.nodes[node.inputs[1]].name == "w")
    return graph.params[graph.nodes[layer.inputs[1]].name]


def test_a_convolution_of_int4_weights() -> None:
    graph = load_tflite(write_model([X, W4, B, Y], [conv_op()], [0], [3]))
    np.testing.assert_array_equal(weights_of(graph), CODES)
    assert graph.nodes[1].type.dtype is DType.I4


def test_float_layers_of_int4_weights_count_as_the_reals_that_these_stand_for() -> None:
    """Hybrid files, and weight-only ones, which dequantize first."""
    x, y = TensorSpec("x", X.shape, "FLOAT32"), TensorSpec("y", Y.shape, "FLOAT32")
    b = TensorSpec("b", (3,), "FLOAT32", data=BIAS.astype(np.float32))
    real = (CODES * np.array(W4.scales).reshape(3, 1, 1, 1)).astype(np.float32)
    hybrid = load_tflite(write_model([x, W4, b, y], [conv_op()], [0], [3]))
    held = TensorSpec("real", CODES.shape, "FLOAT32")
    ops = [OpSpec("DEQUANTIZE", [1], [4]), replace(conv_op(), inputs=[0, 4, 2])]
    first = load_tflite(write_model([x, W4, b, y, held], ops, [0], [3]))
    for graph in (hybrid, first):
        (values,) = (v for v in graph.params.values() if v.ndim == 4)
        np.testing.assert_array_equal(values, real)
    dense = TensorSpec("w", (3, 5), "INT4", (0.5,), (0,), 0, subbyte.pack(CODES.reshape(-1)[:15], 4))
    floats = [TensorSpec("x", (1, 5), "FLOAT32"), dense, TensorSpec("y", (1, 3), "FLOAT32")]
    graph = load_tflite(write_model(floats, [dense_op()], [0], [2]))
    assert any(isinstance(node.op, MatMul) for node in graph.nodes)
    (values,) = graph.params.values()
    np.testing.assert_array_equal(values, CODES.reshape(-1)[:15].reshape(3, 5).T * np.float32(0.5))


def test_a_scale_a_column_of_a_dense_layer_is_imported() -> None:
    """LiteRT's other kernels take it."""
    w = TensorSpec("w", (2, 4), "INT4", (0.25, 0.5), (0, 0), 0, subbyte.pack(CODES.reshape(-1)[:8], 4))
    graph = load_tflite(write_model([int8_matrix("x", 4), w, int8_matrix("y", 2)], [dense_op()], [0], [2]))
    np.testing.assert_array_equal(graph.params["w"], CODES.reshape(-1)[:8].reshape(2, 4).T)


def test_operator_codes_in_the_newer_field_alone() -> None:
    """As ai-edge-quantizer adds them: 0 in the old field is no ADD."""
    data = bytearray(write_model([X, W4, B, Y], [conv_op()], [0], [3]))
    table = tflite.Model.GetRootAs(bytes(data), 0).OperatorCodes(0)._tab
    data[table.Pos + table.Offset(4)] = 0
    assert isinstance(load_tflite(bytes(data)).output_nodes[0].op, QConv2d)


def behind(start: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file whose constants lie behind its flatbuffer, from byte `start` on."""
    held: list[bytes] = []

    def buffer(b: Any, data: Array | None) -> int:
        if data is None:
            return export_tflite_file._table(b, "Buffer")
        held.append(data.tobytes())
        place = start + sum(map(len, held[:-1]))
        return export_tflite_file._table(b, "Buffer", Offset=place, Size=len(held[-1]))

    with monkeypatch.context() as patched:
        patched.setattr(export_tflite_file, "_buffer", buffer)
        return write_model([X, W4, B, Y], [conv_op()], [0], [3]) + b"".join(held)


def test_weights_behind_the_flatbuffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As writers of files of some size have them."""
    size = len(behind(9, monkeypatch)) - len(W4.data if W4.data is not None else b"") - BIAS.nbytes
    data = behind(size, monkeypatch)
    graph = load_tflite(data)
    np.testing.assert_array_equal(weights_of(graph), CODES)
    for cut in (1, BIAS.nbytes + 1):
        with pytest.raises(ModelError, match=f"is truncated: weights of .* of {len(data) - cut}"):
            load_tflite(data[:-cut])
    good_or_refused(behind(2**40, monkeypatch))
    good_or_refused(behind(2, monkeypatch))


# ---- Refusals and damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 11, 13, 24])
def test_another_number_of_bytes_is_damage(size: int) -> None:
    w = replace(W4, data=np.zeros(size, np.uint8))
    with pytest.raises(ModelError) as caught:
        load_tflite(write_model([X, w, B, Y], [conv_op()], [0], [3]))
    assert "\n" not in str(caught.value)
    assert f"is INT4[3, 2, 2, 2] but holds {size} bytes" in str(caught.value)


def test_an_odd_count_takes_half_a_byte_more() -> None:
    odd = CODES.reshape(-1)[:15]
    good, short = subbyte.pack(odd, 4), subbyte.pack(odd, 4)[:-1]
    for data in (good, short):
        w = TensorSpec("w", (3, 5), "INT4", (0.5,), (0,), 0, data)
        model = write_model([int8_matrix("x", 5), w, int8_matrix("y", 3)], [dense_op()], [0], [2])
        if data is short:
            with pytest.raises(ModelError, match=r"INT4\[3, 5\] but holds 7 bytes"):
                load_tflite(model)
        else:
            np.testing.assert_array_equal(load_tflite(model).params["w"], odd.reshape(3, 5).T)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ([replace(X, type="INT4"), W4, B, Y], "the i4 tensor 'x' where only i8 is supported"),
        ([X, W4, B, replace(Y, type="INT4")], "the i4 tensor 'y' where only i8 is supported"),
        ([X, replace(W4, scales=(), zero_points=()), B, Y], "i4 weights without quantization parameters"),
        ([replace(X, type="UINT8", zero_points=(1,)), W4, B, replace(Y, type="UINT8")], "i4 weights"),
        ([X, W4, replace(B, type="INT4", data=np.zeros(2, np.uint8)), Y], "a bias of type i4"),
    ],
)
def test_int4_elsewhere_is_refused_by_name(tensors: list[TensorSpec], said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        load_tflite(write_model(tensors, [OpSpec("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", CONV)], [0], [3]))
    assert any(said in problem for problem in caught.value.problems)


def test_any_byte_may_be_anything() -> None:
    data = tflite_bytes(of_few_bits(random_model(7), DType.I4))
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(data), 80):
        good_or_refused(data[:position] + bytes([int(rng.integers(256))]) + data[position + 1 :])


def test_bytes_for_tools_that_read_no_int4(tmp_path: Path) -> None:
    graph = of_few_bits(random_model(3), DType.I2)
    data = tflite_bytes(widen_weights(graph))
    assert set(stored_types(data).values()) == {"INT8"}
    assert_equal_bits(graph, data)
    save_rlx(graph, tmp_path / "m.rlx")
    done = rlx_edge("convert", tmp_path / "m.rlx", "-o", tmp_path / "m.tflite", "--int8-weights")
    assert done.returncode == 0 and (tmp_path / "m.tflite").read_bytes() == data
