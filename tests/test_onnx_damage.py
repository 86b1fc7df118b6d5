"""ONNX files that are damaged, foreign, incomplete or made to harm give one clear line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import make_model, random_array
from test_onnx_import import CASES, I64, one_node

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.onnx import load_onnx


def valid_bytes() -> bytes:
    return bytes(one_node(*CASES[1])[0].SerializeToString())


@pytest.mark.parametrize("keep", [0, 1, 10, 0.3, 0.7, -1])
def test_truncated_files_give_one_line(keep: float) -> None:
    data = valid_bytes()
    size = int(len(data) * keep) if 0 < keep < 1 else int(keep)
    with pytest.raises(ModelError) as caught:
        load_onnx(data[:size])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"TFL3" * 20, b"\x1c\x00\x00\x00TFL3" + bytes(60), b"PK\x03\x04" + bytes(50), bytes(9)]
)
def test_foreign_files_give_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.onnx") as caught:
        load_onnx(path)
    assert "\n" not in str(caught.value)


def test_every_truncation_is_an_edge_error() -> None:
    data = valid_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises((ModelError, UnsupportedError)):
            load_onnx(data[:size])


def test_external_data_old_opsets_and_missing_files_are_refused(tmp_path: Path) -> None:
    model = one_node(*CASES[0])[0]
    path = tmp_path / "big.onnx"
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=0)
    with pytest.raises(UnsupportedError, match="in another file"):
        load_onnx(path)
    with pytest.raises(UnsupportedError, match="opset 6"):
        load_onnx(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"], opset=6).SerializeToString())
    with pytest.raises(ModelError, match=r"none\.onnx"):
        load_onnx(tmp_path / "none.onnx")


def external(name: str) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(random_array((2, 2)), name)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    return tensor


def test_external_data_is_refused_wherever_it_is() -> None:
    """ONNX would read it from the current folder."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    inner = helper.make_graph([helper.make_node("Constant", [], ["k"], value=external("kk"))], "inner", [], [])
    middle = helper.make_graph([helper.make_node("If", ["c"], ["k"], then_branch=inner)], "middle", [], [])
    initialized = helper.make_graph([], "initialized", [], [], [external("kk")])
    sparse = onnx.SparseTensorProto(values=external("kk"), dims=[9])
    for node in (
        helper.make_node("Constant", [], ["k"], value=external("kk")),
        helper.make_node("Constant", [], ["k"], sparse_value=sparse),
        helper.make_node("If", ["c"], ["k"], then_branch=middle, else_branch=initialized),
        helper.make_node("If", ["c"], ["k"], then_branch=initialized),
    ):
        model = make_model([relu], {"x": (2, 2)}, ["y"])
        model.graph.node.append(node)
        with pytest.raises(UnsupportedError, match="values of 'kk' are in another file"):
            load_onnx(model.SerializeToString())
    model.graph.node.pop()
    function = helper.make_function(
        "f", "F", [], ["k"], [helper.make_node("Constant", [], ["k"], value=external("kk"))], model.opset_import
    )
    model.functions.append(function)
    with pytest.raises(UnsupportedError, match="values of 'kk' are in another file"):
        load_onnx(model.SerializeToString())


HUGE = [
    ("ConstantOfShape", {"s": np.array([10**6, 10**6], I64)}, {}),
    ("Range", {"a": I64(0), "b": I64(10**15), "c": I64(1)}, {}),
    ("Tile", {"x": random_array((10,)), "r": np.array([10**13], I64)}, {}),
    ("Expand", {"x": random_array((1,)), "s": np.array([10**12], I64)}, {}),
    ("Pad", {"x": random_array((1,)), "p": np.array([0, 10**12], I64)}, {}),
    ("Add", {"a": random_array((5000, 1)), "b": random_array((1, 5000))}, {}),
    ("MatMul", {"a": random_array((5000, 1)), "b": random_array((1, 5000))}, {}),
    ("OneHot", {"i": np.zeros(9, I64), "d": I64(10**12), "v": np.zeros(2, np.float32)}, {}),
    ("Resize", {"x": random_array((1, 1)), "n": random_array((0,)), "s": np.full(2, 1e6, np.float32)}, {}),
]


