"""What ops mean that move elements, look them up or put them. They take any dtype and compute nothing new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_edge.errors import DataError
from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import (
    Concat,
    Expand,
    Gather,
    GatherElements,
    GatherNd,
    Narrow,
    Op,
    Pad,
    PadMode,
    Reverse,
    ScatterElements,
    ScatterNd,
    ScatterNdReduction,
    Slice,
    Tile,
    Transpose,
    Trilu,
)

Types = Sequence[TensorType]


def reshape(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    return x[0].reshape(out.shape)


def transpose(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Transpose)
    return np.ascontiguousarray(x[0].transpose(op.perm))


def concat(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Concat)
    return np.concatenate(x, axis=op.axis)


PAD_MODES = {PadMode.REFLECT: "reflect", PadMode.REPLICATE: "edge", PadMode.CIRCULAR: "wrap"}
"""The vocabulary's names and numpy's."""


def pad(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Pad)
    if op.mode is PadMode.CONSTANT:
        return np.pad(x[0], op.pads, constant_values=x[0].dtype.type(op.value))
    mode: Any = PAD_MODES[op.mode]
    return np.asarray(np.pad(x[0], op.pads, mode=mode))


def narrow(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Narrow)
    return np.take(x[0], range(op.start, op.start + op.len), axis=op.axis)


def slice(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Slice)
    return np.take(x[0], op.start + op.step * np.arange(op.len), axis=op.axis)


def expand(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Expand)
    return np.ascontiguousarray(np.broadcast_to(x[0], op.target_shape))


def tile(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Tile)
    return np.tile(x[0], op.reps)


def reverse(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Reverse)
    return np.ascontiguousarray(np.flip(x[0], op.axes))


def trilu(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Trilu)
    rows, columns = x[0].shape[-2:]
    diagonal = max(-rows, min(op.diagonal, columns))  # Beyond the corners all diagonals are alike.
    return np.triu(x[0], diagonal) if op.upper else np.tril(x[0], diagonal)


def gather(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Gather)
    data, indices = x
    return np.take(data, _checked(indices, data.shape[op.axis]), axis=op.axis)


def gather_elements(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, GatherElements)
    return np.ascontiguousarray(x[0][_element_places(x[0], x[1], op.axis)])


def gather_nd(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, GatherNd)
    data, indices = x
    shared = np.indices(indices.shape[:-1], sparse=True)[: op.batch_dims]
    places = [_checked(indices[..., k], data.shape[op.batch_dims + k]) for k in range(indices.shape[-1])]
    return np.ascontiguousarray(data[(*shared, *places)])


REDUCTIONS: dict[ScatterNdReduction, np.ufunc] = {
    ScatterNdReduction.ADD: np.add,
    ScatterNdReduction.MUL: np.multiply,
    ScatterNdReduction.MAX: np.maximum,
    ScatterNdReduction.MIN: np.minimum,
}


def scatter_elements(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ScatterElements)
    return _scatter(x[0], _element_places(x[0], x[1], op.axis), x[2], op.reduction)


def scatter_nd(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ScatterNd)
    data, indices, updates = x
    places = tuple(_checked(indices[..., k], data.shape[k]) for k in range(indices.shape[-1]))
    return _scatter(data, places, updates, op.reduction)


def _scatter(data: Array, places: tuple[Array, ...], updates: Array, reduction: ScatterNdReduction) -> Array:
    """One update after the other, so that several for one place mean what the op says."""
    result = data.copy()
    if reduction is ScatterNdReduction.NONE:
        result[places] = updates
    else:
        REDUCTIONS[reduction].at(result, places, updates)
    return result


def _element_places(data: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """Where each index points: its own place, and along the axis the index itself."""
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = _checked(indices, data.shape[axis])
    return tuple(places)


def _checked(indices: Array, size: int) -> Array:
    """Indices counted from the start. Raises DataError for one that is outside of the axis."""
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        raise DataError(f"an index outside of an axis of {size}: they run from {indices.min()} to {indices.max()}")
    return np.where(indices < 0, indices + size, indices).astype(np.int64)
