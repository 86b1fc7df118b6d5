"""From the counts of a tensor's values to the range that its codes should cover: pure functions, one a method.

A tensor's values are `points` [n] float64, ascending, with how often each occurs; `seen` is the range of the values.
Every result lies within `seen`, widened to hold 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rlx_edge.quant.observers import Range, Seen
from rlx_edge.quant.observers_histogram import Histogram
from rlx_edge.quant.schemes import activation_params

PERCENTILE = 99.99
"""The share of values, in percent, that `percentile` keeps inside."""

SHRINK = 2.0 ** (-1 / 4)
"""The step of the search for a bound, towards 0."""

FINE = 8
"""Bounds that are tried between two steps."""

SEARCHED = 2.0**-12
"""The search ends where a bound is this part of the largest value."""

LEVELS = 256
"""The codes of int8, which `entropy` compares a distribution on."""

KL_BINS = 2048
"""Eight bins a level of the whole range."""

KL_STEPS = 64
"""`entropy` tries ranges of 64, 63, ... down to 4 of these parts."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How often a tensor took which value."""

    points: NDArray[np.float64]
    counts: NDArray[np.int64]

    @staticmethod
    def of(histogram: Histogram, seen: Seen) -> Counts:
        """The counts of a histogram, each bin's at its middle, or at the extreme where that comes first."""
        points, counts = histogram.points()
        return Counts(np.clip(points, seen.low, seen.high), counts)

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def outside(self, low: float, high: float) -> float:
        """The share of values below `low` or above `high`."""
        out = int(self.counts[(self.points < low) | (self.points > high)].sum())
        return out / self.total

    def noise(self, low: float, high: float) -> float:
        """The sum of squared errors that int8 with this range makes: of rounding, and of clipping."""
        quant = activation_params(Range(low, high))
        codes = np.rint(self.points / quant.scale)
        np.clip(codes, -128 - quant.zero_point, 127 - quant.zero_point, out=codes)
        codes *= quant.scale
        codes -= self.points
        codes *= codes
        return float(codes @ self.counts)

    @property
    def signal(self) -> float:
        """The sum of squares."""
        return float((self.points * self.points) @ self.counts)

    def sqnr_db(self, low: float, high: float) -> float:
        """10 log10(sum of squares / sum of squared errors): infinite without any error."""
        noise, signal = self.noise(low, high), self.signal
        return float(10 * np.log10(signal / noise)) if noise > 0 < signal else float("inf")


def percentile(values: Counts, low: float, high: float, percent: float = PERCENTILE) -> tuple[float, float]:
    """The range that holds `percent` of all values, with as many below it as above.

    The bounds are middles of bins, so they are exact to 1/1024. Where all that stays inside is 0, there is no range to
    choose, and the extremes are kept.
    """
    outside = (1 - percent / 100) / 2 * values.total
    below = np.cumsum(values.counts)
    above = np.cumsum(values.counts[::-1])
    first, last = int(np.searchsorted(below, outside, "right")), int(np.searchsorted(above, outside, "right"))
    points = values.points
    bounds = max(low, float(points[first])), min(high, float(points[len(points) - 1 - last]))
    return bounds if any(bounds) else (low, high)


def mse(values: Counts, low: float, high: float) -> tuple[float, float]:
    """The range with the least sum of squared errors.

    Bounds are moved one at a time, first in wide steps from the extreme towards 0, then in narrow ones about the best,
    twice over.
    """
    for _ in range(2):
        before = low, high
        high = _best_bound(partial(values.noise, low), high)
        low = _best_bound(partial(_with_high, values.noise, high), low)
        if (low, high) == before:
            break
    return low, high


def _with_high(cost: Callable[[float, float], float], high: float, low: float) -> float:
    return cost(low, high)


def _best_bound(cost: Callable[[float], float], extreme: float) -> float:
    """The bound between 0 and `extreme` with the least cost; the extreme where others are no better."""
    if extreme == 0:
        return extreme
    found = {extreme: cost(extreme)}
    bound = extreme
    while abs(bound) > SEARCHED * abs(extreme):
        bound *= SHRINK
        found[bound] = cost(bound)
        if found[bound] > 4 * min(found.values()):
            break
    best = min(found, key=lambda b: (found[b], -abs(b)))
    for bound in np.linspace(best * SHRINK, min(abs(best / SHRINK), abs(extreme)) * np.sign(extreme), 2 * FINE + 1):
        found[float(bound)] = cost(float(bound))
    return min(found, key=lambda b: (found[b], -abs(b)))


def entropy(values: Counts, low: float, high: float) -> tuple[float, float]:
    """The range whose 256 levels lose the least information: the Kullback-Leibler divergence of the quantized values'
    distribution from that of the values, over KL_BINS bins of equal width.

    By itself the divergence clips too much of what peaks at 0, as a depthwise convolution's output does, because it
    asks how many values moved and not how far (mnist_dw kept 3 dB). So 0, which is always a code, does not count, and
    a range whose squared error exceeds that of the whole range is not considered.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    edges = np.linspace(low, high, KL_BINS + 1)
    bins = np.clip(np.searchsorted(edges, values.points, "right") - 1, 0, KL_BINS - 1)
    held = np.bincount(bins, np.where(values.points == 0, 0, values.counts), KL_BINS).astype(np.float64)
    best, least, allowed = (low, high), np.inf, values.noise(low, high)
    if not held.any():
        return best
    for a, b in _kl_candidates(edges, low, high):
        if values.noise(float(edges[a]), float(edges[b])) > allowed:
            continue
        divergence = _divergence(held, a, b)
        if divergence < least:
            best, least = (float(edges[a]), float(edges[b])), divergence
    return best


def _kl_candidates(edges: NDArray[np.float64], low: float, high: float) -> Iterator[tuple[int, int]]:
    """Bins of the bounds, from the whole range on, both bounds in proportion."""
    zero = round(-low / (high - low) * KL_BINS) if high > low else 0
    for kept in range(KL_STEPS, 3, -1):
        yield round(zero * (1 - kept / KL_STEPS)), round(zero + (KL_BINS - zero) * kept / KL_STEPS)


def _divergence(held: NDArray[np.float64], a: int, b: int) -> float:
    """KL(P || Q): P as counted; Q with what lies outside of [a, b) moved to its ends and then spread over each of the
    LEVELS levels, among bins that hold values. A bin where Q has nothing counts as half a value there."""
    inside = held[a:b].copy()
    inside[0] += held[:a].sum()
    inside[-1] += held[b:].sum()
    level = np.arange(b - a) * LEVELS // (b - a)
    sums = np.bincount(level, inside, LEVELS)
    occupied = held[a:b] > 0
    occupied[[0, -1]] |= inside[[0, -1]] > 0
    shares = np.bincount(level, occupied, LEVELS)
    q = np.zeros_like(held)
    q[a:b] = np.where(occupied, (sums / np.maximum(shares, 1))[level], 0)
    q = np.maximum(q, 0.5)
    p = held > 0
    return float(np.sum(held[p] * np.log(held[p] / q[p])) / held.sum() + np.log(q[p].sum() / held.sum()))
