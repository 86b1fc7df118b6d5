"""How near to each other two buffers may lie that live in the same step, computed from the order of its accesses.

A step's trace is the orders of its calls, one after the other, on the step's buffers. Buffer `low` may begin `distance`
bytes (or any more) before buffer `high` when then no write of one falls on a byte of the other that is still needed:

    place(high) - place(low) >= distance(low, high)

For an output below an input that dies in the step this is the largest, over all writes, of the write's end minus the
first byte of the input that is read later. It may be negative: the output may then even begin above the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.order import OUTPUT, Accesses, events
from rlx_edge.cgen.plan import Call, Step
from rlx_edge.ir import Array, Graph
from rlx_edge.ir.ops import Reshape

NEVER = 1 << 60


@dataclass(frozen=True, eq=False)
class Trace:
    """Events in the order of time: on which buffer, write or read, bytes [first, end) of it. int64 and bool [n]."""

    buffers: Array
    writes: Array
    firsts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.buffers)


@dataclass(frozen=True)
class Presence:
    """A buffer of `bytes` in a step. `before`: it holds something from before the step. `after`: what it holds at the
    step's end is needed then. `line`: a line buffer, of which neither is true."""

    bytes: int
    before: bool
    after: bool
    line: bool = False


def call_accesses(call: Call, sizes: Mapping[int, int]) -> Accesses:
    """A call's order. A kernel without one is taken to write all of its rows, then to read all of its operands.

    sizes: bytes of the tensors, by node id.
    """
    if call.kernel.order is not None:
        return call.kernel.order(call)
    items = [(OUTPUT, call.first_row * call.output.pitch, call.rows * call.output.pitch)]
    for k, view in enumerate(call.inputs):
        if isinstance(view.base, int):
            items.append((k, 0, view.ring * view.pitch or sizes[view.base] - view.offset))
    return events(items)


