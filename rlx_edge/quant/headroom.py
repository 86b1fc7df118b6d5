"""Headroom: ranges of tensors with few values, widened by what their tails let expect.

The largest of n values seen is exceeded by the next one with a probability of about 1 / n. For an image tensor n is in
the millions; for a mean over an image or the outputs it is some thousands, and what a later sample exceeds the range by
is cut off whole. With an exponential tail of mean excess b, P(x > t) = (k / n) exp(-(t - u) / b) above the k-th largest
value u, a bound t costs 2 b^2 P(x > t) of cut-off, in the mean square, beside the rounding's step^2 / 12, which grows
with t. The bound that costs least is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Input, Leaf
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.assign import OWN_RANGE
from rlx_edge.quant.batches import batches, quick_batch
from rlx_edge.quant.calibrate import Calibration
from rlx_edge.quant.observers import Range
from rlx_edge.quant.schemes import CODES
from rlx_edge.reference.fast import observe

MOST_VALUES = 1 << 18
"""Tensors with more values, over all samples, are left alone: their bounds hardly move, and their values would have to
be kept."""

TAIL_SHARE = 64
"""One in so many values counts as the tail."""

FEWEST, MOST = 16, 256
"""Values in a tail, at least and at most."""

CANDIDATES = np.linspace(0, 8, 401)
"""Bounds beyond the largest value, in mean excesses."""


def widen(graph: Graph, calibration: Calibration, data: Data) -> Calibration:
    """The calibration with wider ranges where they are expected to cost less, from the graph and data it was made on.

    Only bounds that cut off no value seen are moved, and never a bound at 0.
    """
    prepared = prepare(graph)
    kept = _values(prepared, calibration.ranges, data)
    wider = {name: widened(calibration.ranges[name], values) for name, values in kept.items()}
    return replace(calibration, ranges={**calibration.ranges, **wider})


def widened(range: Range, values: Array) -> Range:
    """A range with the bounds that cost least, given all values of its tensor."""
    high, low = range.high, range.low
    if 0 < high == values.max():
        high = bound(values, max(-low, 0.0))
    if 0 > low == values.min():
        low = -bound(-values, max(high, 0.0))
    if (low, high) == (range.low, range.high):
        return range
    return replace(range, low=low, high=high, method=f"{range.method} + headroom")


def bound(values: Array, other: float) -> float:
    """The upper bound, at or above the largest of the values [n], that costs least; `other` is the range below 0."""
    largest, tail = float(values.max()), min(max(values.size // TAIL_SHARE, FEWEST), MOST)
    if values.size <= 2 * tail:
        return largest
    top = np.sort(np.partition(values, values.size - tail - 1)[values.size - tail - 1 :]).astype(np.float64)
    threshold, excess = top[0], float(np.mean(top[1:] - top[0]))
    if excess <= 0:
        return largest
    bounds = largest + CANDIDATES * excess
    beyond = tail / values.size * np.exp(-(bounds - threshold) / excess)
    costs = ((bounds + other) / CODES) ** 2 / 12 + 2 * excess**2 * beyond
    return float(bounds[costs.argmin()])


def _values(graph: Graph, ranges: Mapping[str, Range], data: Data) -> dict[str, Array]:
    """All values [n] of the computed tensors that have few, by name."""
    wanted = {
        node.id
        for node in graph.nodes
        if isinstance(node.op, OWN_RANGE) and not isinstance(node.op, Input | Leaf) and node.name in ranges
        if node.type.elements * len(data) <= MOST_VALUES
    }
    kept: dict[str, list[Array]] = {}

    def keep(node: Node, value: Array) -> None:
        if node.id in wanted:
            kept.setdefault(node.name, []).append(value.reshape(-1).copy())

    for batch in batches(data, graph, most=quick_batch(graph)) if wanted else ():  # Calibration's: the same bits.
        observe(batch.graphs[0], batch.inputs, keep)
    return {name: np.concatenate(values) for name, values in kept.items()}
