"""Folders of images as data: sizes, channels, layouts, labels, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlx_edge.data import load_data
from rlx_edge.errors import DataError
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Clamp

SCALE = "scale=1/255"


def model(shape: tuple[int, ...], quant: QuantParams | None = None) -> Graph:
    builder = GraphBuilder("images")
    x = builder.input("x", TensorType(shape, DType.F32 if quant is None else DType.I8, quant))
    return builder.build([builder.add(Clamp(-9.0, 9.0), [x], "y", quant)])


def draw(path: Path, size: tuple[int, int], seed: int, color: bool = True) -> np.ndarray:
    """A random image of height and width, written and returned as [H, W, C]."""
    path.parent.mkdir(exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3 if color else 1)).astype(np.uint8)
    Image.fromarray(pixels if color else pixels[..., 0]).save(path)
    return pixels


def test_class_folders_give_labels(tmp_path: Path) -> None:
    first = draw(tmp_path / "cat" / "b.png", (4, 5), 1)
    second = draw(tmp_path / "cat" / "c.png", (4, 5), 2)
    third = draw(tmp_path / "dog" / "a.png", (4, 5), 3)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    data = load_data(tmp_path, model((1, 4, 5, 3)), preprocess=SCALE)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(data.inputs["x"], (np.stack([first, second, third]) / 255).astype(np.float32))


def test_channels_first_and_samples(tmp_path: Path) -> None:
    images = [draw(tmp_path / f"{i}.png", (4, 5), i) for i in range(4)]
    data = load_data(tmp_path, model((1, 3, 4, 5)), samples="1:4:2", preprocess="scale=1")
    assert data.labels is None
    np.testing.assert_array_equal(data.inputs["x"], np.stack([images[1], images[3]]).transpose(0, 3, 1, 2))


def test_gray_models_take_color_images(tmp_path: Path) -> None:
    gray = draw(tmp_path / "a.png", (4, 4), 1, color=False)
    quant = QuantParams.per_tensor(1 / 255, -128)
    data = load_data(tmp_path, model((1, 4, 4, 1), quant), preprocess=SCALE)
    np.testing.assert_array_equal(data.inputs["x"][0], gray.astype(np.int64) - 128)
    draw(tmp_path / "a.png", (4, 4), 1)
    assert load_data(tmp_path, model((1, 4, 4, 1)), preprocess=SCALE).inputs["x"].shape == (1, 4, 4, 1)


def test_resize_stretches_and_is_remembered(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", (9, 7), 1)
    graph = model((1, 4, 4, 3))
    data = load_data(tmp_path, graph, preprocess=f"{SCALE},resize=4x4")
    assert data.inputs["x"].shape == (1, 4, 4, 3)
    assert data.preprocess is not None
    again = load_data(tmp_path, graph.with_metadata(preprocess=data.preprocess))
    np.testing.assert_array_equal(again.inputs["x"], data.inputs["x"])


def test_wrong_size_says_what_to_add(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", (9, 7), 1)
    with pytest.raises(DataError, match="is 9x7, but the model takes 4x4: add resize=4x4"):
        load_data(tmp_path, model((1, 4, 4, 3)), preprocess=SCALE)
    with pytest.raises(DataError, match="the model takes 4x4 images"):
        load_data(tmp_path, model((1, 4, 4, 3)), preprocess=f"{SCALE},resize=8x8")


def test_what_is_refused(tmp_path: Path) -> None:
    graph = model((1, 4, 4, 3))
    with pytest.raises(DataError, match="holds no images"):
        load_data(tmp_path, graph, preprocess=SCALE)
    draw(tmp_path / "a.png", (4, 4), 1)
    with pytest.raises(DataError, match="nothing says which real values"):
        load_data(tmp_path, graph)
    with pytest.raises(DataError, match="none were picked"):
        load_data(tmp_path, graph, samples="5:9", preprocess=SCALE)
    with pytest.raises(DataError, match="no image of 1 or 3 channels"):
        load_data(tmp_path, model((1, 48)), preprocess=SCALE)
    content = (tmp_path / "a.png").read_bytes()
    for bad in (b"", b"no image", content[: len(content) // 2]):
        (tmp_path / "a.png").write_bytes(bad)
        with pytest.raises(DataError, match=r"a\.png: is not an image that can be read"):
            load_data(tmp_path, graph, preprocess=SCALE)


@pytest.mark.parametrize("values", [np.full((4, 4), 40000, np.uint16), np.full((4, 4), 0.5, np.float32)])
def test_images_of_more_than_8_bits_are_refused(values: np.ndarray, tmp_path: Path) -> None:
    """Pillow would turn them white."""
    name = "a.png" if values.dtype == np.uint16 else "a.bmp"
    Image.fromarray(values).save(tmp_path / name, format="PNG" if values.dtype == np.uint16 else "TIFF")
    with pytest.raises(DataError, match="more than 8 bits a channel"):
        load_data(tmp_path, model((1, 4, 4, 1)), preprocess=SCALE)


def test_images_that_would_be_left_out_are_told(tmp_path: Path) -> None:
    draw(tmp_path / "cat" / "0.png", (8, 8), 0)
    (tmp_path / "dog" / "more").mkdir(parents=True)
    with pytest.raises(DataError, match=r"dog: holds no images .*; every folder here is taken for a class"):
        load_data(tmp_path, model((1, 8, 8, 3)), preprocess="scale=1/255")
    draw(tmp_path / "stray.png", (8, 8), 1)
    with pytest.raises(DataError, match=r"stray.png: lies beside folders"):
        load_data(tmp_path, model((1, 8, 8, 3)), preprocess="scale=1/255")


def test_huge_images_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path / "0.png", (16, 8), 0)
    monkeypatch.setattr("rlx_edge.images.MOST_PIXELS", 127)
    with pytest.raises(DataError, match=r"0.png: is (16x8|8x16); at most 127 pixels are read"):
        load_data(tmp_path, model((1, 8, 8, 3)), preprocess="scale=1/255,resize=8x8")


def test_resize_is_not_for_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(DataError, match="resize is for folders of images"):
        load_data(tmp_path / "d.npz", model((1, 4, 4, 3)), preprocess="resize=4x4")


@pytest.mark.parametrize("text", ["resize=4", "resize=4x", "resize=x4", "resize=-4x4", "resize=4x4x4", "resize=a"])
def test_bad_sizes(text: str, tmp_path: Path) -> None:
    draw(tmp_path / "a.png", (4, 4), 1)
    with pytest.raises(DataError, match="resize=96x96"):
        load_data(tmp_path, model((1, 4, 4, 3)), preprocess=text)
