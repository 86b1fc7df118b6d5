"""`.rlx` files: exact round trips, any safetensors reader, and one clear line for every kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import op_graphs
import pytest
import safetensors
import safetensors.numpy
from any_graphs import any_graphs, any_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.single_ops import SINGLE_OPS, Case

from rlx_edge.errors import EdgeError, ModelError
from rlx_edge.formats import load, load_rlx, load_tflite, save_rlx
from rlx_edge.formats.rlx import rlx_bytes
from rlx_edge.ir import (
    Array,
    DType,
    Frozen,
    FrozenAdd,
    FrozenScale,
    FrozenSoftmax,
    Graph,
    GraphBuilder,
    QuantParams,
    TensorType,
    find_problems,
    real_multipliers,
)
from rlx_edge.ir.codec import CodecError, decode, encode
from rlx_edge.ir.equal import difference
from rlx_edge.ir.ops import Binary, BinaryOp, Clamp, Input, Op, QMatMul
from rlx_edge.ir.ops.control import CustomFn, Scan


def small_graph(name: str = "small") -> Graph:
    builder = GraphBuilder(name)
    x_quant, w_quant, quant = QuantParams.per_tensor(0.5, 3), QuantParams((0.1, 0.2, 0.3), (0,) * 3, 1), None
    x = builder.input("x", TensorType((2, 4), DType.I8, x_quant), sources=("input:0",))
    w = builder.param("w", np.arange(12, dtype=np.int8).reshape(4, 3), w_quant)
    bias = builder.param("b", np.array([-5, 0, 7], np.int32))
    quant = QuantParams.per_tensor(0.1, -1)
    frozen = FrozenScale((1 << 30, (1 << 31) - 1, 3), (-3, 0, 2))
    op = QMatMul(3, 0, -1, real_multipliers(x_quant, w_quant, quant), clamp=(-1, 100), frozen=frozen)
    y = builder.add(op, [x, w, bias], "y", quant)
    k = builder.constant("k", np.array([1.5, -0.0, np.inf], np.float32))
    six = builder.add(Clamp(0.0, float("inf")), [y], "six", quant)
    builder.metadata.update({"preprocess": "scale=1/255", "note": 'quotes " and \u00e9 \u2192 \x00'})
    return builder.build([six, k])


def equal(a: Graph, b: Graph) -> None:
    assert difference(a, b) is None


def saved(graph: Graph, folder: Path) -> bytes:
    save_rlx(graph, folder / "model.rlx")
    return (folder / "model.rlx").read_bytes()


# ---- Round trips ----------------------------------------------------------------------------------------------------


def test_a_graph_comes_back_exactly(tmp_path: Path) -> None:
    graph = small_graph()
    save_rlx(graph, tmp_path / "model.rlx")
    equal(load(tmp_path / "model.rlx"), graph)
    equal(load_rlx((tmp_path / "model.rlx").read_bytes()), graph)


@given(st.one_of(*(strategy() for strategy in op_graphs.OPS.values())))
def test_random_graphs_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    equal(load_rlx(saved(graph, tmp_path_factory.getbasetemp())), graph)


@given(st.one_of(*SINGLE_OPS.values()))
def test_imported_models_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    graph = load_tflite(case.model)
    equal(load_rlx(saved(graph, tmp_path_factory.getbasetemp())), graph)


@given(any_ops)
def test_any_op_survives_the_codec(op: Op) -> None:
    """From the type hints alone: attributes that no model has, too. NaN is no equal of itself, so JSON is compared."""
    text = json.dumps(encode(op), allow_nan=False)
    back = decode(Op, json.loads(text), "op")
    assert type(back) is type(op)
    assert json.dumps(encode(back)) == text
    assert repr(back) == repr(op)


@given(st.from_type(FrozenAdd) | st.from_type(FrozenScale) | st.from_type(FrozenSoftmax))
def test_frozen_integers_survive_the_codec(frozen: Frozen) -> None:
    assert decode(Frozen, json.loads(json.dumps(encode(frozen))), "frozen") == frozen


@settings(max_examples=settings().max_examples // 2)
@given(any_graphs())
def test_random_graphs_of_all_kinds_come_back_exactly(graph: Graph) -> None:
    """Nested graphs with weights of their own among them."""
    equal(load_rlx(rlx_bytes(graph)), graph)


def looped(weights: Array, decay: Array) -> Graph:
    """A Scan in a CustomFn, each with a parameter `w` of its own."""
    row = TensorType((3,), DType.F32)
    step = GraphBuilder("step")
    x = step.input("x", row)
    inner = step.build([step.add(Binary(BinaryOp.MUL), [x, step.param("w", decay)], "y")])
    body = GraphBuilder("body")
    scan = body.add(Scan(inner, 2, False, 0, 0, 0), [body.input("x", row)], "scan")
    middle = body.build([body.add(Binary(BinaryOp.ADD), [scan, body.param("w", weights)], "y")])
    outer = GraphBuilder("outer")
    return outer.build([outer.add(CustomFn(middle, None, None, 1), [outer.input("x", row)], "y")])


def test_parameters_of_nested_graphs_are_told_apart_by_path() -> None:
    graph = looped(np.float32([1, 2, 3]), np.float32([0.5, 0.25, -1]))
    data = rlx_bytes(graph)
    tensors = safetensors.numpy.load(data)
    assert sorted(tensors) == ["1.fwd_body.1.body/param/w", "1.fwd_body/param/w"]
    np.testing.assert_array_equal(tensors["1.fwd_body.1.body/param/w"], np.float32([0.5, 0.25, -1]))
    equal(load_rlx(data), graph)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    tensors["1.fwd_body.2.body/param/w"] = tensors.pop("1.fwd_body.1.body/param/w")
    missing = refusal(safetensors.numpy.save(tensors, header))
    assert "no tensor '1.fwd_body.1.body/param/w' for the parameter 'w'" in missing
    tensors["1.fwd_body.1.body/param/w"] = np.zeros(3, np.float64)
    assert "belongs to no parameter" in refusal(safetensors.numpy.save(tensors, header))
    del tensors["1.fwd_body.2.body/param/w"]
    wrong = refusal(safetensors.numpy.save(tensors, header))
    assert "node 1 CustomFn 'y': fwd_body: node 1 Scan 'scan': body: node 1 Param 'w': declared f32[3]" in wrong


def test_a_parameter_without_axes_comes_back() -> None:
    builder = GraphBuilder("g")
    graph = builder.build([builder.param("w", np.array(2.5, np.float32))])
    equal(load_rlx(rlx_bytes(graph)), graph)


def test_equal_graphs_give_equal_files(tmp_path: Path) -> None:
    assert saved(small_graph(), tmp_path) == saved(small_graph(), tmp_path)


def test_any_safetensors_reader_opens_it(tmp_path: Path) -> None:
    graph = small_graph()
    save_rlx(graph, tmp_path / "model.rlx")
    with safetensors.safe_open(tmp_path / "model.rlx", framework="numpy") as file:
        assert set(file.keys()) == {"param/w", "param/b"}
        np.testing.assert_array_equal(file.get_tensor("param/w"), graph.params["w"])
        document = json.loads(file.metadata()["rlx"])
    assert document["version"] == 1
    assert [node["name"] for node in document["graph"]["nodes"]] == ["x", "w", "b", "y", "k", "six"]


def test_the_weights_of_a_transposed_view_are_stored_in_order(tmp_path: Path) -> None:
    builder = GraphBuilder("g")
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    graph = builder.build([builder.param("w", values)])
    np.testing.assert_array_equal(load_rlx(saved(graph, tmp_path)).params["w"], values)


# ---- Writing --------------------------------------------------------------------------------------------------------


def test_a_graph_that_is_not_well_formed_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.rlx"
    path.write_bytes(b"before")
    with pytest.raises(ModelError, match="no output"):
        save_rlx(Graph("g", (), ()), path)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["model.rlx"]


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    save_rlx(small_graph(), tmp_path / "model.rlx")
    assert [p.name for p in tmp_path.iterdir()] == ["model.rlx"]


def test_a_folder_that_is_missing_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="cannot be written"):
        save_rlx(small_graph(), tmp_path / "nowhere" / "model.rlx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(EdgeError, match="cannot be written"):
        save_rlx(small_graph(), tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


# ---- Damage ---------------------------------------------------------------------------------------------------------


def rewritten(tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Array]], None]) -> bytes:
    """The small graph's file with its JSON document and tensors changed by hand."""
    save_rlx(small_graph(), tmp_path / "model.rlx")
    with safetensors.safe_open(tmp_path / "model.rlx", framework="numpy") as file:
        document = json.loads(file.metadata()["rlx"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(document, tensors)
    return safetensors.numpy.save(tensors, {"rlx": json.dumps(document)})


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        load_rlx(data)
    return str(caught.value)


def node(document: dict[str, Any], index: int) -> dict[str, Any]:
    entry: dict[str, Any] = document["graph"]["nodes"][index]
    return entry


RESHAPE = {"class": "Reshape", "new_shape": [2**62] * 10**5}


def nested(depth: int) -> dict[str, Any]:
    """The JSON of an op with so many graphs in each other."""
    if not depth:
        return {"class": "Input", "name": "x"}
    inside = {
        "class": "Node",
        "id": 0,
        "op": nested(depth - 1),
        "inputs": [],
        "name": "x",
        "type": {"shape": [], "dtype": "f32"},
    }
    graph = {"name": "g", "nodes": [inside], "outputs": [0], "metadata": {}}
    return {"class": "CustomFn", "fwd_body": graph, "vjp_body": None, "jvp_body": None, "num_inputs": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d, t: d.update(version=2), "format version 2, but this rlx-edge reads 1: upgrade"),
        (lambda d, t: d.update(version=0), "format version 0 is no longer read"),
        (lambda d, t: d.pop("version"), "no format version"),
        (lambda d, t: d.update(version=True), "no format version"),
        (lambda d, t: d.pop("graph"), "should have the fields"),
        (lambda d, t: d["graph"].update(extra=1), "should have the fields"),
        (lambda d, t: t.pop("param/b"), "no tensor 'param/b' for the parameter 'b'"),
        (lambda d, t: t.update({"param/z": t["param/b"]}), "tensor 'param/z' belongs to no parameter"),
        (lambda d, t: t.update({"param/b": t["param/b"].astype(np.int64)}), "its values are int64[3]"),
        (lambda d, t: t.update({"param/b": t["param/b"][:2]}), "its values are int32[2]"),
        (lambda d, t: t.update({"param/b": t["param/b"].astype(np.uint16)}), "no IR dtype holds numpy's uint16"),
        (lambda d, t: node(d, 3)["op"].update({"class": "QMatMul9"}), "nodes[3].op is of the unknown kind 'QMatMul9'"),
        (lambda d, t: node(d, 3)["op"].pop("class"), "nodes[3].op is of the unknown kind None"),
        (lambda d, t: node(d, 3)["op"].update(speed=3), "has the field 'speed', which a QMatMul does not have"),
        (lambda d, t: node(d, 3)["op"].pop("mult"), "nodes[3].op lacks the field 'mult' of a QMatMul"),
        (lambda d, t: node(d, 3)["op"].update(x_zp="3"), "nodes[3].op.x_zp should be an integer, not '3'"),
        (lambda d, t: node(d, 3)["op"].update(x_zp=3.0), "nodes[3].op.x_zp should be an integer, not 3.0"),
        (lambda d, t: node(d, 3)["op"].update(mult=1.0), "nodes[3].op.mult should be a list"),
        (lambda d, t: node(d, 3)["op"].update(mult=[None]), "nodes[3].op.mult[0] should be a number"),
        (lambda d, t: node(d, 3)["op"].update(clamp=[1, 2, 3]), "nodes[3].op.clamp has 3 entries instead of 2"),
        (lambda d, t: node(d, 3)["op"].update(requant="best"), "nodes[3].op.requant is 'best', which is no Requant"),
        (lambda d, t: node(d, 3)["op"]["frozen"].update({"class": "FrozenAdd"}), "nodes[3].op.frozen"),
        (lambda d, t: node(d, 4)["op"].update(data="a"), "nodes[4].op.data is not base64 text"),
        (lambda d, t: node(d, 4)["op"].update(data="AAAA"), "3 bytes of data for f32[3]"),
        (lambda d, t: node(d, 3).update(inputs=[0, 1, 9]), "operands [9] are not nodes"),
        (lambda d, t: node(d, 0)["type"].update(dtype="i7"), "nodes[0].type.dtype is 'i7', which is no DType"),
        (lambda d, t: d["graph"].update(nodes={}), "nodes should be a list"),
        (lambda d, t: d["graph"].update(nodes=[3]), "nodes[0] should be a Node, not 3"),
        (lambda d, t: d["graph"].update(metadata={"a": 1}), "text by name"),
        (lambda d, t: d["graph"].update(outputs=[True]), "outputs[0] should be an integer"),
        (lambda d, t: d["graph"].update(name=None), "name should be text"),
        (lambda d, t: node(d, 0)["type"].update(shape=[2**64, 4]), "an integer of more than 64 bits"),
        (lambda d, t: node(d, 3)["op"].update(x_zp=-(10**4000)), "an integer of more than 64 bits"),
        (lambda d, t: node(d, 0)["type"].update(shape=[2] * 40), "40 axes; 32 are possible"),
        (lambda d, t: node(d, 3).update(op=nested(40)), "graphs nested deeper than 32"),
        (lambda d, t: node(d, 3).update(op=RESHAPE, inputs=[0]), "100000 axes; 32 are possible"),
        (lambda d, t: t.update({"other": np.zeros(1, np.float32)}), "tensor 'other' belongs to no parameter"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Array]], None], words: str
) -> None:
    assert words in refusal(rewritten(tmp_path, change))


