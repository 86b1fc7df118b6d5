"""A folder of images as samples: uint8 pixels, and a label per class folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rlx_edge.errors import DataError
from rlx_edge.ir import Array, Shape

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm")
MODES = {1: "L", 3: "RGB"}
"""What Pillow calls an image of so many channels."""
WIDE_MODES = ("I", "F")
"""Modes that Pillow would cut off at 255, not scale down."""
MOST_PIXELS = 1 << 26
"""Of an image: small files can hold huge ones."""


def read_images(folder: Path, shape: Shape, chosen: slice, resize: tuple[int, int] | None) -> dict[str, Array]:
    """`x` [n, H, W, C] or [n, C, H, W], uint8, as `shape` (of a model input, its batch of 1 first) has it.

    Images lie in the folder itself, or in a folder a class, whose sorted names give labels 0, 1, ... in `y`. Files are
    taken in the order of their names; `chosen` picks some. With `resize` (height, width) images are stretched to that
    size, bilinearly. Raises DataError for no images, for one that cannot be read or has the wrong size, for images
    beside class folders and for a class folder without any.
    """
    height, width, channels, channels_first = _geometry(folder, shape)
    if resize is not None and resize != (height, width):
        raise DataError(f"resize={resize[0]}x{resize[1]}: the model takes {height}x{width} images")
    files = list(_files(folder))
    picked = files[chosen]
    if not picked:
        found = f"{len(files)} images, of which none were picked" if files else f"no images ({', '.join(SUFFIXES)})"
        raise DataError(f"{folder}: holds {found}")
    pixels = np.stack([_pixels(path, (height, width), channels, resize is not None) for path, _ in picked])
    made = {"x": pixels.transpose(0, 3, 1, 2) if channels_first else pixels}
    labels = [label for _, label in picked if label is not None]
    return made | {"y": np.array(labels, np.int64)} if labels else made


def _geometry(folder: Path, shape: Shape) -> tuple[int, int, int, bool]:
    """Height, width, channels, and whether channels come first."""
    if len(shape) == 4 and shape[3] in MODES:
        return shape[1], shape[2], shape[3], False
    if len(shape) == 4 and shape[1] in MODES:
        return shape[2], shape[3], shape[1], True
    raise DataError(f"{folder}: the model takes {list(shape)}, which is no image of 1 or 3 channels; use an .npz file")


def _files(folder: Path) -> Iterator[tuple[Path, int | None]]:
    """Image files with the number of their class folder, or with None where there are no such folders."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        yield from ((path, None) for path in _images_in(folder))
        return
    if beside := _images_in(folder):
        raise DataError(f"{beside[0]}: lies beside folders: either all images lie in a folder a class, or none")
    for label, inner in enumerate(classes):
        found = _images_in(inner)
        if not found and any(_images_in(other) for other in classes):
            raise DataError(f"{inner}: holds no images ({', '.join(SUFFIXES)}); every folder here is taken for a class")
        yield from ((path, label) for path in found)


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())


def _pixels(path: Path, size: tuple[int, int], channels: int, stretch: bool) -> Array:
    """[H, W, C], uint8."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(f"{path}: reading images needs Pillow: pip install 'rlx-edge[images]'") from error
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:  # Of sizes, which are checked here.
            if image.mode.split(";")[0] in WIDE_MODES:
                raise DataError(f"{path}: has more than 8 bits a channel ({image.mode}); convert it to 8 bits")
            height, width = size
            if not stretch and (image.height, image.width) != size:
                raise DataError(
                    f"{path}: is {image.height}x{image.width}, but the model takes {height}x{width}: "
                    f"add resize={height}x{width} to --preprocess to stretch all images"
                )
            if image.height * image.width > MOST_PIXELS:
                raise DataError(f"{path}: is {image.height}x{image.width}; at most {MOST_PIXELS:,} pixels are read")
            converted = image.convert(MODES[channels])
            if stretch:
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(converted, np.uint8).reshape(height, width, channels)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: is not an image that can be read ({error})") from error
