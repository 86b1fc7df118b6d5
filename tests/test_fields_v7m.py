"""Two products in one multiplication: cgen/variants/fields_v7m.py is right at the extremes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.cgen.variants.fields_v7m import Fields, fields
from rlx_edge.ir import Array

extreme = st.sampled_from([-128, -127, -126, -1, 0, 1, 126, 127])
weights = st.one_of(st.integers(-128, 127), extreme)


def rows_of(data: st.DataObject) -> Array:
    shape = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 21))
    values = data.draw(st.lists(weights, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(values, np.int8).reshape(shape)


def both_sums(f: Fields, channel: int, low: Array, high: Array) -> tuple[int, int]:
    """What the kernel computes for two positions with inputs low and high [steps], as rlx_gemm_v7m.h says."""
    words = low.astype(np.int64) + (high.astype(np.int64) << 16)
    sum_low, sum_high = 0, 0
    for first in range(0, f.steps, f.group):
        group = slice(first, first + f.group)
        value = _int32((1 << 15) - int((words[group] * f.weights[channel, group]).sum()))
        sum_low, sum_high = sum_low + value - (1 << 15), sum_high + (value >> 16)
    for c in f.corrections[channel]:
        value = _int32(int(words[c.step]) * c.part)
        sum_low, sum_high = sum_low - value, sum_high - (_int32(value + (1 << 15)) >> 16)
    return -_int32(sum_low - (sum_high << 16)), -sum_high


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@given(st.data())
def test_sums_are_exact_for_the_largest_inputs(data: st.DataObject) -> None:
    """Inputs that make every group's sum the largest or the smallest, in either field, and random ones."""
    rows = rows_of(data)
    f = fields(rows)
    channel = data.draw(st.integers(0, len(rows) - 1))
    missing = f.steps - rows.shape[1]
    w = np.pad(rows[channel].astype(np.int64), (0, missing))
    most, least = np.where(w < 0, -128, 127), np.where(w < 0, 127, -128)
    some = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=f.steps, max_size=f.steps)))
    low, high = data.draw(st.permutations([most, least, some]))[:2]
    assert both_sums(f, channel, low, high) == (int((w * low).sum()), int((w * high).sum()))


@given(st.data())
def test_corrections_complete_the_weights(data: st.DataObject) -> None:
    rows = rows_of(data)
    f = fields(rows)
    whole = f.weights.astype(np.int64)
    for channel, corrections in enumerate(f.corrections):
        for c in corrections:
            whole[channel, c.step] += c.part
    assert (whole[:, : rows.shape[1]] == rows).all() and not whole[:, rows.shape[1] :].any()


@pytest.mark.parametrize(
    ("values", "group", "corrected"),
    [([-64] * 64, 4, 0), ([-64] * 60 + [64] * 4, 4, 1), ([64] * 64, 2, 0), ([127, -128] * 32, 2, 0)],
)
def test_the_cheaper_way_is_taken(values: list[int], group: int, corrected: int) -> None:
    """-64 * -128 four times is 2^15, which a field holds; 64 * -128 four times is -2^15, which it does not."""
    f = fields(np.array([values], np.int8))
    assert (f.group, f.corrected) == (group, corrected)