def test_graphs_that_are_deeper_than_the_stack_get_one_line(tmp_path: Path) -> None:
    assert "\n" not in refusal(rewritten(tmp_path, lambda d, t: node(d, 3).update(op=nested(150))))


@pytest.mark.parametrize("depth", [40, 150, 300])
def test_ops_within_ops_get_one_line(tmp_path: Path, depth: int) -> None:
    """Steps of a region are ops; each level is four brackets of JSON."""
    op = '{"class": "ResizeNearest2x"}'
    for _ in range(depth):
        op = f'{{"class": "TransformRegion", "num_inputs": 1, "steps": [{{"op": {op}, "operands": []}}]}}'
    node = f'{{"id": 0, "op": {op}, "inputs": [], "type": {{"shape": [], "dtype": "f32"}}, "name": "x"}}'
    text = f'{{"version": 1, "graph": {{"name": "g", "nodes": [{node}], "outputs": [0], "metadata": {{}}}}}}'
    assert "\n" not in refusal(safetensors.numpy.save({}, {"rlx": text}))


def test_fields_with_defaults_may_be_absent(tmp_path: Path) -> None:
    """A file from before an op gained an attribute."""
    data = rewritten(tmp_path, lambda d, t: node(d, 3)["op"].pop("frozen"))
    op = load_rlx(data).nodes[3].op
    assert isinstance(op, QMatMul)
    assert op.frozen is None