@pytest.mark.parametrize(("op", "constants", "attributes"), HUGE, ids=[h[0] for h in HUGE])
def test_constants_that_would_grow_huge_are_refused(op: str, constants: dict[str, Any], attributes: Any) -> None:
    nodes = [helper.make_node(op, list(constants), ["k"], **attributes), helper.make_node("Relu", ["in"], ["y"])]
    model = make_model(nodes, {"in": (1, 2)}, ["y"], constants)
    with pytest.raises(UnsupportedError, match=r"grow beyond|cannot be told"):
        load_onnx(model.SerializeToString())


def test_constants_that_double_again_and_again_are_refused() -> None:
    nodes = [helper.make_node("Concat", [f"k{i}", f"k{i}"], [f"k{i + 1}"], axis=0) for i in range(40)]
    model = make_model([*nodes, helper.make_node("Relu", ["in"], ["y"])], {"in": (1, 2)}, ["y"], {"k0": np.ones(9)})
    with pytest.raises(UnsupportedError, match="grow beyond"):
        load_onnx(model.SerializeToString())


def test_no_constants_break_the_importer() -> None:
    """Division by zero, bad indices: whatever ONNX's own evaluator says."""
    for op, constants in (
        ("Mod", {"a": np.ones(2, I64), "b": np.zeros(2, I64)}),
        ("Gather", {"a": np.ones(2, I64), "b": I64(99)}),
        (
            "Slice",
            {
                "a": np.ones(2, I64),
                "b": np.zeros(1, I64),
                "c": np.ones(1, I64),
                "d": np.zeros(1, I64),
                "e": np.zeros(1, I64),
            },
        ),
        ("ConstantOfShape", {"a": np.array([-1], I64)}),
        ("Reshape", {"a": np.ones(4, I64), "b": np.array([3, -1], I64)}),
    ):
        nodes = [helper.make_node(op, list(constants), ["k"]), helper.make_node("Add", ["x", "k"], ["y"])]
        model = make_model(nodes, {"x": (1, 2)}, ["y"], constants)
        with pytest.raises((ModelError, UnsupportedError)):
            load_onnx(model.SerializeToString())


def test_unknown_data_types_are_refused_by_name() -> None:
    nodes = [helper.make_node("Add", ["x", "k"], ["y"])]
    stored = make_model(nodes, {"x": (1, 2)}, ["y"], {"k": np.ones(2, np.float32)})
    stored.graph.initializer[0].data_type = 127
    value = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(2, np.float32)))
    constant = make_model([value, *nodes], {"x": (1, 2)}, ["y"])
    constant.graph.node[0].attribute[0].t.data_type = 127
    for model in (stored, constant):
        with pytest.raises((ModelError, UnsupportedError), match="no data type 127"):
            load_onnx(model.SerializeToString())


@pytest.mark.parametrize("field", [b"a name", b"an input", b"an attribute"])
def test_names_that_are_not_text_are_damage(field: bytes) -> None:
    nodes = [helper.make_node("LeakyRelu", ["an input"], ["y"], name="a name"), helper.make_node("Relu", ["y"], ["z"])]
    nodes[0].attribute.append(helper.make_attribute("an attribute", 0.5))
    data = make_model(nodes, {"an input": (1, 2)}, ["z"]).SerializeToString()
    with pytest.raises(ModelError, match=r"is not UTF-8 text") as caught:
        load_onnx(data.replace(field, b"\xff" * len(field)))
    assert "\n" not in str(caught.value)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path(os.devnull)):
        with pytest.raises(ModelError, match="no regular file"):
            load_onnx(path)


def test_the_graph_is_named_after_the_file(tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    path.write_bytes(valid_bytes())
    assert load_onnx(path).name == "digits"
