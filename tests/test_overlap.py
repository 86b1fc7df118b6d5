"""Outputs over dying inputs: the distance is exact, for the simulator and for the C kernels themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from cases import HostCases, encode_in_arena
from fast_graphs import graphs_for
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from models import ModelMaker
from op_graphs import OPS, draw_legal, random_inputs, seeds

from rlx_edge.cgen.lower import lower
from rlx_edge.cgen.memory import buffers_of
from rlx_edge.cgen.overlap import Presence, distance, life_of, may_coincide, trace_of
from rlx_edge.cgen.plan import Step
from rlx_edge.cgen.simulate_memory import Simulator, UnsafePlanError
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph
from rlx_edge.passes.freeze import freeze
from rlx_edge.reference import run_all

WORD = 4
"""Bytes; kernels may load words, so places are multiples of it."""
ROUNDS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


class Overlapped:
    """One step whose first input dies there: places of the two at a distance, everything else beside them."""

    def __init__(self, graph: Graph, step: Step) -> None:
        self.graph, self.step = graph, step
        self.sizes = {b.nodes[0]: b.bytes for b in buffers_of(graph, [step]) if b.nodes}
        self.dying = graph.inputs[0].id
        trace = trace_of([*step.calls], self.sizes, {node: node for node in self.sizes})
        dying, made = self.sizes[self.dying], self.sizes[step.node]
        lives = {
            self.dying: life_of(trace, self.dying, Presence(dying, True, False)),
            step.node: life_of(trace, step.node, Presence(made, False, True)),
        }
        self.output_low = distance(trace, step.node, self.dying, lives, made)
        self.output_high = distance(trace, self.dying, step.node, lives, dying)
        sizes = dying, made
        self.coincide = may_coincide(trace, self.dying, step.node, sizes)
        self.scratch = max((call.scratch for call in step.calls), default=0)

    def places(self, low: int, high: int, apart: int) -> tuple[dict[int, int], int, int]:
        """Offsets by node, the scratch memory's offset, the arena's bytes."""
        base = -(-max(0, -apart) // 16) * 16
        offsets = {low: base, high: base + apart}
        end = max(offsets[node] + self.sizes[node] for node in (low, high))
        for node in self.sizes:
            if node not in offsets:
                offsets[node], end = end, end + self.sizes[node]
        scratch = -(-end // 16) * 16
        return offsets, scratch, scratch + self.scratch + 16

    def simulate(self, low: int, high: int, apart: int) -> None:
        offsets, scratch, arena = self.places(low, high, apart)
        Simulator(self.graph, [self.step], offsets, arena, {0: scratch}).run()

    def directions(self) -> Iterator[tuple[int, int, int]]:
        assert (self.output_low is None) == (self.output_high is None)
        if self.output_low is not None and self.output_high is not None:
            yield self.step.node, self.dying, self.output_low
            yield self.dying, self.step.node, self.output_high

    def run(self, cases: HostCases, values: Mapping[str, Array], low: int, high: int, apart: int) -> bool:
        """Whether the C kernels make the right output at these places."""
        offsets, _, size = self.places(low, high, -(-apart // WORD) * WORD)
        arena = bytearray(np.random.default_rng(1).bytes(size))
        for node in self.graph.inputs:
            data = np.ascontiguousarray(values[node.name]).tobytes()
            arena[offsets[node.id] : offsets[node.id] + len(data)] = data
        for call in self.step.calls:
            arena = bytearray(cases.run(encode_in_arena(call, bytes(arena), offsets, call.first_row, call.rows)))
        right = np.ascontiguousarray(values[self.graph.nodes[self.step.node].name]).tobytes()
        return arena[offsets[self.step.node] :].startswith(right)


def check_exact(graph: Graph, step: Step, cases: HostCases, values: Mapping[str, Array]) -> int:
    """Safe at the distance, for the simulator and in C; unsafe one byte nearer. The overlaps that were found."""
    overlapped = Overlapped(graph, step)
    found = 0
    for low, high, apart in overlapped.directions():
        overlapped.simulate(low, high, apart)
        assert overlapped.run(cases, values, low, high, apart)
        if apart > -overlapped.sizes[high]:
            with pytest.raises(UnsafePlanError):
                overlapped.simulate(low, high, apart - 1)
        found += apart < overlapped.sizes[low]
    if overlapped.coincide:
        found += 1
        overlapped.simulate(overlapped.dying, step.node, 0)
        assert overlapped.run(cases, values, overlapped.dying, step.node, 0)
    return found


@pytest.mark.parametrize("op", sorted(set(OPS) - {"reshape"}))
def test_distance_of_portable_kernels(op: str, host_cases: HostCases) -> None:
    found = 0

    @ROUNDS
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        nonlocal found
        graph = draw_legal(data, op)
        (step,) = lower(graph)
        assume(step.calls)
        found += check_exact(graph, step, host_cases, run_all(graph, random_inputs(graph, data.draw(seeds))))

    check()
    assert found or op in ("transpose", "slice", "expand", "reverse"), "no output of this op ever lies over its input"


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
def test_distance_of_variants(variant: Variant, host_cases: HostCases) -> None:
    @ROUNDS
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = data.draw(graphs_for(variant.name))
        node = graph.output_nodes[0]
        calls = variant.lower(graph, node)
        assume(isinstance(node.op, variant.op) and not isinstance(calls, str))
        assert not isinstance(calls, str)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        check_exact(graph, Step(node.id, calls), host_cases, values)

    check()


def test_residual_add_takes_the_place_of_either_operand() -> None:
    maker = ModelMaker("add", 1)
    x = maker.input((1, 5, 5, 4))
    y = maker.input((1, 5, 5, 4), "y")
    graph = freeze(maker.builder.build([maker.add(x, y)]))
    (step,) = lower(graph)
    trace = trace_of(step.calls, {}, {0: 0, 1: 1, 2: 2})
    out = life_of(trace, 2, Presence(100, False, True))
    for operand in (x, y):
        for needed, apart in ((False, 0), (True, 100)):
            life = life_of(trace, operand, Presence(100, True, needed))
            assert distance(trace, 2, operand, {2: out, operand: life}, 100) == apart


def test_a_kernel_without_order_overlaps_nothing() -> None:
    maker = ModelMaker("conv", 1)
    x = maker.input((1, 5, 5, 4))
    graph = freeze(maker.builder.build([maker.conv(x, 4)]))
    (step,) = lower(graph)
    overlapped = Overlapped(graph, step)
    assert overlapped.output_low is not None and overlapped.output_low < 100
    calls = tuple(replace(call, kernel=replace(call.kernel, order=None)) for call in step.calls)
    overlapped = Overlapped(graph, replace(step, calls=calls))
    assert (overlapped.output_low, overlapped.output_high) == (100, 100)
