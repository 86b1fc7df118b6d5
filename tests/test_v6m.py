"""cgen/variants/v6m.py: rescales for Armv6-M are the rule's, for every accumulator that there can be."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen.variants import v6m
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.ir import Array
from rlx_edge.reference.fixedpoint import scale_double_rounding


def random_channels(seed: int, channels: int = 16) -> Weighted:
    """Weights of all sizes, a large bias now and then; multipliers with ties, shifts 1 to 22."""
    rng = np.random.default_rng(seed)
    limit = int(rng.choice([2, 127]))
    rows = rng.integers(-limit, limit + 1, (channels, int(rng.integers(1, 40)))).astype(np.int8)
    bias = rng.integers(-2000, 2000, channels) * rng.choice([1, 1, 1, 2000], channels)
    multipliers = rng.integers(1 << 30, 1 << 31, channels)
    multipliers[:3] = 1 << 30
    multipliers[3] = 0
    shifts = rng.choice([*range(1, 14), 18, 22], channels)
    bound = 128 * np.abs(rows.astype(np.int64)).sum(axis=1) + np.abs(bias)
    return Weighted(rows, bias, bound, multipliers, shifts, int(rng.integers(-128, 128)))


def rescaled(acc: Array, words: Array) -> Array:
    """What rlx_v6m_rescale computes, with the ranges that its assembly needs."""
    k, low, high, shift = map(int, words)
    if shift >= v6m.SHORT_FLAG:
        product = acc * low
        total = (product >> v6m.LOW_BITS) + acc * high - ((acc & 0xFFFFFFFF) >> 32 - v6m.UNIT_BITS) + k
        assert (np.abs(product) < 1 << 31).all() and (np.abs(total) < 1 << 31).all()
    else:
        upper, lower = acc >> 16, acc & 0xFFFF
        inner = (lower * low >> 16) + (1 << 14) - (1 << 30) + lower * high + upper * low
        assert (np.abs(inner) < 1 << 31).all()
        total = (inner >> 15) + (upper >> 31) + 2 * upper * high + k
        total = (total + (1 << 31)) % (1 << 32) - (1 << 31)
    return np.clip(total >> shift % v6m.SHORT_FLAG, -128, 127)


def test_rescales_are_exact() -> None:
    short = total = 0
    for seed in range(30):
        source = random_channels(seed)
        found = v6m.channels(source)
        made = v6m.rescales(found)
        if isinstance(made, str):
            assert "accumulator" in made or "int32" in made
            continue
        for c, words in enumerate(made.words):
            first, last = (int(acc[c]) for acc in v6m.accumulators(found.weighted))
            acc = np.unique(np.linspace(first, last, 4001).astype(np.int64))
            expected = scale_double_rounding(acc, source.multipliers[c], -source.shifts[c]) + source.out_zp
            wanted = np.full(len(acc), found.codes[c]) if found.fixed[c] else np.clip(expected, -128, 127)
            got = rescaled(acc - found.weighted.bias[c] + made.bias[c], words)
            assert (got == wanted).all(), (seed, c)
        short += len(made.words) - made.long
        total += len(made.words)
    assert total > 250 and short > 0.8 * total


def test_code_starts_are_where_codes_begin() -> None:
    w = random_channels(7)
    shifts = np.minimum(w.shifts, 12)
    starts = v6m.code_starts(np.maximum(w.multipliers, 1), shifts, w.out_zp)
    for c in range(len(w.rows)):
        q = np.arange(-127, 128)
        at, before = (
            scale_double_rounding(starts[c] - i, max(1, int(w.multipliers[c])), -shifts[c]) + w.out_zp for i in (0, 1)
        )
        inside = np.abs(starts[c]) < 1 << 30
        assert (at[inside] >= q[inside]).all() and (before[inside] < q[inside]).all()


def test_fixed_channels_give_their_code() -> None:
    source = random_channels(3)
    found = v6m.channels(source)
    assert found.fixed[3] and (found.codes[3] == source.out_zp)
    assert not found.weighted.rows[found.fixed].any()


def test_groups_fit() -> None:
    assert v6m.groups_fit(np.array([127, -127], np.int8))
    assert not v6m.groups_fit(np.array([-128, -128], np.int8))
    assert v6m.groups_fit(np.array([64, 64, 64, 64], np.int8))
    assert not v6m.groups_fit(np.array([-65, -64, -64, -64], np.int8))
