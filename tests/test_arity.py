"""Operand counts and the text of attributes, by the cases that the vocabulary's file pins."""

from __future__ import annotations

import pytest

from rlx_edge.ir.ops.arity import Arity, at_least, exact
from rlx_edge.ir.ops.rust_text import debug, display


@pytest.mark.parametrize(
    ("arity", "accepted", "refused", "text"),
    [
        (exact(2), (2,), (1, 3), "2"),
        (Arity(0, 1), (0, 1), (2,), "0 to 1"),
        (at_least(1), (1, 64), (0,), "at least 1"),
        (at_least(0), (0, 64), (), "at least 0"),
    ],
)
def test_arities(arity: Arity, accepted: tuple[int, ...], refused: tuple[int, ...], text: str) -> None:
    assert all(map(arity.accepts, accepted))
    assert not any(map(arity.accepts, refused))
    assert str(arity) == text


@pytest.mark.parametrize(
    ("value", "displayed", "debugged"),
    [
        (1.0, "1", "1.0"),
        (1e-5, "0.00001", "1e-5"),
        (1e-4, "0.0001", "0.0001"),
        (0.1, "0.1", "0.1"),
        (1e20, "100000000000000000000", "1e20"),
        (float("inf"), "inf", "inf"),
        (float("nan"), "NaN", "NaN"),
        (-0.0, "-0", "-0.0"),
        (True, "true", "true"),
        (3, "3", "3"),
        ("a", "a", '"a"'),
        ((1, (2, 3)), "(1, (2, 3))", "[1, [2, 3]]"),
        (None, "None", "None"),
    ],
)
def test_values_as_rust_formats_them(value: object, displayed: str, debugged: str) -> None:
    assert (display(value), debug(value)) == (displayed, debugged)
