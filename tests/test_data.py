"""Data files: what is read, and one clear line for everything that is not."""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_edge import files
from rlx_edge.data import FLOATS_TOO, load_data, parse_samples
from rlx_edge.errors import DataError
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Reshape
from rlx_edge.preprocess import Preprocess

PARAMS = QuantParams.per_tensor(0.5, -3)


def float_graph(*shape: int, inputs: tuple[str, ...] = ("image",)) -> Graph:
    builder = GraphBuilder("g")
    ids = [builder.input(name, TensorType(shape, DType.F32)) for name in inputs]
    return builder.build([builder.add(Activation(ActivationFn.RELU), [i], f"y{i}") for i in ids])


def int8_graph(*shape: int) -> Graph:
    builder = GraphBuilder("g")
    x = builder.input("image", TensorType(shape, DType.I8, PARAMS))
    return builder.build([builder.add(Reshape((-1,)), [x], "y", PARAMS)])


@pytest.fixture
def save(tmp_path: Path) -> Any:
    def write(**arrays: Any) -> Path:
        path = tmp_path / "d.npz"
        np.savez(path, **arrays)
        return path

    return write


def refusal(path: Path, graph: Graph, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load_data(path, graph, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


X = np.arange(40, dtype=np.float32).reshape(10, 4)


def test_floats_are_real_values(save: Any) -> None:
    data = load_data(save(x=X.astype(np.float64), y=np.arange(10)), float_graph(1, 4))
    assert len(data) == 10
    assert data.inputs["image"].dtype == np.float32
    np.testing.assert_array_equal(data.inputs["image"], X)
    assert data.labels is not None
    np.testing.assert_array_equal(data.labels, np.arange(10))
    assert [len(b["image"]) for b in data.batches(4)] == [4, 4, 2]


def test_floats_are_quantized_with_the_inputs_parameters(save: Any) -> None:
    values = np.array([[-100.0, -0.25, 0.25, 0.75], [0, 0.2, 1e30, -1e30]], np.float32)
    data = load_data(save(image=values), int8_graph(1, 4))
    np.testing.assert_array_equal(data.inputs["image"], [[-128, -4, -2, -1], [-3, -3, 127, -128]])
    assert data.labels is None


def test_the_models_own_integers_pass_as_they_are(save: Any) -> None:
    values = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    path = save(x=values)
    np.testing.assert_array_equal(load_data(path, int8_graph(1, 4)).inputs["image"], values)
    assert "preprocessing does not apply" in refusal(path, int8_graph(1, 4), preprocess="scale=2")


def test_integers_mean_the_same_before_and_after_quantization(save: Any) -> None:
    """int8 values that calibrated a float model are not taken for codes by the int8 model that was made of it."""
    values = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    path = save(x=values, x_scale=np.float32(0.5), x_zero_point=2)
    real = load_data(path, float_graph(1, 4)).inputs["image"]
    np.testing.assert_array_equal(real, (values - 2.0) * 0.5)
    codes = load_data(path, int8_graph(1, 4)).inputs["image"]
    np.testing.assert_array_equal(codes, load_data(save(x=real), int8_graph(1, 4)).inputs["image"])
    path = save(x=values)
    assert "take for its own codes" in refusal(path, float_graph(1, 4), preprocess="scale=1/127")


def test_other_integers_need_a_meaning(save: Any) -> None:
    pixels = np.array([[0, 1, 2, 255]], np.uint8)
    assert "nothing says which real values" in refusal(save(x=pixels), float_graph(1, 4))
    data = load_data(save(x=pixels, x_scale=np.float32(0.5), x_zero_point=2), float_graph(1, 4))
    np.testing.assert_array_equal(data.inputs["image"], [[-1, -0.5, 0, 126.5]])
    data = load_data(save(x=pixels), float_graph(1, 4), preprocess="scale=1/255,mean=0.5,std=0.25")
    np.testing.assert_allclose(data.inputs["image"], (pixels / 255 - 0.5) / 0.25, rtol=1e-6)
    assert data.preprocess is not None
    stored = float_graph(1, 4).with_metadata(preprocess=data.preprocess)
    np.testing.assert_array_equal(load_data(save(x=pixels), stored).inputs["image"], data.inputs["image"])
    text = refusal(save(x=pixels, x_scale=1.0), float_graph(1, 4), preprocess="scale=1/255")
    assert "no preprocessing is needed" in text


def test_stored_preprocessing_leaves_floats_alone(save: Any) -> None:
    stored = float_graph(1, 4).with_metadata(preprocess="scale=2")
    np.testing.assert_array_equal(load_data(save(x=X), stored).inputs["image"], X)
    np.testing.assert_array_equal(load_data(save(x=X), stored, preprocess="scale=3").inputs["image"], X * 3)


def test_floats_that_were_preprocessed_for_calibration_are_asked_about(save: Any) -> None:
    data = load_data(save(x=X), float_graph(1, 4), preprocess="scale=2")
    assert data.preprocessed_floats
    stored = float_graph(1, 4).with_metadata(**{"preprocess": "scale=2", FLOATS_TOO: "1"})
    (warning,) = load_data(save(x=X), stored).warnings
    assert "taken as real values, but floats were preprocessed" in warning
    assert load_data(save(x=X), stored, preprocess="scale=2").warnings == ()
    assert not load_data(save(x=X.astype(np.uint8)), stored).preprocessed_floats


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.array([1.0, 2.0]), np.array("a")])
def test_a_meaning_must_make_sense(save: Any, scale: Any) -> None:
    assert "x_scale" in refusal(save(x=np.zeros((1, 4), np.uint8), x_scale=scale), float_graph(1, 4))