def test_other_safetensors_files_are_told_apart() -> None:
    assert "rlx-edge did not make it" in refusal(safetensors.numpy.save({"w": np.zeros(3, np.float32)}))
    assert "rlx-edge did not make it" in refusal(safetensors.numpy.save({}, {"format": "pt"}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "[" * 100_000, '{"version": 1, "graph": []}'])
def test_json_that_is_no_graph_gets_one_line(text: str) -> None:
    assert "\n" not in refusal(safetensors.numpy.save({}, {"rlx": text}))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff" * 64, b"\x10\0\0\0\0\0\0\0{not json at all", b"\xff\xd8\xff\xe0 a JPEG"]
)
def test_foreign_bytes_get_one_line(data: bytes, tmp_path: Path) -> None:
    assert "\n" not in refusal(data)
    path = tmp_path / "model.rlx"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def good_or_refused(data: bytes) -> None:
    try:
        graph = load_rlx(data)
    except EdgeError:
        return
    assert list(find_problems(graph)) == []


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = saved(small_graph(), tmp_path)
    for length in range(len(data)):
        refusal(data[:length])


def test_every_byte_may_be_anything(tmp_path: Path) -> None:
    data = saved(small_graph(), tmp_path)
    for position in range(len(data)):
        for value in (0, 0xFF, data[position] ^ 1):
            good_or_refused(data[:position] + bytes([value]) + data[position + 1 :])


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
anything = st.recursive(
    scalars, lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=5), c, max_size=3)
)


