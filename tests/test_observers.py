"""Observers: states merge in any order to the same bits; ranges hold 0, and give scales that are ordinary numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx_models import random_array

from rlx_edge.errors import EdgeError
from rlx_edge.ir import Array
from rlx_edge.quant.observers import GROUP, GROUPS, MovingAverage, Range, extremes
from rlx_edge.quant.observers_choose import Counts, entropy, mse, percentile
from rlx_edge.quant.observers_histogram import OCTAVES, Histogram
from rlx_edge.quant.observers_methods import CHOOSE, OBSERVERS, Observer, method_of
from rlx_edge.quant.schemes import LARGEST_SCALE, SMALLEST_SCALE, activation_params

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NEAR = st.floats(-20, 20, width=32)
SAMPLES = arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.one_of(FLOATS, NEAR))


def observed(values: Array, first: int = 0) -> Observer:
    observer = Observer(counts=True, average=True)
    assert observer.update(values, first, len(values))
    return observer


def counted(values: Array) -> Histogram:
    histogram = Histogram()
    histogram.update(values, float(values.min()), float(values.max()))
    return histogram


def counts_of(values: Array) -> Counts:
    observer = observed(values)
    assert observer.counts is not None
    return Counts.of(observer.counts, observer.seen)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_any_split_merged_in_any_order_gives_the_same_bits(values: Array, random: object) -> None:
    whole = observed(values)
    parts, first = [], 0
    while first < len(values):
        size = random.randint(1, len(values) - first)  # type: ignore[attr-defined]
        parts.append(observed(values[first : first + size], first))
        first += size
    random.shuffle(parts)  # type: ignore[attr-defined]
    merged = Observer(counts=True, average=True)
    for part in parts:
        merged.merge(part)
    assert merged.counts is not None and whole.counts is not None
    assert merged.counts.top == whole.counts.top
    assert np.array_equal(merged.counts.counts, whole.counts.counts)
    assert np.array_equal(merged.seen.channel_low, whole.seen.channel_low)
    assert np.array_equal(merged.seen.channel_high, whole.seen.channel_high)
    assert merged.seen.count == whole.seen.count == values.size
    for name in OBSERVERS:
        assert merged.range(name) == whole.range(name)


@given(SAMPLES)
def test_batches_give_the_same_bits_as_one(values: Array) -> None:
    whole, single = observed(values), Observer(counts=True, average=True)
    for i in range(len(values)):
        single.update(values[i : i + 1], i, 1)
    for name in OBSERVERS:
        assert single.range(name) == whole.range(name)


@given(SAMPLES, st.sampled_from(OBSERVERS))
def test_ranges_lie_within_what_was_seen_and_scales_are_ordinary_numbers(values: Array, name: str) -> None:
    found = observed(values).range(name)
    assert min(float(values.min()), 0) <= found.low <= found.high <= max(float(values.max()), 0)
    assert 0 <= found.clipped <= 1
    check_scale(found)


@given(FLOATS, FLOATS)
def test_every_range_holds_zero_exactly(a: float, b: float) -> None:
    check_scale(Range(min(a, b), max(a, b)))


def check_scale(found: Range) -> None:
    quant = activation_params(found)
    assert SMALLEST_SCALE * 0.999 <= quant.scale <= max(LARGEST_SCALE * 1.001, 1)
    assert np.float32(quant.scale) == quant.scale
    assert -128 <= quant.zero_point <= 127


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=st.one_of(FLOATS, NEAR)))
def test_counts_are_those_of_the_values(values: Array) -> None:
    points, counts = counted(values).points()
    assert counts.sum() == values.size
    assert np.all(np.diff(points) > 0)
    largest = float(np.abs(values).max())
    wide = np.sort(values.astype(np.float64))
    middles = np.repeat(points, counts)
    kept = np.abs(wide) >= max(largest * 2.0 ** (2 - OCTAVES), 2.0**-100)
    assert np.all(np.abs(middles - wide)[kept] <= np.abs(wide)[kept] / 512)
    assert np.all(np.abs(middles)[~kept] <= max(largest * 2.0 ** (2 - OCTAVES), 2.0**-100) * 1.01)


def test_extremes_of_channels() -> None:
    values = random_array((3, 4, 5, 6))
    low, high = extremes(values)
    assert np.array_equal(low, values.min(axis=(0, 1, 2)))
    assert np.array_equal(high, values.max(axis=(0, 1, 2)))
    assert extremes(np.float32(3).reshape(())) == (3, 3)


def test_memory_does_not_grow_with_the_samples() -> None:
    average, histogram = MovingAverage(), Histogram()
    size = histogram.counts.nbytes
    for i in range(0, 100 * GROUP, GROUP):
        values = random_array((GROUP, 3), i)
        average.update(values, i, GROUP)
        histogram.update(values, float(values.min()), float(values.max()))
    assert len(average._groups) == GROUPS
    assert histogram.counts.nbytes == size < 1 << 18


def test_a_moving_average_forgets_and_weighs_by_age() -> None:
    average = MovingAverage()
    for group, high in enumerate([8.0, 4.0, 2.0]):
        average.update(np.full((GROUP, 2), high, np.float32), group * GROUP, GROUP)
    weights = [0.81, 0.9, 1]
    assert average.bounds[1] == pytest.approx(np.dot(weights, [8, 4, 2]) / sum(weights))
    average.update(np.full((1, 2), 100, np.float32), (GROUPS + 2) * GROUP, 1)
    assert average.bounds == (100, 100)


def test_a_percentile_leaves_outside_what_it_says() -> None:
    values = random_array((100, 1000))
    for percent in (99.0, 99.9, 99.99):
        low, high = percentile(counts_of(values), float(values.min()), float(values.max()), percent)
        share = np.mean((values < low) | (values > high))
        assert share == pytest.approx(1 - percent / 100, rel=0.2)


def test_a_percentile_of_zeros_alone_leaves_the_extremes() -> None:
    """Most values of many a Relu are 0: a range of no width would keep nothing of the others."""
    values = np.where(np.arange(1000) % 50 == 0, 5.0, 0.0).astype(np.float32)
    assert percentile(counts_of(values), 0.0, 5.0, 90.0) == (0.0, 5.0)


def quantization_noise(values: Array, low: float, high: float) -> float:
    quant = activation_params(Range(low, high))
    codes = np.clip(np.rint(values / quant.scale) + quant.zero_point, -128, 127)
    return float(np.sum(((codes - quant.zero_point) * quant.scale - values) ** 2))


@pytest.mark.parametrize("seed", range(4))
def test_the_least_error_is_found(seed: int) -> None:
    """Against a search over a grid, on the values themselves."""
    values = np.random.default_rng(seed).laplace(0.5, 1, (50, 1000)).astype(np.float32)
    low, high = float(values.min()), float(values.max())
    wide = values.astype(np.float64)
    found = quantization_noise(wide, *mse(counts_of(values), low, high))
    steps = np.linspace(0.2, 1, 30)
    best = min(quantization_noise(wide, low * a, high * b) for a in steps for b in steps)
    assert found <= best * 1.03
    assert found < quantization_noise(wide, low, high)


def test_expected_noise_is_that_of_the_values() -> None:
    values = random_array((50, 1000))
    for low, high in [(-4.0, 4.0), (-1.0, 2.0), (0.0, 1.0)]:
        expected = quantization_noise(values.astype(np.float64), low, high)
        assert counts_of(values).noise(low, high) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("power", [1, 3, 5])
def test_entropy_never_costs_signal_to_noise(power: int) -> None:
    """Values that peak at 0, as depthwise convolutions make them: there, plain KL clips most of what matters."""
    values = np.maximum(random_array((40, 1000)), 0) ** power
    counts = counts_of(values)
    low, high = entropy(counts, float(values.min()), float(values.max()))
    assert counts.sqnr_db(low, high) >= counts.sqnr_db(float(values.min()), float(values.max()))


def test_auto_takes_the_best_signal_to_noise_ratio() -> None:
    values = random_array((1000, 1000))
    values[0, 0] = 20
    observer = observed(values)
    found = observer.range("auto")
    assert found.sqnr_db is not None
    for name in CHOOSE:
        other = observer.range(name)
        assert other.sqnr_db is not None and found.sqnr_db >= other.sqnr_db - 0.06
    assert found.high < 10
    assert 1e-6 <= found.clipped < 1e-3


def test_auto_leaves_alone_what_clipping_does_not_help() -> None:
    values = np.random.default_rng(0).random((40, 1000)).astype(np.float32)
    found = observed(values).range("auto")
    assert (found.low, found.high, found.method) == (values.min(), values.max(), "minmax")


def test_values_that_are_not_finite_are_not_kept() -> None:
    observer = observed(np.ones((2, 3), np.float32))
    for bad in (np.nan, np.inf, -np.inf):
        values = np.array([[1, bad, 2]], np.float32)
        assert not observer.update(values, 2, 1)
    assert observer.seen.count == 6
    assert observer.range("mse").high == 1


def test_names_that_do_not_exist_are_refused() -> None:
    for name in ("median", "percentile:", "percentile:x", "percentile:120", "mse:3", ""):
        with pytest.raises(EdgeError, match="observer"):
            method_of(name)
    assert method_of("percentile:99.9").counts
    assert not method_of("minmax").counts
    assert math.isclose(observed(random_array((10, 10))).range("percentile:100").clipped, 0)