def test_several_inputs_go_by_name(save: Any) -> None:
    graph = float_graph(1, 4, inputs=("a", "b"))
    data = load_data(save(a=X, b=X + 1), graph)
    np.testing.assert_array_equal(data.inputs["b"], X + 1)
    assert "no array 'b'" in refusal(save(a=X, x=X), graph)
    assert "different numbers of samples" in refusal(save(a=X, b=X[:3]), graph)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0:8:2", [0, 2, 4, 6]), ("7:", [7, 8, 9]), (":2", [0, 1]), ("3", [3]), ("-1", [9]), (None, list(range(10)))],
)
def test_samples_are_picked(save: Any, text: str | None, expected: list[int]) -> None:
    data = load_data(save(x=X, y=np.arange(10)), float_graph(1, 4), samples=text)
    assert data.labels is not None
    assert data.labels.tolist() == expected
    np.testing.assert_array_equal(data.inputs["image"], X[expected])


@pytest.mark.parametrize("text", ["", "a", "1:2:3:4", "1:2:0", "1.5:2"])
def test_other_texts_pick_no_samples(text: str) -> None:
    with pytest.raises(DataError, match="start:stop:step"):
        parse_samples(text)


def test_bad_values_are_refused(save: Any) -> None:
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = X.copy()
        bad[2, 1] = value
        text = refusal(save(x=bad), float_graph(1, 4))
        assert word in text
        assert "sample 2 at [1]" in text
        assert word in refusal(save(x=bad), int8_graph(1, 4))
    huge = np.full((1, 4), 1e300)
    assert "infinity" in refusal(save(x=huge), float_graph(1, 4))


def test_no_samples_are_refused(save: Any) -> None:
    assert "no samples" in refusal(save(x=X[:0]), float_graph(1, 4))
    assert "none were picked" in refusal(save(x=X), float_graph(1, 4), samples="50:")
    assert "single number" in refusal(save(x=np.float32(1)), float_graph(1, 4))


