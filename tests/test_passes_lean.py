"""`lean`: every output keeps its bits, every tensor that stays holds what it held, and each pass finds its work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lean_graphs import lean_graph
from models import random_model, samples

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.target import TARGETS
from rlx_edge.errors import ModelError
from rlx_edge.formats.rlx import load_rlx, rlx_bytes
from rlx_edge.ir import Array, Channels, Graph, Requant, verify
from rlx_edge.passes.code_ranges import code_ranges
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import clean, lean
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.reference import run_all

RULES = [Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8, Requant.ONNX]


def extremes(graph: Graph, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {node.name: rng.choice([-128, 127], node.type.shape).astype(np.int8) for node in graph.inputs}


def check_same(before: Graph, after: Graph, seed: int = 0) -> None:
    """Outputs are the same, and so is each channel that is left of each tensor that is left."""
    assert [(n.name, n.type) for n in after.output_nodes] == [(n.name, n.type) for n in before.output_nodes]
    drawn = samples(before, 2, seed)
    for inputs in (*({name: x[i] for name, x in drawn.items()} for i in range(2)), extremes(before, seed)):
        expected, found = run_all(before, inputs), run_all(after, inputs)
        for node in (node for node in after.nodes if node.name in found and node.name in expected):
            wanted = expected[node.name]
            kept = wanted if node.channels is None else wanted[..., list(node.channels.kept)]
            np.testing.assert_array_equal(found[node.name], kept, err_msg=node.name)


def lowered(graph: Graph) -> Graph:
    return freeze(clean(to_nhwc(graph)))


@given(seed=st.integers(0, 1 << 20), rule=st.sampled_from(RULES))
def test_random_graphs_keep_their_bits(seed: int, rule: Requant) -> None:
    """Whether read again or not: a bundle holds the lean graph, and is planned from it when it is opened."""
    before = lowered(lean_graph(seed, rule))
    legalize(before, TARGETS["portable"])
    after = lean(before)
    check_same(before, after, seed)
    legalize(after, TARGETS["portable"])
    assert sum(map(after.macs, after.nodes)) <= sum(map(before.macs, before.nodes))
    assert lean(after) is after
    again = lowered(load_rlx(rlx_bytes(after)))
    assert again.nodes == after.nodes and lean(again) is again


@given(seed=st.integers(0, 1 << 20), rule=st.sampled_from(RULES))
def test_codes_lie_within_their_ranges(seed: int, rule: Requant) -> None:
    graph = lowered(lean_graph(seed, rule))
    ranges = code_ranges(graph)
    for inputs in (extremes(graph, seed), {name: x[0] for name, x in samples(graph, 1, seed).items()}):
        values = run_all(graph, inputs)
        for node in (graph.nodes[i] for i in ranges if graph.nodes[i].name in values):
            codes = ranges[node.id]
            assert (codes.low <= values[node.name]).all() and (values[node.name] <= codes.high).all(), node.name


@given(seed=st.integers(0, 1 << 20))
@settings(max_examples=30)
def test_models_with_batches_and_several_outputs_keep_their_bits(seed: int) -> None:
    before = lowered(random_model(seed))
    check_same(before, lean(before))


def test_a_channel_map_that_does_not_fit_is_refused() -> None:
    graph = lowered(random_model(1))
    for kept in ((0, 0), (3, 1), (0, 9)):
        nodes = tuple(replace(node, channels=Channels(kept, 8)) for node in graph.nodes)
        with pytest.raises(ModelError, match="channels kept of 8"):
            verify(replace(graph, nodes=nodes))