@given(st.data(), anything)
def test_any_json_in_any_place_is_refused_or_good(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: object
) -> None:
    def change(document: dict[str, Any], tensors: dict[str, Array]) -> None:
        place: Any = document
        while True:
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 4)) == 0:
                place[key] = value
                return
            place = place[key]

    good_or_refused(rewritten(tmp_path_factory.getbasetemp(), change))


def test_the_codec_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(TypeError, match="no place"):
        encode(object())
    with pytest.raises(CodecError, match="should be a Input"):
        decode(Input, {"class": "Clamp", "name": "x"}, "op")


@pytest.mark.parametrize("dtype", [DType.I4, DType.I2])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 9])
def test_weights_of_few_bits_are_packed(tmp_path: Path, dtype: DType, count: int) -> None:
    graph = dense_of_few_bits(dtype, count)
    data = saved(graph, tmp_path)
    equal(load_rlx(data), graph)
    stored = safetensors.numpy.load(data)["param/w"]
    assert stored.dtype == np.uint8 and stored.size == (2 * count * dtype.bits + 7) // 8


def dense_of_few_bits(dtype: DType, count: int) -> Graph:
    low, high = dtype.limits
    builder = GraphBuilder("few_bits")
    quant = QuantParams.per_tensor(0.5, 0)
    x = builder.input("x", TensorType((1, count), DType.I8, quant))
    values = np.random.default_rng(count).integers(low, high + 1, (count, 2)).astype(np.int8)
    operands = [x, builder.param("w", values, quant, dtype=dtype), builder.param("b", np.zeros(2, np.int32))]
    return builder.build([builder.add(QMatMul(0, 0, 0, (0.5,)), operands, "y", quant)])


def test_packed_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    data = saved(dense_of_few_bits(DType.I4, 5), tmp_path)
    tensors = safetensors.numpy.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    for values, message in (
        (np.zeros(4, np.uint8), "4 bytes for 10 values of 4 bits"),
        (np.zeros(5, np.int8), "packed bytes"),
        (np.zeros((1, 5), np.uint8), "packed bytes"),
    ):
        assert message in refusal(safetensors.numpy.save({**tensors, "param/w": values}, header))