def test_wrong_shapes_say_both(save: Any) -> None:
    text = refusal(save(x=np.zeros((2, 8, 8, 3), np.float32)), float_graph(1, 3, 8, 8))
    assert "[8, 8, 3]" in text
    assert "[3, 8, 8]" in text
    assert "moveaxis(x, -1, 1)" in text
    assert "moveaxis(x, 1, -1)" in refusal(save(x=np.zeros((2, 3, 8, 8), np.float32)), float_graph(1, 8, 8, 3))
    assert "[5]" in refusal(save(x=np.zeros((2, 5), np.float32)), float_graph(1, 4))


def test_wrong_dtypes_are_refused(save: Any) -> None:
    for values in (np.full((2, 4), "a"), np.zeros((2, 4), np.complex64), np.zeros((2, 4), bool)):
        assert "floats or integers" in refusal(save(x=values), float_graph(1, 4))


def test_missing_keys_name_those_that_exist(save: Any) -> None:
    text = refusal(save(images=X, label=np.arange(10)), float_graph(1, 4))
    assert "images, label" in text
    assert "no labels 'target'" in refusal(save(x=X), float_graph(1, 4), labels="target")
    assert "3 labels" in refusal(save(x=X, y=np.arange(3)), float_graph(1, 4))


def test_foreign_files_are_refused(save: Any, tmp_path: Path) -> None:
    graph = float_graph(1, 4)
    whole = save(x=X).read_bytes()
    path = tmp_path / "bad.npz"
    for content in (b"", b"hello", whole[:50], whole[:-10], whole[: len(whole) // 2], whole[:100] + bytes(200)):
        path.write_bytes(content)
        assert "bad.npz" in refusal(path, graph)
    broken = bytearray(whole)
    broken[160] ^= 0xFF
    path.write_bytes(bytes(broken))
    assert "bad.npz" in refusal(path, graph)
    np.save(tmp_path / "single.npy", X)
    assert "single .npy array" in refusal(tmp_path / "single.npy", graph)
    assert "no such file" in refusal(tmp_path / "none.npz", graph)
    assert "is no image" in refusal(tmp_path, graph)


def test_python_objects_are_never_loaded(save: Any) -> None:
    path = save(x=np.array([{"a": 1}, None], dtype=object))
    assert "Python objects" in refusal(path, float_graph(1, 4))


def header(text: str, values: bytes = b"") -> bytes:
    """An .npy file with this header, whatever it says."""
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line + values


def described(shape: str, dtype: str = "<f4") -> str:
    return f"{{'descr':'{dtype}','fortran_order':False,'shape':{shape}}}"


HOSTILE = {
    "huge": header(described("(10000000000000,4)"), b"1234"),
    "beyond int64": header(described("(999999999999999999999999,4)"), b"1234"),
    "an expression": header(described("(10**30,4)"), b"1234"),
    "negative": header(described("(-1,4)"), bytes(16)),
    "negative twice": header(described("(-1,-4)"), bytes(16)),
    "more than the file": header(described("(2,4)"), bytes(16)),
    "less than the file": header(described("(1,4)"), bytes(32)),
    "no bytes each": header(described("(1000000000000000,4)", "|S0")),
    "cut header": header("{'descr':'<f4','fortran_order':False,'shape':(1,4)"),
    "cut text": header("{'descr':'''<f4"),
    "deep": header("(" * 5000),
    "long": header("1" * 60000),
    "no dtype": header("{'descr':None,'fortran_order':False,'shape':(1,4)}", bytes(16)),
    "bad dtype": header(described("(1,4)", "<q9"), bytes(16)),
    "no header": b"hello",
    "empty": b"",
    "later version": b"\x93NUMPY\x09\x00" + bytes(100),
    "objects": header(described("(1,)", "|O"), b"cos\nsystem\n(S'false'\ntR."),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_members_give_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    assert "'x'" in refusal(path, float_graph(1, 4))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_compression_gives_one_line(tmp_path: Path, method: int) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", header(described("(16,4)"), bytes(range(256))))
    data = path.read_bytes()
    for start in range(35, len(data), 11):
        path.write_bytes(data[:start] + bytes(b ^ 0x5A for b in data[start : start + 9]) + data[start + 9 :])
        with contextlib.suppress(DataError):  # Some damage does not matter; nothing else may be raised.
            load_data(path, float_graph(1, 4))


def test_encrypted_members_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.zeros((1000, 4), np.float32))
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(mark) + at] |= 1
    monkeypatch.setattr(files, "MAX_NPZ_BYTES", 16_000)
    assert "at most 16000 are read" in refusal(path, float_graph(1, 4))
    monkeypatch.undo()
    path.write_bytes(bytes(data))
    assert "encrypted" in refusal(path, float_graph(1, 4))


def test_members_that_are_no_arrays_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=X)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hello")
    np.testing.assert_array_equal(load_data(path, float_graph(1, 4)).inputs["image"], X)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", Path(os.devnull)):
        assert "no regular file" in refusal(path, float_graph(1, 4))


