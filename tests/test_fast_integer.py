"""The fast int8 engine gives the reference's bits, or leaves a layer to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import ModelMaker, random_model, samples

from rlx_edge.ir import Array, Graph
from rlx_edge.ir.ops import QMatMul
from rlx_edge.reference import fast_integer
from rlx_edge.reference.run import run_all


def assert_same(graph: Graph, inputs: dict[str, Array]) -> None:
    expected, found = run_all(graph, inputs), fast_integer.run_all(graph, inputs)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == values.dtype


@given(st.integers(0, 1 << 20))
def test_random_models(seed: int) -> None:
    graph = random_model(seed)
    assert_same(graph, {name: values[0] for name, values in samples(graph, 1, seed).items()})


@pytest.mark.parametrize("taps", [64, 519, 4000])
@pytest.mark.parametrize("extreme", [False, True])
def test_sums_too_large_for_float32_are_left_to_the_reference(taps: int, extreme: bool) -> None:
    """With all weights at 127 and x at the far end, sums reach 2^24 at 518 terms and are odd above."""
    maker = ModelMaker("wide", taps)
    y = maker.dense(maker.input((1, taps)), 3)
    graph = maker.builder.build([y])
    x = samples(graph, 1, taps)["x"][0]
    if extreme:
        params = {name: np.full_like(v, 127) if v.dtype == np.int8 else v for name, v in graph.params.items()}
        graph, x = replace(graph, params=params), np.full_like(x, -128)
        x[0, ::2] = 127
    assert any(isinstance(node.op, QMatMul) for node in graph.nodes)
    assert_same(graph, {"x": x})
