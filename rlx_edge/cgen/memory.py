"""Where tensors lie in the arena: lifetimes, what may overlap in each step, then a search for places.

A buffer is the memory of a tensor and of its reshapes, of a line buffer of a stage, or of a step's scratch. Two buffers
that live in one step only may overlap there as far as the order of the step's accesses allows (overlap.py): an output
then takes the place of an operand that dies, the sum of a residual block that of the skipped tensor. All other
buffers that live at the same time lie apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations

from rlx_edge.cgen.overlap import Overlaps, Presence, StepOverlap
from rlx_edge.cgen.placement import Puzzle, arena_of, place
from rlx_edge.cgen.plan import Step
from rlx_edge.ir import Graph
from rlx_edge.ir.graph import brief

ALIGNMENT = 16
"""Of the arena, of scratch memory and of the tensors that the caller reads and writes."""
INNER_ALIGNMENTS = (16, 4)
"""Tried for all other buffers; the least when it makes the arena smaller. Kernels that load words need 4."""


@dataclass(frozen=True)
class Buffer:
    """Memory of `bytes`, alive in the steps [first, last]; inputs begin at step -1, outputs last to step len(steps).
    nodes: the tensors that it holds; none for scratch memory. line: a line buffer of a stage."""

    nodes: tuple[int, ...]
    bytes: int
    first: int
    last: int
    line: bool = False

    def presence(self, step: int) -> Presence:
        """A tensor that a step completes is whole at the step's end, whether anybody needs it later or not."""
        after = self.last > step or (self.first == step and not self.line)
        return Presence(self.bytes, self.first < step, after, self.line)


@dataclass(frozen=True)
class Layout:
    """Byte offset of every node's tensor (of line buffers, too), of the scratch memory of steps that have some, and the
    size of the arena. `bound`: no plan of the same steps has a smaller arena, so far as sums of live bytes tell."""

    offsets: dict[int, int]
    arena_bytes: int
    scratch_offsets: dict[int, int] = field(default_factory=dict)
    bound: int = 0
    input_preserved: bool = False


