"""How a tensor is cut into rows, the unit that kernels compute."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlx_edge.cgen.plan import View
from rlx_edge.ir import Array, TensorType


def rows_of(type: TensorType) -> tuple[int, int, int]:
    """(images, rows of an image, bytes of a row). NHWC images have a row per pixel row; other tensors one image
    with a row per index of all axes but the last."""
    size = type.dtype.bits // 8
    shape = type.shape
    if len(shape) == 4:
        return shape[0], shape[1], shape[2] * shape[3] * size
    return 1, math.prod(shape[:-1]), (shape[-1] if shape else 1) * size


def image_views(type: TensorType, node: int) -> Iterator[View]:
    """A view of each image of a tensor."""
    images, rows, pitch = rows_of(type)
    for image in range(images):
        yield View(node, pitch, image * rows * pitch)


def compact(values: Array) -> tuple[Array, int]:
    """A per-channel table and 1, or its only value and 0 when all entries are equal."""
    if len(values) > 1 and (values != values[0]).any():
        return values, 1
    return values[:1], 0
