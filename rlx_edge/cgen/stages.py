"""Which steps to run as depth-first stages, so that the arena fits a budget at the least cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rlx_edge.cgen.memory import Buffer, Layout, apart_of, buffers_of, plan_memory, step_bounds
from rlx_edge.cgen.overlap import Overlaps
from rlx_edge.cgen.plan import Call, Step
from rlx_edge.cgen.stream import Layer, Stage, layers_of, make_stage
from rlx_edge.ir import Graph

ATTEMPTS = 8
"""Plans that are placed, at most, before the best is taken."""
CALL_COST = 300.0
"""Instructions that a call costs on top, roughly, where nothing else is known."""
Price = Callable[[Call], float]
"""Instructions of a call."""
REACH = 4
"""How many steps before the first and after the last that need too much memory a stage may take in."""


@dataclass(frozen=True)
class Segment:
    """The steps [first, end): one as it is, or several as a stage. need: bytes of memory at least; cost: instructions
    that streaming costs."""

    first: int
    end: int
    need: int
    cost: int


@dataclass(frozen=True, eq=False)
class Staged:
    """Steps, cut into segments that each run as one step, and their places."""

    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    layout: Layout


class Stager:
    """Makes steps of segments and places them; keeps what plans of one graph have in common."""

    def __init__(self, graph: Graph, overlaps: Overlaps, price: Price | None = None) -> None:
        self.graph, self.overlaps = graph, overlaps
        self._price = price or (lambda call: CALL_COST)
        self._prices: dict[Step, float] = {}
        self._layers: dict[Step, tuple[Layer, ...] | None] = {}
        self._made: dict[tuple[Step, ...], Step] = {}

    def layers(self, step: Step) -> tuple[Layer, ...] | None:
        """As `layers_of`."""
        if step not in self._layers:
            self._layers[step] = layers_of(self.graph, step)
        return self._layers[step]

    def by_rows(self, step: Step) -> float:
        """Instructions of a step in a stage: a call a row."""
        if step not in self._prices:
            calls = [layer.call for layer in self.layers(step) or ()]
            rows = [replace(call, first_row=y, rows=y + 1) for call in calls for y in range(call.rows)]
            self._prices[step] = sum(map(self._price, rows))
        return self._prices[step]

    def extra(self, step: Step) -> float:
        """Instructions that a stage costs on top."""
        return self.by_rows(step) - sum(map(self._price, step.calls))

    def stage(self, steps: Sequence[Step], dying: dict[int, int]) -> Stage | None:
        """As `make_stage`, of the layers of steps."""
        return make_stage([layer for step in steps for layer in self.layers(step) or ()], dying)

    def staged(self, steps: Sequence[Step], segments: Sequence[Segment]) -> Staged:
        """The plan of these segments."""
        made = []
        for segment in segments:
            part = tuple(steps[segment.first : segment.end])
            if part not in self._made:
                stage = self.stage(part, {}) if len(part) > 1 else None
                self._made[part] = stage.step() if stage else part[0]
            made.append(self._made[part])
        return Staged(tuple(segments), tuple(made), plan_memory(self.graph, made, self.overlaps))

    def unstaged(self, steps: Sequence[Step]) -> Staged:
        """The plan without stages."""
        return self.staged(steps, [Segment(i, i + 1, 0, 0) for i in range(len(steps))])

    def fit(self, steps: Sequence[Step], budget: int) -> Staged:
        """The plan within the budget that streams least, or the smallest that is found for any budget."""
        found = self._fit(steps, budget)
        if 0 < budget < found.layout.arena_bytes:
            return min(found, self._fit(steps, 0), key=lambda staged: staged.layout.arena_bytes)
        return found

    def _fit(self, steps: Sequence[Step], budget: int) -> Staged:
        best = self.unstaged(steps)
        if best.layout.arena_bytes <= budget:
            return best
        search = _Search(self, steps, budget)
        limit = max(budget, search.least)
        tried: set[tuple[Segment, ...]] = set()
        for _ in range(ATTEMPTS):
            segments = search.cheapest(limit)
            if segments not in tried:
                tried.add(segments)
                found = self.staged(steps, segments)
                best = min(best, found, key=lambda staged: staged.layout.arena_bytes)
            if best.layout.arena_bytes <= budget:
                break
            # Places take more than what lives at a time: ask for less, or where there is no less, for another plan.
            limit = max(search.least, limit - max(64, limit // 64)) if limit > search.least else search.above(limit)
        return best


class _Search:
    """Segments of a list of steps, and the cheapest way to cover it with them."""

    def __init__(self, stager: Stager, steps: Sequence[Step], budget: int) -> None:
        self.stager, self.steps = stager, steps
        self.buffers: list[Buffer] = buffers_of(stager.graph, steps)
        bounds = step_bounds(self.buffers, apart_of(steps, self.buffers, stager.overlaps), len(steps))
        plain = [Segment(i, i + 1, bounds[i + 1], 0) for i in range(len(steps))]
        self.streams = [stager.layers(step) is not None for step in steps]
        # What no streaming makes less: the ends, and the steps whose rows cannot come one by one.
        least = max(budget, bounds[0], bounds[-1], *(s.need for s in plain if not self.streams[s.first]))
        heavy = [segment.first for segment in plain if segment.need > least]
        self.segments = [*plain, *self._streamed(heavy)]
        self.least = max(segment.need for segment in self._cover(lambda segment: (segment.need, 0)))

    def _streamed(self, heavy: Sequence[int]) -> Iterator[Segment]:
        """Stages with some step that needs much memory."""
        if not heavy:
            return
        for first in range(max(0, heavy[0] - REACH), heavy[-1] + 1):
            for end in range(first + 2, min(len(self.steps), heavy[-1] + REACH) + 1):
                if not all(self.streams[first:end]):
                    break
                if any(first <= step < end for step in heavy) and self._closed(first, end):
                    stage = self.stager.stage(self.steps[first:end], self._dying(first, end))
                    if stage is not None:
                        cost = round(sum(map(self.stager.extra, self.steps[first:end])))
                        yield Segment(first, end, stage.peak + self._through(first, end), cost)

    def _closed(self, first: int, end: int) -> bool:
        """Whether all tensors that the steps make, but the last, are used by these steps only."""
        inner = [b for b in self.buffers if b.nodes and first <= b.first < end - 1]
        return all(b.last < end and len(b.nodes) == 1 for b in inner)

    def _dying(self, first: int, end: int) -> dict[int, int]:
        return {b.nodes[-1]: b.bytes for b in self.buffers if b.nodes and b.first < first <= b.last < end}

    def _through(self, first: int, end: int) -> int:
        return sum(b.bytes for b in self.buffers if b.first < first and b.last >= end)

    def above(self, limit: int) -> int:
        """The next need greater than a limit, of any segment; a looser limit gives another plan."""
        return min((s.need for s in self.segments if s.need > limit), default=limit)

    def cheapest(self, limit: int) -> tuple[Segment, ...]:
        """The cover of segments within the limit that costs least."""
        return self._cover(lambda segment: (max(0, segment.need - limit), segment.cost))

    def _cover(self, price: Callable[[Segment], tuple[int, int]]) -> tuple[Segment, ...]:
        """The cover with the least greatest first price, of these the one with the least sum of second prices."""
        best: list[tuple[tuple[int, int], tuple[Segment, ...]]] = [((0, 0), ())]
        by_end: dict[int, list[Segment]] = {}
        for segment in self.segments:
            by_end.setdefault(segment.end, []).append(segment)
        for end in range(1, len(self.steps) + 1):
            found = []
            for segment in by_end[end]:
                (worst, total), path = best[segment.first]
                over, cost = price(segment)
                found.append(((max(worst, over), total + cost), (*path, segment)))
            best.append(min(found, key=lambda item: item[0]))
        return best[-1][1]
