"""The order of steps that needs the least memory at its fullest moment.

Exact where few sets of steps can have run at any moment: by dynamic programming over these sets, of which there are few
unless many branches lie side by side. Otherwise the graph's own order is kept. The memory of a moment is the sum of the
bytes that live, less what the step's output can share with the operands that die there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.cgen.memory import Buffer, buffers_of, reads, shared_bytes, writes
from rlx_edge.cgen.overlap import Overlaps, Presence
from rlx_edge.cgen.plan import Step
from rlx_edge.ir import Graph

MOST_SETS = 3000
"""Of steps that have run, with the same number of steps, that the search keeps."""


@dataclass(frozen=True)
class Schedule:
    """Steps in order, and the bytes live at the fullest moment. `exact`: no other order needs less."""

    steps: tuple[Step, ...]
    peak: int
    exact: bool


def schedule(graph: Graph, steps: Sequence[Step], overlaps: Overlaps | None = None) -> Schedule:
    """Reorder steps for the lowest peak; the given order where none is better. Steps are given in a legal order."""
    moments = _Moments(graph, steps, overlaps or Overlaps(graph))
    given = moments.peak(range(len(steps)))
    best = _search(moments, given)
    if best is None:
        return Schedule(tuple(steps), given, given <= moments.bound())
    peak, order = best
    return Schedule(tuple(steps[i] for i in order), peak, True) if peak < given else Schedule(tuple(steps), given, True)


def _search(moments: _Moments, limit: int) -> tuple[int, list[int]] | None:
    """The best peak and its order; None when there are too many sets. Sets are bits of an int."""
    layer: dict[int, tuple[int, list[int]]] = {0: (0, [])}
    for _ in moments.steps:
        following: dict[int, tuple[int, list[int]]] = {}
        for done, (peak, order) in layer.items():
            for step in moments.ready(done):
                reached = max(peak, moments.bytes_during(step, done))
                then = done | 1 << step
                if reached <= limit and (then not in following or reached < following[then][0]):
                    following[then] = (reached, [*order, step])
        if len(following) > MOST_SETS:
            return None
        layer = following
    return next(iter(layer.values()))


class _Moments:
    """What lives while a step runs, given the set of steps that have run before."""

    def __init__(self, graph: Graph, steps: Sequence[Step], overlaps: Overlaps) -> None:
        self.steps = steps
        self.buffers: list[Buffer] = [b for b in buffers_of(graph, steps) if b.nodes]
        number = {node: i for i, buffer in enumerate(self.buffers) for node in buffer.nodes}
        operands = [
            [number[n] for n in (reads(step) if step.calls else graph.nodes[step.node].inputs)] for step in steps
        ]
        self.made = [[number[n] for n in writes(step)] for step in steps]
        self.makers = {b: step for step, made in enumerate(self.made) for b in made}
        names = {step.node: i for i, step in enumerate(steps)}
        self.needs = [
            sum({1 << names[n] for n in (*reads(step), *graph.nodes[step.node].inputs) if n in names}) for step in steps
        ]
        self.users = [sum(1 << s for s, used in enumerate(operands) if b in used) for b in range(len(self.buffers))]
        self.kept = {number[n] for n in graph.outputs}
        self.scratch = [max((call.scratch for call in step.calls), default=0) for step in steps]
        self.shared = [
            self._shared(step, used, made, overlaps)
            for step, used, made in zip(steps, operands, self.made, strict=True)
        ]

    def _shared(self, step: Step, used: Sequence[int], made: Sequence[int], overlaps: Overlaps) -> dict[int, int]:
        """By operand that dies here: the bytes that it can share with what the step makes."""
        if len(made) != 1:
            return {}
        found = {}
        out = self.buffers[made[0]]
        for operand in set(used) - set(made):
            dying = self.buffers[operand]
            ends = out.nodes[0], dying.nodes[0]
            presences = {ends[0]: Presence(out.bytes, False, True), ends[1]: Presence(dying.bytes, True, False)}
            sizes = out.bytes, dying.bytes
            overlap = overlaps.of(step)
            pair = overlap.distance(*ends, presences), overlap.distance(*ends[::-1], presences)
            found[operand] = shared_bytes(sizes, pair)
            if found[operand] < min(sizes) and overlap.may_coincide(*ends, sizes):
                found[operand] = min(sizes)
        return found

    def ready(self, done: int) -> list[int]:
        return [s for s in range(len(self.steps)) if not done >> s & 1 and self.needs[s] & ~done == 0]

    def bytes_during(self, step: int, done: int) -> int:
        """The bytes that live while a step runs."""
        later = ~(done | 1 << step)
        total = self.scratch[step] + sum(self.buffers[b].bytes for b in self.made[step])
        for b, buffer in enumerate(self.buffers):
            exists = b not in self.makers or done >> self.makers[b] & 1
            if exists and (b in self.kept or self.users[b] & ~done):
                dies = b not in self.kept and not self.users[b] & later
                total += buffer.bytes - (self.shared[step].get(b, 0) if dies else 0)
        return total

    def peak(self, order: Sequence[int]) -> int:
        done, peak = 0, 0
        for step in order:
            peak = max(peak, self.bytes_during(step, done))
            done |= 1 << step
        return peak

    def bound(self) -> int:
        """No order has a lower peak: each step by itself, with nothing else alive but its operands."""
        return max(
            (
                self.scratch[s]
                + sum(self.buffers[b].bytes for b in self.made[s])
                + sum(self.buffers[b].bytes - shared for b, shared in self.shared[s].items())
                for s in range(len(self.steps))
            ),
            default=0,
        )
