"""The C twins of fast variants on random graphs that they take: equal to the reference, sanitized, for any rows."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from cases import HostCases, encode
from fast_graphs import KINDS, extreme_inputs, graphs_for, in_bands, joined, shifted_left
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from op_graphs import random_inputs, seeds

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.target import TARGETS, Isa
from rlx_edge.cgen.variants.proofs import Weighted, limit_joined
from rlx_edge.cgen.variants.table import ALL_KERNELS, VARIANTS
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.cgen.variants.weights_mve import BYTES, blocks, limit_product
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Graph
from rlx_edge.reference import run_all

LONG = os.environ.get("RLX_EDGE_TESTS") == "long"
EXAMPLES = 2000 if LONG else 24
LIMIT_EXAMPLES = 6000 if LONG else 120
"""So many are needed to meet a limit exactly."""
ids = [variant.name for variant in VARIANTS]


def taken(graph: Graph, variant: Variant) -> bool:
    """Whether the graph is legal at all and this variant computes it."""
    try:
        legalize(graph, TARGETS["portable"])
    except UnsupportedError:
        return False
    node = graph.output_nodes[0]
    return isinstance(node.op, variant.op) and not isinstance(variant.lower(graph, node), str)


@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_twin_equals_reference(variant: Variant, host_cases: HostCases) -> None:
    ran = 0

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        nonlocal ran
        graph = data.draw(graphs_for(variant.name))
        assume(taken(graph, variant))
        node = graph.output_nodes[0]
        calls = variant.lower(graph, node)
        assert not isinstance(calls, str)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        for call in calls:
            assert call.kernel in variant.kernels and call.proof and call.work(1)
            y0 = data.draw(st.integers(0, call.rows))
            y1 = data.draw(st.one_of(st.integers(y0, call.rows), st.just(call.rows)))
            case = encode(graph, in_bands(data.draw, call), values, y0, y1)
            assert host_cases.run(case.data) == case.expected
            if call.kernel.in_place and isinstance(call.inputs[0].base, int):
                case = encode(graph, call, values, y0, y1, in_place=True)
                assert host_cases.run(case.data) == case.expected
        ran += 1

    check()
    assert ran >= EXAMPLES // 3, f"only {ran} of {EXAMPLES} graphs were right for {variant.name}"


JOINED = [
    variant for variant in VARIANTS if variant.name in ("conv_dsp_joined", "dense_dsp_joined", "dense_dsp_one_scale")
]


def test_joined_sums_at_their_limit(host_cases: HostCases) -> None:
    """Accumulators of 2^23 - 1 are taken and right; 2^23 is refused, and so is a weight of -128 that does not fit."""
    largest: set[int] = set()
    refused = 0

    @settings(max_examples=LIMIT_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(graph=joined(), seed=seeds)
    def check(graph: Graph, seed: int) -> None:
        nonlocal refused
        values = run_all(graph, extreme_inputs(graph, seed))
        for variant in JOINED:
            node = graph.output_nodes[0]
            if not isinstance(node.op, variant.op):
                continue
            calls = variant.lower(graph, node)
            refused += isinstance(calls, str) and "2^23" in calls
            for call in () if isinstance(calls, str) else calls:
                largest.add(int(call.proof.split()[2]))
                case = encode(graph, call, values, 0, call.rows)
                assert host_cases.run(case.data) == case.expected

    check()
    assert max(largest) == 2**23 - 1 and refused


def test_joined_weights_that_do_not_fit() -> None:
    """256 * -128 + -1 is no int16; of a pair only the second channel counts, and the last may be its own neighbour."""
    weights = np.array([[0, -128], [-128, 1], [1, 1]], np.int8)
    plain = dict.fromkeys(("bias", "multipliers", "shifts"), np.zeros(3, np.int64))
    w = Weighted(rows=weights, bound=np.full(3, 1 << 20), out_zp=0, **plain)
    assert limit_joined(w, np.array([[0, 1], [2, 2]])) is None
    assert "channel 0 has the weight -128" in str(limit_joined(w, np.array([[1, 2], [0, 0]])))


WINDOWED = [variant for variant in VARIANTS if not variant.name.startswith(("dense", "add"))]


@pytest.mark.parametrize("variant", WINDOWED, ids=lambda v: v.name)
def test_twin_reads_a_ring_of_rows(variant: Variant, host_cases: HostCases) -> None:
    """The input may hold only the rows that the output rows need, in a ring."""

    @settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = data.draw(graphs_for(variant.name))
        assume(taken(graph, variant))
        calls = variant.lower(graph, graph.output_nodes[0])
        assert not isinstance(calls, str)
        call, p = calls[-1], calls[-1].params
        assume("in_h" in p)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        y0 = call.rows - 1
        first = max(0, y0 * p["stride_h"] - p["pad_top"])
        ring = max(1, min(p["in_h"] - first, p["in_h"]), min(p["k_h"], p["in_h"]))
        case = encode(graph, in_bands(data.draw, call), values, y0, call.rows, ring=ring)
        assert host_cases.run(case.data) == case.expected

    check()


def test_joined_weights_of_few_bits() -> None:
    """MVE: the lowest weight does not fit in a byte with others, nor an accumulator of 2^26 or 2^24 in joined sums."""
    plain = dict.fromkeys(("bias", "multipliers", "shifts"), np.zeros(4, np.int64))
    for bits, limit in ((4, 1 << 26), (2, 1 << 24)):
        largest = (1 << (bits - 1)) - 1
        rows = np.repeat(np.array([[largest], [-largest], [1], [-1]], np.int8), BYTES, axis=1)
        w = Weighted(rows=rows, bound=np.full(4, limit - 1), out_zp=0, **plain)
        assert limit_product(w, bits, 0) is None
        assert blocks(rows, bits).shape == (1, 4 * bits // 8, BYTES)
        lowest = replace(w, rows=np.minimum(rows, -largest - 1))
        assert f"it has the weight {-largest - 1}" in str(limit_product(lowest, bits, 0))
        assert str(limit) in str(limit_product(replace(w, bound=w.bound + 1), bits, 0))
        assert limit_product(lowest, 8, 0) is None
        assert ("shifts" in str(limit_product(w, bits, -1))) == (bits != 4)


def test_names_say_what_they_are() -> None:
    """conv_dsp is a convolution for DSP; a first word is a strategy of fast_graphs. add_table runs everywhere."""
    for variant in VARIANTS:
        kind, *rest = variant.name.split("_")
        assert kind in KINDS
        assert variant.isa.value in rest or (variant.isa is Isa.PORTABLE and kind == "add")
    assert len(ALL_KERNELS) == len({kernel.name for kernel in ALL_KERNELS})


SHIFTED_LEFT = {
    **{"conv_mve_w4": False, "dense_mve_w4": False, "dense_mve": True, "depthwise_mve_w4": True},
    **{"conv_dsp_w4": False, "dense_dsp_w4": False, "depthwise_dsp_w4": False, "depthwise_v7m_w4": False},
}
"""Variants, and whether they need a bound at the zero point where channels do not shift to the right."""


@pytest.mark.parametrize("name", SHIFTED_LEFT)
def test_shifts_to_the_left_are_multiplied_into_weights(name: str, host_cases: HostCases) -> None:
    (variant,) = (variant for variant in VARIANTS if variant.name == name)
    shifts: set[int] = set()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(graph=shifted_left(name.split("_")[0], SHIFTED_LEFT[name]), seed=seeds)
    def check(graph: Graph, seed: int) -> None:
        assume(taken(graph, variant))
        node = graph.output_nodes[0]
        values = run_all(graph, random_inputs(graph, seed))
        for call in variant.lower(graph, node):
            case = encode(graph, call, values, 0, call.rows)
            assert host_cases.run(case.data) == case.expected
        shifts.update(node.op.frozen.shifts)

    check()
    assert max(shifts) > 0
