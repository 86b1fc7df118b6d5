"""Places in the arena: random plans are safe, planted faults are found, guard words stay as they are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from cases import SANITIZE
from guards import differing, owned, write_bundle
from models import ModelMaker, random_model, samples

from rlx_edge.cgen.arrange import guarded
from rlx_edge.cgen.memory import Layout, plan_memory
from rlx_edge.cgen.placement import Puzzle, arena_of, place
from rlx_edge.cgen.plan import Plan, Step
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.schedule import schedule
from rlx_edge.cgen.simulate_memory import Simulator, UnsafePlanError
from rlx_edge.cgen.target import TARGETS
from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Concat
from rlx_edge.reference import run_all

PORTABLE = TARGETS["portable"]
SEEDS = range(12)


def simulate(plan: Plan) -> None:
    offsets = plan.offsets
    Simulator(plan.graph, plan.steps, offsets, plan.arena_bytes, plan.scratch_offsets).run()


def chain(seed: int = 1) -> Graph:
    """A convolution over another, then a residual sum."""
    maker = ModelMaker("chain", seed)
    x = maker.input((1, 8, 8, 4))
    a = maker.conv(x, 4, name="a")
    b = maker.conv(a, 4, name="b")
    return maker.builder.build([maker.add(a, b, "sum")])


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_are_safe(seed: int) -> None:
    plan = make_plan(random_model(seed), PORTABLE)
    simulate(plan)
    simulate(guarded(plan))
    assert plan.arena_bound <= plan.arena_bytes <= guarded(plan).arena_bytes


def test_sum_takes_the_place_of_what_was_skipped() -> None:
    plan = make_plan(chain(), PORTABLE)
    at = {tensor.name: tensor.offset for tensor in plan.tensors}
    assert at["sum"] in (at["a"], at["b"])
    assert plan.arena_bytes < 3 * 256
    assert not plan.input_preserved


def _nearer(plan: Plan, layout: Layout) -> Layout:
    """The output of the second convolution a byte beside what it reads, as if that died there."""
    a, b, _ = (step.node for step in plan.steps)
    offsets = {**layout.offsets, b: layout.offsets[a] + (-1 if layout.offsets[b] < layout.offsets[a] else 1)}
    return replace(layout, offsets=offsets)


def _short_life(plan: Plan, layout: Layout) -> Layout:
    """The skipped tensor taken for dead while the second convolution runs."""
    a, b, _ = (step.node for step in plan.steps)
    return replace(layout, offsets={**layout.offsets, b: layout.offsets[a]})


def _outside(plan: Plan, layout: Layout) -> Layout:
    return replace(layout, arena_bytes=layout.arena_bytes - 16)


def _negative(plan: Plan, layout: Layout) -> Layout:
    lowest = min(layout.offsets, key=lambda node: layout.offsets[node])
    return replace(layout, offsets={**layout.offsets, lowest: -4})


@pytest.mark.parametrize("plant", [_nearer, _short_life, _outside, _negative])
def test_planted_faults_are_found(plant: Callable[[Plan, Layout], Layout]) -> None:
    plan = make_plan(chain(), PORTABLE)
    good = plan_memory(plan.graph, plan.steps)
    Simulator(plan.graph, plan.steps, good.offsets, good.arena_bytes, {}).run()
    bad = plant(plan, good)
    with pytest.raises(UnsafePlanError, match=r"step \d .* at \d|outside of the arena"):
        Simulator(plan.graph, plan.steps, bad.offsets, bad.arena_bytes, {}).run()


@pytest.mark.parametrize("victim", ["x", "a"])
def test_scratch_on_a_tensor_in_use_is_found(victim: str) -> None:
    """On what the step reads, or on what it writes."""
    plan = make_plan(chain(), PORTABLE)
    first, *others = plan.steps
    steps = (replace(first, calls=tuple(replace(call, scratch=64) for call in first.calls)), *others)
    layout = plan_memory(plan.graph, steps)
    Simulator(plan.graph, steps, layout.offsets, layout.arena_bytes, layout.scratch_offsets).run()
    (node,) = (n.id for n in plan.graph.nodes if n.name == victim)
    with pytest.raises(UnsafePlanError, match="scratch memory"):
        Simulator(plan.graph, steps, layout.offsets, layout.arena_bytes, {0: layout.offsets[node]}).run()


def test_no_sequence_of_placing_is_better_for_few_buffers() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        sizes = [int(s) * 16 for s in random.integers(1, 9, 6)]
        pairs = [(a, b) for a in range(6) for b in range(a) if random.random() < 0.6]
        apart = {(a, b): sizes[a] for pair in pairs for a, b in (pair, pair[::-1])}
        puzzle = Puzzle(sizes, apart, 0, {})
        best = min(_in_sequence(puzzle, sequence) for sequence in permutations(range(6)))
        assert arena_of(puzzle, place(puzzle)) == best


def _in_sequence(puzzle: Puzzle, sequence: tuple[int, ...]) -> int:
    """The arena when buffers are placed one after the other, each at the lowest multiple of 16 that is free."""
    at: dict[int, int] = {}
    for i in sequence:
        offset = 0
        while any(
            (i, k) in puzzle.apart and offset < at[k] + puzzle.sizes[k] and at[k] < offset + puzzle.sizes[i] for k in at
        ):
            offset += 16
        at[i] = offset
    return max(at[i] + puzzle.sizes[i] for i in at)


def _branches(count: int) -> Graph:
    """Wide branches that each end narrow, listed so that all wide tensors would live at the same time."""
    maker = ModelMaker("branches", 2)
    x = maker.input((1, 6, 6, 2))
    wide = [maker.conv(x, 16, name=f"wide{i}") for i in range(count)]
    quant = maker.quant()
    narrow = [maker.conv(w, 1, name=f"narrow{i}", out=quant) for i, w in enumerate(wide)]
    return maker.builder.build([maker.builder.add(Concat(3), narrow, "join", quant)])


def test_order_of_branches() -> None:
    plan = make_plan(_branches(4), PORTABLE)
    names = [plan.graph.nodes[step.node].name for step in plan.steps]
    assert names[:4] == ["wide0", "narrow0", "wide1", "narrow1"]
    assert plan.arena_bytes < 2 * 6 * 6 * 16
    simulate(plan)


def test_too_many_branches_keep_the_order_of_the_graph() -> None:
    graph = make_plan(_branches(14), PORTABLE).graph
    steps: list[Step] = list(make_plan(_branches(14), PORTABLE).steps)
    found = schedule(graph, steps)
    assert list(found.steps) == steps
    assert not found.exact


MAIN = """
#include "model/model.h"
#include <stdio.h>
#include <string.h>
#include <sanitizer/asan_interface.h>
enum { GUARD = 0xA5, SPANS = %(count)d };
static const unsigned spans[SPANS][2] = {%(spans)s}; /* all memory that somebody owns: first byte, end */
static model_arena_t arena;
int main(void)
{
    unsigned end = 0;
    memset(arena.bytes, GUARD, sizeof arena.bytes);
    for (unsigned i = 0; i <= SPANS; i++) {
        const unsigned first = i < SPANS ? spans[i][0] : MODEL_ARENA_BYTES;
        ASAN_POISON_MEMORY_REGION(arena.bytes + end, first - end);
        end = i < SPANS ? spans[i][1] : end;
    }
    for (unsigned i = 0; i < model_model.input_count; i++) {
        const rlx_tensor_t *t = &model_model.tensors[i];
        if (fread(arena.bytes + t->offset, 1, t->bytes, stdin) != t->bytes) return 2;
    }
    model_run(&arena);
    ASAN_UNPOISON_MEMORY_REGION(arena.bytes, sizeof arena.bytes);
    end = 0;
    for (unsigned i = 0; i <= SPANS; i++) {
        for (unsigned at = end; at < (i < SPANS ? spans[i][0] : MODEL_ARENA_BYTES); at++) {
            if (arena.bytes[at] != GUARD) return 3;
        }
        end = i < SPANS ? spans[i][1] : end;
    }
    fwrite(arena.bytes, 1, sizeof arena.bytes, stdout);
    return 0;
}
"""


def run_guarded(plan: Plan, folder: Path) -> None:
    """Every byte outside of tensors is forbidden to the run; every tensor must be right at its end."""
    plan = guarded(plan)
    graph = plan.graph
    spans = owned(plan)
    bundle = write_bundle(folder / "bundle", {"model": plan})
    text = ", ".join(f"{{{first}, {end}}}" for first, end in spans)
    (folder / "main.c").write_text(MAIN % {"count": len(spans), "spans": text})
    sources = [folder / "main.c", *(bundle / "model").glob("*.c"), *(bundle / "rlx").glob("*.c")]
    program = folder / "program"
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", *SANITIZE, f"-I{bundle}")
    subprocess.run(["gcc", *flags, *map(str, sources), "-o", str(program)], check=True)
    inputs = {name: array[0] for name, array in samples(graph, 1, seed=4).items()}
    data = b"".join(inputs[node.name].tobytes() for node in graph.inputs)
    arena = subprocess.run([program], input=data, stdout=subprocess.PIPE, check=True).stdout
    assert differing(plan, arena, run_all(graph, inputs)) == []


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_touched_outside_of_tensors(seed: int, tmp_path: Path) -> None:
    run_guarded(make_plan(random_model(seed), PORTABLE), tmp_path)


@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_twins_touch_nothing_outside_of_tensors(target: str, tmp_path: Path) -> None:
    """Fast kernels as they run on the host; on their core: tests/test_guards_device.py."""
    plan = make_plan(random_model(16), TARGETS[target])
    assert plan.scratch_offsets
    run_guarded(plan, tmp_path)
