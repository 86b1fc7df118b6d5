"""How axes become the loops of rlx_mean_s8: channels of an image are neighbors, which it takes four at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.cgen.lower_reductions import alternate


@pytest.mark.parametrize(
    ("shape", "axes", "loops"),
    [
        ((1, 25, 5, 64), (1, 2), (1, 125, 1, 1, 64)),
        ((2, 25, 5, 64), (2,), (50, 5, 1, 1, 64)),
        ((1, 64, 25, 5), (2, 3), (64, 125, 1, 1, 1)),
        ((2, 3, 4, 5), (1, 3), (2, 3, 4, 5, 1)),
        ((2, 3, 4, 5), (0, 2), (1, 2, 3, 4, 5)),
    ],
)
def test_what_is_kept_last_is_taken_together(
    shape: tuple[int, ...], axes: tuple[int, ...], loops: tuple[int, ...]
) -> None:
    assert alternate(shape, axes) == loops


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_the_loops_sum_what_the_axes_say(shape: list[int], data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    values = np.arange(np.prod(shape)).reshape(shape)
    assert np.array_equal(
        values.reshape(alternate(tuple(shape), axes)).sum(axis=(1, 3)).ravel(), values.sum(axis=axes).ravel()
    )