def plan_memory(
    graph: Graph, steps: Sequence[Step], overlaps: Overlaps | None = None, *, overlap: bool = True, guard: int = 0
) -> Layout:
    """Assign offsets so that no step destroys what a later one, or it itself, still reads.

    overlap=False gives every buffer memory of its own for the whole run, with `guard` bytes of nobody's before and
    after it: a plan in which any access outside of a tensor shows. overlaps: answers kept from other plans.
    """
    buffers = buffers_of(graph, steps)
    apart = apart_of(steps, buffers, overlaps or Overlaps(graph)) if overlap else _ends_apart(buffers, guard)
    bound = max(step_bounds(buffers, apart, len(steps))) if overlap else sum(buffer.bytes for buffer in buffers)
    caller = {*graph.outputs, *(node.id for node in graph.inputs)}
    puzzle = Puzzle(
        sizes=[buffer.bytes for buffer in buffers],
        apart=apart.distances,
        coincide=apart.coincide,
        bound=bound,
        alignments={i: ALIGNMENT for i, b in enumerate(buffers) if not b.nodes or caller & set(b.nodes)},
        first_guesses=_guesses(buffers, len(steps)),
    )
    offsets, arena = _with_best_alignment(puzzle)
    return Layout(
        {node: offsets[i] + guard for i, buffer in enumerate(buffers) for node in buffer.nodes},
        max(_aligned(arena + 2 * guard), ALIGNMENT),
        {buffer.first: offsets[i] + guard for i, buffer in enumerate(buffers) if not buffer.nodes},
        bound,
        _input_preserved(buffers, offsets),
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def buffers_of(graph: Graph, steps: Sequence[Step]) -> list[Buffer]:
    """All buffers: those of inputs first, then in the order of the steps that make them, then scratch memory."""
    nodes = {node.id: [node.id] for node in graph.inputs}
    spans = {node.id: [-1, -1] for node in graph.inputs}
    sizes = {node.id: node.type.bytes for node in graph.inputs}
    root = {node.id: node.id for node in graph.inputs}
    scratch = []
    for index, step in enumerate(steps):
        if not step.calls:
            root[step.node] = root[graph.nodes[step.node].inputs[0]]
            nodes[root[step.node]].append(step.node)
        for made in writes(step):
            root[made], nodes[made], spans[made] = made, [made], [index, index]
            sizes[made] = tensor_bytes(graph, step, made)
        for used in (*reads(step), step.node):
            spans[root[used]][1] = index
        if size := scratch_bytes(step):
            scratch.append(Buffer((), size, index, index))
    for output in graph.outputs:
        spans[root[output]][1] = len(steps)
    lines = {node for step in steps for node in step.lines}
    found = [Buffer(tuple(nodes[r]), sizes[r], first, last, r in lines) for r, (first, last) in spans.items()]
    return found + scratch


def writes(step: Step) -> tuple[int, ...]:
    """The nodes whose tensors a step's calls make, in the order of their first rows."""
    return tuple(dict.fromkeys(call.output.base for call in step.calls if isinstance(call.output.base, int)))


def reads(step: Step) -> tuple[int, ...]:
    """The nodes whose tensors a step's calls read."""
    views = [view for call in step.calls for view in call.inputs]
    return tuple(dict.fromkeys(view.base for view in views if isinstance(view.base, int)))


def scratch_bytes(step: Step) -> int:
    """What the step's calls need, which run one after the other."""
    return max((call.scratch for call in step.calls), default=0)


def tensor_bytes(graph: Graph, step: Step, node: int) -> int:
    """The memory of a tensor that a step makes: all of it, or a ring of its rows."""
    return step.lines[node].bytes if node in step.lines else graph.nodes[node].type.bytes


@dataclass(frozen=True, eq=False)
class Apart:
    """What pairs of buffers must keep from each other: `distances` and `coincide` of placement.Puzzle."""

    distances: Mapping[tuple[int, int], int]
    coincide: Set[tuple[int, int]] = frozenset()

    def shared(self, buffers: Sequence[Buffer], a: int, b: int) -> int:
        """Bytes that two buffers can share at most."""
        sizes = buffers[a].bytes, buffers[b].bytes
        if (a, b) in self.coincide:
            return min(sizes)
        return shared_bytes(sizes, (self.distances.get((a, b)), self.distances.get((b, a))))


def apart_of(steps: Sequence[Step], buffers: Sequence[Buffer], overlaps: Overlaps) -> Apart:
    """The distances that pairs of buffers must keep."""
    apart: dict[tuple[int, int], int] = {}
    coincide: set[tuple[int, int]] = set()
    for a, b in combinations(range(len(buffers)), 2):
        step = max(buffers[a].first, buffers[b].first)
        together = min(buffers[a].last, buffers[b].last) - step
        if together > 0 or (together == 0 and not (buffers[a].nodes and buffers[b].nodes and 0 <= step < len(steps))):
            apart[a, b], apart[b, a] = buffers[a].bytes, buffers[b].bytes
        elif together == 0:
            found = _pair(overlaps.of(steps[step]), buffers[a], buffers[b], step)
            if found.a_low is not None and found.b_low is not None:
                apart[a, b], apart[b, a] = found.a_low, found.b_low
            if found.coincide:
                coincide |= {(a, b), (b, a)}
    return Apart(apart, coincide)


@dataclass(frozen=True)
class _Pair:
    """The distances of two buffers in one step, with the first low and with the second low; None, None: any."""

    a_low: int | None
    b_low: int | None
    coincide: bool


def _pair(overlap: StepOverlap, a: Buffer, b: Buffer, step: int) -> _Pair:
    """Two buffers that live in this step only."""
    a_node, b_node = a.nodes[0], b.nodes[0]
    presences = {a_node: a.presence(step), b_node: b.presence(step)}
    lows = overlap.distance(a_node, b_node, presences), overlap.distance(b_node, a_node, presences)
    old, new = sorted((a, b), key=lambda buffer: buffer.first)
    dies = old.first < step and not new.line and max(lows[0] or 0, lows[1] or 0) > 0
    return _Pair(*lows, dies and overlap.may_coincide(a_node, b_node, (a.bytes, b.bytes)))


def _ends_apart(buffers: Sequence[Buffer], guard: int) -> Apart:
    numbers = range(len(buffers))
    return Apart({(a, b): _aligned(buffers[a].bytes) + guard for a in numbers for b in numbers if a != b})


def step_bounds(buffers: Sequence[Buffer], apart: Apart, steps: int) -> list[int]:
    """What the buffers of each step take together, each pair overlapped as far as it may be; no arena is smaller than
    any. From before the first step (entry 0) to after the last."""
    found = []
    for step in range(-1, steps + 1):
        alive = [i for i, buffer in enumerate(buffers) if buffer.first <= step <= buffer.last]
        saved = sum(apart.shared(buffers, a, b) for a, b in combinations(alive, 2))
        sizes = [buffers[i].bytes for i in alive]
        found.append(max([0, sum(sizes) - saved, *sizes]))
    return found


def placed(
    graph: Graph, steps: Sequence[Step], offsets: Mapping[int, int], scratch_offsets: Mapping[int, int]
) -> list[tuple[int, Buffer]]:
    """Buffers and their places in the arena. offsets: of tensors and rings, by node; scratch_offsets: by step."""
    return [
        (offsets[buffer.nodes[0]] if buffer.nodes else scratch_offsets[buffer.first], buffer)
        for buffer in buffers_of(graph, steps)
    ]


def occupied(buffers: Iterable[tuple[int, Buffer]], steps: int) -> list[int]:
    """Bytes of the arena that hold something while each step runs: bytes that two buffers share count once."""
    spans: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for at, buffer in buffers:
        for step in range(max(buffer.first, 0), min(buffer.last + 1, steps)):
            spans[step].append((at, at + buffer.bytes))
    return [_covered(found) for found in spans]


def fullest_step(
    graph: Graph, steps: Sequence[Step], offsets: Mapping[int, int], scratch_offsets: Mapping[int, int]
) -> tuple[str, int]:
    """The layer during which most bytes of the arena are in use, and how many."""
    held = occupied(placed(graph, steps, offsets, scratch_offsets), len(steps))
    return brief(graph.nodes[steps[held.index(max(held))].node].name), max(held)


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Bytes in at least one of the spans."""
    total = reached = 0
    for first, end in sorted(spans):
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total


def shared_bytes(sizes: tuple[int, int], apart: tuple[int | None, int | None]) -> int:
    """Bytes that two buffers can share at most. apart: the distances to keep with the first low, and the second low."""
    (first, second), (first_low, second_low) = sizes, apart
    if first_low is None or second_low is None:
        return min(sizes)
    ends = max(first, max(first_low, 0) + second), max(second, max(second_low, 0) + first)
    return max(0, first + second - min(ends))


def _guesses(buffers: Sequence[Buffer], steps: int) -> list[list[int]]:
    """Sequences in which placing often does well: backward and forward in time, and the fullest steps first."""
    load = [sum(b.bytes for b in buffers if b.first <= step <= b.last) for step in range(-1, steps + 1)]
    fullest = [max(load[b.first + 1 : b.last + 2]) for b in buffers]
    numbers = range(len(buffers))
    return [
        sorted(numbers, key=lambda i: (-buffers[i].first, -buffers[i].bytes)),
        sorted(numbers, key=lambda i: (buffers[i].first, -buffers[i].bytes)),
        sorted(numbers, key=lambda i: (-fullest[i], -buffers[i].first)),
        sorted(numbers, key=lambda i: (-fullest[i], -buffers[i].bytes)),
    ]


def _with_best_alignment(puzzle: Puzzle) -> tuple[list[int], int]:
    best: list[int] = []
    for alignment in INNER_ALIGNMENTS:
        offsets = place(replace(puzzle, alignment=alignment))
        if not best or _aligned(arena_of(puzzle, offsets)) < _aligned(arena_of(puzzle, best)):
            best = offsets
    return best, arena_of(puzzle, best)


def _input_preserved(buffers: Sequence[Buffer], offsets: Sequence[int]) -> bool:
    """Whether no buffer ever lies on an input."""
    spans = [(offset, offset + buffer.bytes) for offset, buffer in zip(offsets, buffers, strict=True)]
    return not any(
        spans[i][0] < end and first < spans[i][1]
        for i, buffer in enumerate(buffers)
        if buffer.first == -1
        for k, (first, end) in enumerate(spans)
        if k != i
    )
