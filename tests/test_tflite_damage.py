"""Broken `.tflite` files: one clear message each, and never anything but a good graph or an EdgeError."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.single_functions import ALL_OPS
from oracles.single_ops import Case
from oracles.tflite_writer import OpSpec, TensorSpec, write_model
from test_tflite_float import SINGLES
from test_tflite_uint8 import small_net
from tflite_models import BIAS, WEIGHTS, B, W, X, Y, conv_op, int8

from rlx_edge.errors import EdgeError, ModelError
from rlx_edge.formats import load
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import find_problems


def one_line(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        load_tflite(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 100, b"\xff\xd8\xff\xe0 a JPEG", b"\x08\x08\x12\x07pytorch", b"    TFL3", b"\xff" * 4 + b"TFL3" * 9],
)
def test_foreign_bytes_get_one_line(data: bytes, tmp_path: Path) -> None:
    one_line(data)
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_files_and_directories_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load(tmp_path / "nothing.tflite")
    with pytest.raises(ModelError, match="is a directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([X, W, B, replace(Y, shape=(1, 3, 3, 4))], "is declared"),
        ([X, W, replace(B, data=BIAS[:2]), Y], "holds 8 bytes"),
        ([X, replace(W, data=WEIGHTS[:1]), B, Y], "holds 8 bytes"),
        ([X, replace(W, scales=(0.1, 0.2), zero_points=(0, 0)), B, Y], "2 scales for 3 channels"),
        ([replace(X, scales=(0.0,)), W, B, Y], "a scale that is not a positive number"),
        ([replace(X, zero_points=(300,)), W, B, Y], "a zero point outside of i8"),
        ([replace(X, zero_points=(1, 2)), W, B, Y], "1 scales beside 2 zero points"),
        ([replace(X, shape=(1, 0, 5, 2)), W, B, Y], "has the shape [1, 0, 5, 2]"),
        ([replace(X, shape=(2**30, 2**30, 5, 2)), W, B, Y], "has the shape"),
        ([replace(X, shape=(1, -1, 5, 2)), W, B, Y], "has the shape"),
        ([X, W, replace(B, shape=(2,), data=BIAS[:2]), Y], "a bias of 2 values for 3 channels"),
    ],
)
def test_tensors_that_do_not_fit_are_damage(tensors: list[TensorSpec], words: str) -> None:
    assert words in one_line(write_model(tensors, [conv_op()], [0], [3]))


@pytest.mark.parametrize(
    ("ops", "inputs", "outputs", "words"),
    [
        ([replace(conv_op(), inputs=[0, 1, 9])], [0], [3], "tensor 9 of 4"),
        ([replace(conv_op(), inputs=[0, 1, -2])], [0], [3], "tensor -2 of 4"),
        ([replace(conv_op(), inputs=[-1, 1, 2])], [0], [3], "has no operand 0"),
        ([replace(conv_op(), options="")], [0], [3], "has no Conv2DOptions"),
        ([replace(conv_op(), options="AddOptions", fields={})], [0], [3], "has no Conv2DOptions"),
        ([conv_op(), conv_op()], [0], [3], "there already"),
        ([conv_op()], [], [3], "before it is computed"),
        ([conv_op()], [0, 0], [3], "listed twice"),
        ([], [0], [3], "nothing computes"),
        ([replace(conv_op(), outputs=[])], [0], [0], "has no output"),
        ([conv_op(StrideH=0)], [0], [3], "stride [0, 2]"),
        ([conv_op(DilationHFactor=2**30)], [0], [3], "more than 67108864 elements with its padding"),
    ],
)
def test_operators_that_do_not_fit_get_one_message(
    ops: list[OpSpec], inputs: list[int], outputs: list[int], words: str
) -> None:
    with pytest.raises(EdgeError) as caught:
        load_tflite(write_model([X, W, B, Y], ops, inputs, outputs))
    assert words in str(caught.value)


def test_another_schema_version_is_refused() -> None:
    assert "schema version 4" in one_line(write_model([X, W, B, Y], [conv_op()], [0], [3], version=4))


def big_model() -> bytes:
    """Several operators, so that mutations reach all of the reader."""
    tensors = [X, W, B, Y, int8("m", 1, 3, scale=0.2), int8("d", 1, 2, scale=0.3)]
    tensors.append(TensorSpec("axes", (2,), "INT32", data=np.array([1, 2], np.int32)))
    tensors.append(int8("dw", 2, 3, data=np.arange(6, dtype=np.int8)))
    tensors.append(TensorSpec("s", (1, 2), scales=(1 / 256,), zero_points=(-128,)))
    ops = [
        conv_op(FusedActivationFunction=1),
        OpSpec("MEAN", [3, 6], [4], "ReducerOptions", {"KeepDims": 0}),
        OpSpec("FULLY_CONNECTED", [4, 7, -1], [5], "FullyConnectedOptions"),
        OpSpec("SOFTMAX", [5], [8], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return write_model(tensors, ops, [0], [8])


BIG = big_model()


def good_or_refused(data: bytes) -> None:
    try:
        graph = load_tflite(data)
    except EdgeError:
        return
    assert list(find_problems(graph)) == []


def test_every_truncation_is_refused_or_good() -> None:
    assert load_tflite(BIG).output_nodes[0].name == "s"
    for length in range(len(BIG)):
        good_or_refused(BIG[:length])


def test_every_byte_may_be_anything() -> None:
    for position in range(len(BIG)):
        for value in (0, 0xFF):
            good_or_refused(BIG[:position] + bytes([value]) + BIG[position + 1 :])


@given(st.lists(st.tuples(st.integers(0, len(BIG) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=8))
def test_several_damages_at_once(damages: list[tuple[int, bytes]]) -> None:
    data = bytearray(BIG)
    for position, values in damages:
        data[position : position + len(values)] = values
    good_or_refused(bytes(data))


@given(st.one_of(*ALL_OPS.values()), st.data())
def test_damage_to_any_operator(case: Case, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(case.model) - 4))
    values = data.draw(st.sampled_from([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\1\0\0\0"]))
    good_or_refused(case.model[:position] + values + case.model[position + 4 :])


def test_conversions_that_follow_from_each_other_end() -> None:
    tensors = [int8("x", 2), int8("a", 2), int8("b", 2), int8("y", 2)]
    ops = [OpSpec("QUANTIZE", [1], [2]), OpSpec("QUANTIZE", [2], [1]), OpSpec("ADD", [0, 1], [3], "AddOptions")]
    assert "before it is computed" in one_line(write_model(tensors, ops, [0], [3]))


def test_damage_to_uint8_models() -> None:
    data, rng = small_net(), np.random.default_rng(0)
    for position in rng.integers(0, len(data) - 4, 400):
        for values in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1\0\0\0"):
            good_or_refused(data[:position] + values + data[position + 4 :])


@pytest.mark.parametrize("kind", SINGLES)
def test_damage_to_any_float_operator(kind: str) -> None:
    data = SINGLES[kind].model(kind)
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(data) - 4, 60):
        for values in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1\0\0\0"):
            good_or_refused(data[:position] + values + data[position + 4 :])


def test_a_vector_that_many_tables_share_does_not_multiply() -> None:
    """One operator's inputs vector, claimed to be as long as the file, must not be read once per operator."""
    ops = [OpSpec("ADD", list(range(2)) * 2000, [2], "AddOptions")] * 200
    data = write_model([int8("a", 2), int8("b", 2), int8("y", 2)], ops, [0, 1], [2])
    good_or_refused(data)
