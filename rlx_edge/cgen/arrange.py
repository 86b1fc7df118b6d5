"""From steps in any legal order to steps in the order that runs, with places in the arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rlx_edge.cgen.memory import Layout, plan_memory, scratch_bytes
from rlx_edge.cgen.overlap import Overlaps
from rlx_edge.cgen.plan import Plan, Step
from rlx_edge.cgen.schedule import schedule
from rlx_edge.cgen.stages import Price, Staged, Stager
from rlx_edge.ir import Graph


def arrange(
    graph: Graph,
    steps: Sequence[Step],
    ram_budget: int | None = None,
    frugal: Callable[[], Sequence[Step]] = tuple,
    price: Price | None = None,
    allowed: Callable[[Sequence[Step]], bool] = lambda steps: True,
) -> tuple[tuple[Step, ...], Layout]:
    """Order steps for the lowest peak and place their tensors.

    Where the arena is greater than the budget, layers run row by row in depth-first stages until it is not, or is the
    smallest that was found. A budget of 0 asks for that. frugal: gives other ways to compute the same nodes, which need
    less scratch memory; as many are taken as the budget asks for, where the mixture is allowed. price: instructions of
    a call, to know what stages cost.
    """
    overlaps = Overlaps(graph)
    ordered = schedule(graph, steps, overlaps).steps
    layout = plan_memory(graph, ordered, overlaps)
    if ram_budget is None or layout.arena_bytes <= ram_budget:
        return ordered, layout
    stager = Stager(graph, overlaps, price)
    best = stager.fit(ordered, ram_budget)
    if best.layout.arena_bytes <= ram_budget or not any(map(scratch_bytes, ordered)):
        return best.steps, best.layout
    others = {step.node: step for step in frugal()}
    if others:
        small = [others.get(step.node, step) for step in ordered]
        smaller = stager.fit(small, ram_budget)
        if smaller.layout.arena_bytes < best.layout.arena_bytes:
            limit = max(ram_budget, smaller.layout.arena_bytes)
            best = _faster(stager, smaller, ordered, small, limit, allowed)
    return best.steps, best.layout


def _faster(
    stager: Stager,
    staged: Staged,
    fast: Sequence[Step],
    frugal: Sequence[Step],
    budget: int,
    allowed: Callable[[Sequence[Step]], bool],
) -> Staged:
    """The same stages with as many of the fast steps as the budget bears: first those in stages, up to the largest size
    of scratch memory that fits, then all others, or where these are too many those of each half, and so on."""
    chosen = list(frugal)

    def attempt(taken: Iterable[int]) -> bool:
        nonlocal chosen, staged
        wanted = set(taken)
        steps = [fast[i] if i in wanted else step for i, step in enumerate(chosen)]
        found = stager.staged(steps, staged.segments)
        if found.layout.arena_bytes > budget or not allowed(found.steps):
            return False
        chosen, staged = steps, found
        return True

    inside = {i for s in staged.segments if s.end > s.first + 1 for i in range(s.first, s.end)}
    better = [i for i in inside if stager.by_rows(fast[i]) < stager.by_rows(frugal[i])]
    sizes = sorted({scratch_bytes(fast[i]) for i in better})
    fitting, too_large = -1, len(sizes)
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if attempt(i for i in better if scratch_bytes(fast[i]) <= sizes[middle]):
            fitting = middle
        else:
            too_large = middle
    parts = [[i for i in range(len(fast)) if i not in inside and fast[i] is not frugal[i]]]
    while parts:
        part = parts.pop(0)
        if part and not attempt(part) and len(part) > 1:
            middle = len(part) // 2
            parts += [part[:middle], part[middle:]]
    return staged


def guarded(plan: Plan, guard: int = 16) -> Plan:
    """The same steps with memory of its own for every tensor, line buffer and scratch memory, and `guard` bytes of
    nobody's before and after each: for builds that show whether a kernel goes outside of its rows."""
    layout = plan_memory(plan.graph, plan.steps, overlap=False, guard=guard)
    return replace(
        plan,
        tensors=tuple(replace(tensor, offset=layout.offsets[tensor.node]) for tensor in plan.tensors),
        arena_bytes=layout.arena_bytes,
        scratch_offsets=layout.scratch_offsets,
        line_offsets={node: layout.offsets[node] for node in plan.line_offsets},
        arena_bound=layout.bound,
        input_preserved=layout.input_preserved,
    )
