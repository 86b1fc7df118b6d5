"""Look at calibration data before a model runs on them: what would ruin it is refused, what is odd is told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.batch import sample_shape
from rlx_edge.ir.ops import Conv, MatMul, Pad, Reshape, Transpose
from rlx_edge.passes.rebuild import is_anchor
from rlx_edge.stored import blocks

FEW_DIFFERENT = 0.5
"""Below this share of samples that differ from each other, a person should know."""

RAW_MAX, RAW_MIN = 255, 16
"""Whole numbers from 0 that reach 16 to 255 look like pixels."""

RAW_REACH = 100.0
"""What a first layer gives for pixels that it was not made for: it reaches hundreds; one made for them about 20.

Measured as the median over channels of sum |weight|, times the largest pixel: 20 on ic, which takes 0..255; on vww and
three mnist models, which take 0..1, 455 to 3191 for 0..255 and 2 to 13 for 0..1.
"""


def check_samples(graph: Graph, data: Data) -> tuple[str, ...]:
    """What a person should know of the samples before a prepared float graph is calibrated on them, a line each.

    Raises DataError, saying which input and which sample, for no samples, a missing input, a wrong shape, NaN or
    infinity, and for an input that has the same value everywhere; ModelError for a constant that is not finite.
    """
    _check_constants(graph)
    if len(data) == 0:
        raise DataError("calibration needs at least one sample")
    warnings: list[str] = []
    for node in graph.inputs:
        values = _checked(node, data)
        warnings.extend(_looks_raw(graph, node, values))
    return (*warnings, *_repeated(graph, data))


def _check_constants(graph: Graph) -> None:
    for node in graph.nodes:
        values = graph.constant(node)
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = values[~np.isfinite(values)]
            hint = "" if np.isnan(bad).any() else "; a mask may be a finite number such as -1e9"
            raise ModelError(f"{node} holds {_name(bad[0])}, {bad.size} of its {values.size} values{hint}")


def _name(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinity" if value > 0 else "-infinity"


def _checked(node: Node, data: Data) -> Array:
    """An input's samples, of which every value is finite and not all are the same."""
    values, wanted = data.inputs.get(node.name), sample_shape(node.type.shape)
    if values is None:
        raise DataError(f"no values for the input {node.name!r}; given: {', '.join(data.inputs) or 'nothing'}")
    if values.shape != (len(data), *wanted):
        raise DataError(
            f"the input {node.name!r} takes samples of shape {list(wanted)}, {len(data)} of them as the first input "
            f"has; given was {list(values.shape)}"
        )
    low, high = _extremes(values)
    if not np.isfinite([low, high]).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        bad = int(values.size - np.isfinite(values).sum())
        raise DataError(
            f"the input {node.name!r} holds {_name(values[where])} in sample {where[0]} at {list(where[1:])}; "
            f"NaN and infinity in all: {bad} of {values.size} values"
        )
    if low == high and values.size > 1:
        raise DataError(
            f"the input {node.name!r} is {low:g} in all of the {len(data)} samples; calibrate on real, varied data"
        )
    return values


def _looks_raw(graph: Graph, node: Node, values: Array) -> Iterator[str]:
    """Whole numbers from 0 to 255 where the first layer seems to be made for 0..1."""
    low, high = _extremes(values)
    if not (low >= 0 and RAW_MIN <= high <= RAW_MAX) or not _whole(values):
        return
    first = _first_layer(graph, node)
    if first is None:
        return
    weights = graph.constant(graph.nodes[first.inputs[1]])
    assert weights is not None
    others = tuple(i for i in range(weights.ndim) if i != (0 if isinstance(first.op, Conv) else weights.ndim - 1))
    reach = float(np.median(np.abs(weights).sum(axis=others))) * high
    if reach > RAW_REACH:
        yield (
            f"the input {node.name!r} holds whole numbers from {low:g} to {high:g}, which look like raw pixels, and "
            f"would take its first layer, {first}, to about {reach:.0f}: if the model was trained on 0..1, use "
            "--preprocess scale=1/255"
        )


def _extremes(values: Array) -> tuple[float, float]:
    """The smallest and the largest value; NaN where there is one."""
    found = [(float(block.min()), float(block.max())) for _, block in blocks(values)]
    return float(np.min([low for low, _ in found])), float(np.max([high for _, high in found]))


def _whole(values: Array) -> bool:
    return all(np.array_equal(block, np.rint(block)) for _, block in blocks(values))


def _first_layer(graph: Graph, node: Node) -> Node | None:
    """The convolution or dense layer that reads an input as it is; None where something else computes on it first."""
    while True:
        readers = [graph.nodes[i] for i in graph.users[node.id]]
        layers = [n for n in readers if isinstance(n.op, Conv | MatMul) and is_anchor(graph, n)]
        if layers:
            return layers[0]
        if len(readers) != 1 or not isinstance(readers[0].op, Pad | Reshape | Transpose):
            return None
        node = readers[0]


def _repeated(graph: Graph, data: Data) -> Iterator[str]:
    """Samples that are the same as others, in all inputs."""
    count = len(data)
    arrays = [data.inputs[node.name] for node in graph.inputs]
    hashes = [[hash(x.tobytes()) for _, block in blocks(values) for x in block] for values in arrays]
    seen = set(zip(*hashes, strict=True))
    if count > 1 and len(seen) == 1:
        yield f"all {count} samples are the same; calibrate on varied data"
    elif len(seen) < FEW_DIFFERENT * count:
        yield f"only {len(seen)} of the {count} samples differ from each other; the others are copies"