def trace_of(calls: Sequence[Call], sizes: Mapping[int, int], buffer_of: Mapping[int, int]) -> Trace:
    """The accesses of calls, one call after the other. buffer_of: the buffer that holds a tensor, by node id."""
    parts = [_call_trace(call, call_accesses(call, sizes), buffer_of) for call in calls]
    if not parts:
        none = np.zeros(0, np.int64)
        return Trace(none, none.astype(bool), none, none)
    fields = ("buffers", "writes", "firsts", "ends")
    return Trace(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


def _call_trace(call: Call, made: Accesses, buffer_of: Mapping[int, int]) -> Trace:
    views = (*call.inputs, call.output)  # OUTPUT, -1, indexes the last
    if any(view.ring for view in views):
        made = _cut_into_rows(made, [view.pitch if view.ring else NEVER for view in views])
    buffers, offsets, pitches, rings = (
        np.array(column, np.int64)[made.operands]
        for column in zip(
            *((buffer_of[v.base] if isinstance(v.base, int) else -1, v.offset, max(v.pitch, 1), v.ring) for v in views),
            strict=True,
        )
    )
    rows = made.firsts // pitches
    turns = np.where(rings > 0, rows // np.maximum(rings, 1) * rings * pitches, 0)
    shift = offsets - turns
    kept = buffers >= 0  # constants lie in flash
    return Trace(buffers[kept], (made.operands == OUTPUT)[kept], (made.firsts + shift)[kept], (made.ends + shift)[kept])


def _cut_into_rows(made: Accesses, pitches: Sequence[int]) -> Accesses:
    """Events split so that none goes beyond a row of `pitches[operand]` bytes."""
    pitch = np.array(pitches, np.int64)[made.operands]
    first_rows, last_rows = made.firsts // pitch, (made.ends - 1) // pitch
    counts = last_rows - first_rows + 1
    event = np.repeat(np.arange(len(made)), counts)
    place = np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)
    row = first_rows[event] + place
    firsts = np.maximum(made.firsts[event], row * pitch[event])
    ends = np.minimum(made.ends[event], (row + 1) * pitch[event])
    return Accesses(made.operands[event], firsts, ends)


@dataclass(frozen=True, eq=False)
class Life:
    """When which bytes of a buffer hold something that is read later: bounds [first, end) before its first event (entry
    0) and after each (entry k + 1, its event being number times[k] of the trace). No byte does where end <= first."""

    times: Array
    firsts: Array
    ends: Array

    def at(self, times: Array) -> tuple[Array, Array]:
        """The bounds after the events of these numbers, which are other buffers' events."""
        entry = np.searchsorted(self.times, times)
        return self.firsts[entry], self.ends[entry]


def life_of(trace: Trace, buffer: int, presence: Presence) -> Life:
    """A buffer's life in a step."""
    times = np.flatnonzero(trace.buffers == buffer)
    mine = Trace(trace.buffers[times], trace.writes[times], trace.firsts[times], trace.ends[times])
    return Life(times, *(_line_bounds(mine, presence.bytes) if presence.line else _tensor_bounds(mine, presence)))


def distance(trace: Trace, low: int, high: int, lives: Mapping[int, Life], low_bytes: int) -> int | None:
    """The least safe place(high) - place(low) from which on every greater one is safe too; None: any is."""
    needed: list[Array] = []
    for writer, other in ((low, high), (high, low)):
        times = np.flatnonzero((trace.buffers == writer) & trace.writes)
        first_live, end_live = lives[other].at(times)
        danger = first_live < end_live
        far = trace.ends[times] - first_live if writer == low else end_live - trace.firsts[times]
        needed.append(far[danger])
    together = np.concatenate(needed)
    return min(int(together.max()), low_bytes) if len(together) else None


def may_coincide(trace: Trace, one: int, other: int, sizes: tuple[int, int]) -> bool:
    """Whether an output may begin at the very place of an input that dies in the step: each byte of either is read for
    the last time before it is written for the first time as a byte of the other. True for kernels that go through the
    image channel by channel, though no distance is safe from which on all are.

    Of the two, one must only be read in the step, the other only be written.
    """
    times = np.flatnonzero((trace.buffers == one) | (trace.buffers == other))
    last_read, first_write = np.full(min(sizes), -1), np.full(min(sizes), NEVER)
    spans = list(zip(times.tolist(), trace.firsts[times].tolist(), trace.ends[times].tolist(), strict=True))
    writes = trace.writes[times].tolist()
    for (time, first, end), write in zip(spans, writes, strict=True):
        if not write:
            last_read[first:end] = time
    for (time, first, end), write in zip(reversed(spans), reversed(writes), strict=True):
        if write:
            first_write[first:end] = time
    return bool((last_read < first_write).all())


class StepOverlap:
    """What two buffers of one step must keep from each other, each answer worked out once.

    Buffers are named by a node whose tensor they hold. sizes: bytes of the tensors and line buffers, by node.
    """

    def __init__(self, step: Step, sizes: Mapping[int, int], roots: Mapping[int, int]) -> None:
        self.trace = trace_of(step.calls, sizes, roots)
        self._lives: dict[tuple[int, Presence], Life] = {}
        self._distances: dict[tuple[int, int, Presence, Presence], int | None] = {}
        self._coincide: dict[tuple[int, int], bool] = {}

    def _life(self, buffer: int, presence: Presence) -> Life:
        key = buffer, presence
        if key not in self._lives:
            self._lives[key] = life_of(self.trace, *key)
        return self._lives[key]

    def distance(self, low: int, high: int, presences: Mapping[int, Presence]) -> int | None:
        """As `distance`."""
        key = low, high, presences[low], presences[high]
        if key not in self._distances:
            lives = {buffer: self._life(buffer, presences[buffer]) for buffer in (low, high)}
            self._distances[key] = distance(self.trace, low, high, lives, presences[low].bytes)
        return self._distances[key]

    def may_coincide(self, one: int, other: int, sizes: tuple[int, int]) -> bool:
        """As `may_coincide`."""
        if (one, other) not in self._coincide:
            self._coincide[one, other] = may_coincide(self.trace, one, other, sizes)
        return self._coincide[one, other]


class Overlaps:
    """The steps of a graph, for plans that share most of them."""

    def __init__(self, graph: Graph) -> None:
        self._sizes = {node.id: node.type.bytes for node in graph.nodes}
        self.roots: dict[int, int] = {}
        for node in graph.nodes:
            self.roots[node.id] = self.roots[node.inputs[0]] if isinstance(node.op, Reshape) else node.id
        self._steps: dict[Step, StepOverlap] = {}

    def of(self, step: Step) -> StepOverlap:
        if step not in self._steps:
            lines = {tensor: line.bytes for tensor, line in step.lines.items()}
            roots = self.roots | {tensor: tensor for tensor in lines}
            self._steps[step] = StepOverlap(step, self._sizes | lines, roots)
        return self._steps[step]


def _tensor_bounds(mine: Trace, presence: Presence) -> tuple[Array, Array]:
    """Of a tensor, whose bytes are written once: from what was written so far and what will be read."""
    first_past, end_past = _extremes(mine, mine.writes)
    backward = Trace(mine.buffers[::-1], mine.writes[::-1], mine.firsts[::-1], mine.ends[::-1])
    first_future, end_future = (bound[::-1] for bound in _extremes(backward, ~backward.writes))
    if presence.before:
        first_past, end_past = np.zeros_like(first_past), np.full_like(end_past, presence.bytes)
    if presence.after:
        first_future, end_future = np.zeros_like(first_past), np.full_like(end_past, presence.bytes)
    return np.maximum(first_past, first_future), np.minimum(end_past, end_future)


def _extremes(mine: Trace, chosen: Array) -> tuple[Array, Array]:
    """The least first and the greatest end of the chosen events before each event, and of all."""
    firsts = np.append(NEVER, np.where(chosen, mine.firsts, NEVER))
    ends = np.append(-NEVER, np.where(chosen, mine.ends, -NEVER))
    return np.minimum.accumulate(firsts), np.maximum.accumulate(ends)


def _line_bounds(mine: Trace, size: int) -> tuple[Array, Array]:
    """Of a line buffer, which is written again and again: a byte is needed when the next event on it is a read."""
    needed = bytearray(size)
    firsts, ends = [NEVER], [-NEVER]
    events = zip(mine.writes.tolist(), mine.firsts.tolist(), mine.ends.tolist(), strict=True)
    for write, first, end in reversed(list(events)):
        needed[first:end] = (b"\0" if write else b"\1") * (end - first)
        least = needed.find(1)
        firsts.append(least if least >= 0 else NEVER)
        ends.append(needed.rfind(1) + 1 if least >= 0 else -NEVER)
    return np.array(firsts[::-1], np.int64), np.array(ends[::-1], np.int64)
