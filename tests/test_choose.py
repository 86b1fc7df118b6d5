"""The choice among variants: on made-up ways and costs, it is as good as trying all combinations."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import tiny_model

from rlx_edge.cgen.choose import choose, flash_of
from rlx_edge.cgen.costs import CoreCosts, KernelCost, costs_of
from rlx_edge.cgen.frontier import Point, Way, frontier
from rlx_edge.cgen.lower import candidates
from rlx_edge.cgen.options import Optimize, Options
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import predict
from rlx_edge.cgen.target import get_target
from rlx_edge.errors import EdgeError
from rlx_edge.ir.ops import Leaf

M4 = get_target("cortex-m4")
KERNELS = "abcdef"


def made_up_costs(code: list[int]) -> CoreCosts:
    """Kernels a, b ... of these code bytes; two of them share a library function."""
    kernels = {
        name: KernelCost(0.0, {}, size, ("shared",) if name in "ab" else (), 0, 0.0)
        for name, size in zip(KERNELS, code, strict=True)
    }
    figures = dict(step_instructions=0, model_bytes=32, step_bytes=0, call_bytes=0, view_bytes=0, run_stack=64)
    firmware = dict(start_up_flash=0, start_up_ram=0, link_flash=0, link_ram=0)
    return CoreCosts("made-up", kernels, {"shared": 100}, **figures, **firmware)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[Way]], CoreCosts]:
    costs = made_up_costs(draw(st.lists(st.integers(0, 2000), min_size=6, max_size=6)))
    ways = []
    for _ in range(draw(st.integers(1, 5))):
        names = draw(st.lists(st.sampled_from(KERNELS), min_size=1, max_size=3, unique=True))
        ways.append(
            [
                Way(i, draw(st.integers(1, 5000)), draw(st.integers(0, 3000)), frozenset({name}), 0, 0)
                for i, name in enumerate(names)
            ]
        )
    return ways, costs


def all_points(ways: list[list[Way]]) -> list[Point]:
    return [
        Point(
            sum(way.instructions for way in chosen),
            sum(way.own_bytes for way in chosen),
            frozenset().union(*(way.kernels for way in chosen)),
            tuple((node, way.index) for node, way in enumerate(chosen)),
        )
        for chosen in product(*ways)
    ]


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 8000))
def test_no_combination_is_better(problem: tuple[list[list[Way]], CoreCosts], room: int) -> None:
    ways, costs = problem
    found = [(p.instructions, flash_of(p, costs)) for p in frontier(ways, costs)]
    tried = [(p.instructions, flash_of(p, costs)) for p in all_points(ways)]
    assert set(found) <= set(tried), "each point is a combination, and costs what it says"
    assert min(f for _, f in found) == min(f for _, f in tried)
    assert min(found)[0] == min(tried)[0]
    assert min(i * f for i, f in found) == min(i * f for i, f in tried)
    budget = min(f for _, f in tried) + room
    assert min(i for i, f in found if f <= budget) == min(i for i, f in tried if f <= budget)


def test_a_function_that_another_group_links_is_not_paid_for_twice() -> None:
    costs = made_up_costs([0, 1, 50, 0, 0, 0])
    ways = [
        [Way(0, 1, 0, frozenset("a"), 0, 0)],
        [Way(0, 1, 0, frozenset("b"), 0, 0), Way(1, 1, 0, frozenset("c"), 0, 0)],
    ]
    assert [flash_of(point, costs) for point in frontier(ways, costs)] == [32 + 100 + 1]


def test_picks_are_what_a_point_costs() -> None:
    costs = made_up_costs([10, 20, 30, 40, 50, 60])
    ways = [
        [Way(0, 100, 10, frozenset("a"), 0, 0), Way(1, 50, 20, frozenset("b"), 0, 0)],
        [Way(0, 7, 1, frozenset("b"), 0, 0)],
    ]
    best = min(frontier(ways, costs), key=lambda p: p.instructions)
    assert dict(best.picks) == {0: 1, 1: 0}
    assert flash_of(best, costs) == 32 + 21 + 20 + 100, "b's code and its library function once"


def test_modes_keep_their_word() -> None:
    told = {mode: predict(make_plan(tiny_model(), M4, Options(mode))) for mode in Optimize}
    speed, balanced, size = (told[mode] for mode in (Optimize.SPEED, Optimize.BALANCED, Optimize.SIZE))
    assert speed is not None and balanced is not None and size is not None
    assert speed.instructions <= balanced.instructions and speed.instructions <= size.instructions
    assert size.flash_bytes <= balanced.flash_bytes and size.flash_bytes <= speed.flash_bytes
    products = [p.instructions * p.flash_bytes for p in (speed, balanced, size)]
    assert min(products) == products[1]


def test_variants_and_reasons_are_kept() -> None:
    graph = make_plan(tiny_model(), M4).graph
    for step in choose(graph, M4):
        found, reasons = candidates(graph, graph.nodes[step.node], M4.isas)
        assert step.variant in {candidate.variant for candidate in found}
        assert step.reasons == reasons
    assert [step.node for step in choose(graph, M4)] == [n.id for n in graph.nodes if not isinstance(n.op, Leaf)]


def test_scratch_is_bounded_where_it_can_be() -> None:
    graph = make_plan(tiny_model(), M4).graph
    for step in choose(graph, M4, max_scratch=0):
        found, _ = candidates(graph, graph.nodes[step.node], M4.isas)
        least = min(max((call.scratch for call in candidate.calls), default=0) for candidate in found)
        assert max((call.scratch for call in step.calls), default=0) == least


def test_code_for_any_core_is_chosen_as_for_a_typical_one() -> None:
    portable = get_target("portable")
    graph = make_plan(tiny_model(), portable).graph
    assert costs_of(portable) is None and predict(make_plan(tiny_model(), portable)) is None
    small = choose(graph, portable, Options(Optimize.SIZE))
    assert "add_table" not in {step.variant for step in small}, "tables cost more than the kernel's code"
    with pytest.raises(EdgeError, match="name a core with --target"):
        choose(graph, portable, Options(flash_budget=100_000))