def test_saved_arrays_may_have_any_name(tmp_path: Path) -> None:
    names = ["file", "allow_pickle", "args", "self", "a/b", "x.npy", "y"]
    arrays = {name: X + np.float32(i) for i, name in enumerate(names)}
    arrays["f"] = np.asfortranarray(X)
    files.save_npz(tmp_path / "d.npz", arrays)
    assert list(files.read_npz(tmp_path / "d.npz")) == list(arrays)
    with np.load(tmp_path / "d.npz") as loaded:
        for name in ("file", "allow_pickle", "y", "f"):
            np.testing.assert_array_equal(loaded[name], arrays[name])


def test_a_first_axis_other_than_one_belongs_to_the_sample(save: Any) -> None:
    values = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    np.testing.assert_array_equal(load_data(save(x=values), float_graph(2, 4)).inputs["image"], values)
    assert "takes [2, 4]" in refusal(save(x=values[0]), float_graph(2, 4))
    assert load_data(save(x=values[0]), float_graph(4)).inputs["image"].shape == (2, 4)


def test_a_model_without_inputs_has_no_data(save: Any) -> None:
    builder = GraphBuilder("g")
    k = builder.param("k", X)
    graph = builder.build([builder.add(Activation(ActivationFn.RELU), [k], "y")])
    assert "has no inputs" in refusal(save(x=X), graph)


def test_preprocess_text_round_trips() -> None:
    parsed = Preprocess.parse("scale=1/255, mean=0.485,0.456,0.406,std=0.229,0.224,0.225")
    assert parsed == Preprocess(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert Preprocess.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("", "write it as in"),
        ("1/255", "write it as in"),
        ("scale=", "not a number"),
        ("scale=1/0", "not a number"),
        ("scale=__import__('os')", "not a number"),
        ("scale=nan", "not a number"),
        ("scale=1,2", "one number"),
        ("scale=0", "not 0"),
        ("std=0", "not be 0"),
        ("gain=2", "'gain' is not one of"),
        ("scale=1,scale=2", "given twice"),
    ],
)
def test_other_preprocess_texts_are_refused(text: str, needle: str) -> None:
    with pytest.raises(DataError, match=needle):
        Preprocess.parse(text)


def test_preprocessing_per_channel_finds_the_channel_axis() -> None:
    per_channel = Preprocess(1.0, (1.0, 2.0, 3.0))
    last, first = np.zeros((2, 4, 4, 3), np.uint8), np.zeros((2, 3, 4, 4), np.uint8)
    assert per_channel.apply(last)[0, 0, 0].tolist() == [-1, -2, -3]
    assert per_channel.apply(first)[0, :, 0, 0].tolist() == [-1, -2, -3]
    with pytest.raises(DataError, match="two axes"):
        per_channel.apply(np.zeros((2, 3, 4, 3), np.uint8))
    with pytest.raises(DataError, match="no channel axis"):
        per_channel.apply(np.zeros((2, 4, 4, 1), np.uint8))
