"""What the kinds of ir/ops/ordering.py mean, which shift, order, count and collect elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.errors import DataError
from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.ordering import CumMax, Histogram, Roll, ScatterAdd, Sort
from rlx_edge.reference.further import OpFunction
from rlx_edge.reference.reductions import order

Types = Sequence[TensorType]


def roll(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Roll)
    result = x[0]
    for shift, dim in zip(op.shifts, op.dims, strict=True):
        size = result.shape[dim]
        result = np.take(result, (np.arange(size) - shift % size) % size, axis=dim)
    return result


def sort(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Sort)
    return np.take_along_axis(x[0], order(x[0], op.axis, op.descending), op.axis)


def cum_max(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, CumMax)
    running: Array = np.maximum.accumulate(x[0], axis=op.axis)
    if not op.exclusive:
        return running
    shifted = np.roll(running, 1, op.axis)
    lowest = -np.inf if x[0].dtype.kind == "f" else np.iinfo(x[0].dtype).min
    np.moveaxis(shifted, op.axis, 0)[0] = lowest
    return shifted


def histogram(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Elements from each edge on, less those from the next edge on; the last part holds its upper edge too."""
    assert isinstance(op, Histogram)
    edges, values = histogram_edges(op), x[0].ravel()
    from_edge = [int((values >= edge).sum()) for edge in edges[:-1]]
    above = int((values > edges[-1]).sum())
    return np.asarray(np.subtract(from_edge, [*from_edge[1:], above])).astype(np.float32)


def histogram_edges(op: Histogram) -> Array:
    """The bins + 1 edges in float32: equal steps from min in float64, each rounded once, and max itself."""
    low, high = float(np.float32(op.min)), float(np.float32(op.max))
    edges = low + np.arange(op.bins + 1) * ((high - low) / op.bins)
    edges[-1] = high
    return edges.astype(np.float32)


def scatter_add(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """Floats are added in float64 and rounded once; integers wrap. Raises DataError for an index of no place."""
    assert isinstance(op, ScatterAdd)
    updates, indices = x
    places = out.shape[op.axis]
    outside = ~((indices >= 0) & (indices < places) & (indices == np.floor(indices)))
    if outside.any():
        raise DataError(f"index {indices[outside][0]} of an axis of {places}: whole numbers from 0 are needed")
    total = np.zeros(out.shape, np.float64 if updates.dtype.kind == "f" else updates.dtype)
    np.add.at(np.moveaxis(total, op.axis, 0), indices.astype(np.int64), np.moveaxis(updates, op.axis, 0))
    return total.astype(updates.dtype)


FUNCTIONS: dict[type[Op], OpFunction] = {
    Roll: roll,
    Sort: sort,
    CumMax: cum_max,
    Histogram: histogram,
    ScatterAdd: scatter_add,
}

ON_CODES: dict[type[Op], OpFunction] = {Roll: roll, Sort: sort}
"""Codes are in the order of what they stand for, as scales are positive and shared; a Sort needs them shared."""
