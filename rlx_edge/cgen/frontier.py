"""Ways to compute a whole model, none of which is beaten by another in both instructions and flash.

Each node has some ways; kernels' code is there once however many nodes call it. So the nodes that share kernels are
taken together: for each set of kernels that may be linked, the best combinations of their nodes' ways; then the best
combinations of those groups. Groups may share functions of the compiler's library, which one pays for another: until
all are combined, only combinations that link the same functions are compared. Exact up to LIMIT combinations of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rlx_edge.cgen.costs import CoreCosts
from rlx_edge.ir import Array

LIMIT = 256
MOST_KERNELS = 9
"""Of a group; of a larger one only sets that leave out few or contain few are looked at."""


@dataclass(frozen=True)
class Way:
    """One way to compute a node. own_bytes: flash of constants and steps, that no other node shares. stack_bytes: of
    a run that is in it; scratch_bytes: the most that a call needs."""

    index: int
    instructions: float
    own_bytes: int
    kernels: frozenset[str]
    stack_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Point:
    """A combination of ways: `picks` has a node and the index of its way, for all nodes that were combined."""

    instructions: float
    own_bytes: int
    kernels: frozenset[str]
    picks: tuple[tuple[int, int], ...]


NOTHING = Point(0.0, 0, frozenset(), ())


Known = dict[tuple[tuple[int, int], ...], list[Point]]
"""The best combinations of groups, by their nodes and the identity of each node's ways."""


def frontier(ways: Sequence[Sequence[Way]], costs: CoreCosts, known: Known | None = None) -> list[Point]:
    """The combinations of one way per node, fewest instructions first. Every node has at least one way.

    known: what earlier calls found for groups of the same ways, for calls that differ in few nodes.
    """
    points = [NOTHING]
    known = {} if known is None else known
    for group in _groups(ways):
        key = tuple((node, id(ways[node])) for node in group)
        if key not in known:
            known[key] = _of_group({node: ways[node] for node in group}, costs)
        points = _combined(points, known[key], costs)
    flash = np.array([point.own_bytes + costs.kernel_bytes(point.kernels) for point in points])
    return [points[i] for i in _unbeaten(np.array([point.instructions for point in points]), flash)]


def _combined(left: Sequence[Point], right: Sequence[Point], costs: CoreCosts) -> list[Point]:
    """The best of all pairs."""
    sets = [list(dict.fromkeys(point.kernels for point in points)) for points in (left, right)]
    sizes = np.array([[costs.kernel_bytes(a | b) for b in sets[1]] for a in sets[0]])
    linked = [[costs.library_of(a | b) for b in sets[1]] for a in sets[0]]
    places = [[sets[i].index(point.kernels) for point in points] for i, points in enumerate((left, right))]
    flash = np.add.outer([p.own_bytes for p in left], [p.own_bytes for p in right]) + sizes[np.ix_(*places)]
    instructions = np.add.outer([p.instructions for p in left], [p.instructions for p in right])
    functions = [linked[a][b] for a in places[0] for b in places[1]]
    kept = _unbeaten_apart(instructions.reshape(-1), flash.reshape(-1), functions)
    return [_joined(left[i // len(right)], right[i % len(right)]) for i in kept]


def _joined(a: Point, b: Point) -> Point:
    return Point(
        a.instructions + b.instructions, a.own_bytes + b.own_bytes, a.kernels | b.kernels, (*a.picks, *b.picks)
    )


def _groups(ways: Sequence[Sequence[Way]]) -> list[list[int]]:
    """Nodes that some kernel connects."""
    groups: list[tuple[set[str], list[int]]] = []
    for node, choices in enumerate(ways):
        names, nodes = {name for way in choices for name in way.kernels}, [node]
        apart = []
        for group_names, group_nodes in groups:
            if group_names & names:
                names, nodes = names | group_names, group_nodes + nodes
            else:
                apart.append((group_names, group_nodes))
        groups = [*apart, (names, nodes)]
    return [sorted(nodes) for _, nodes in groups]


def _of_group(ways: Mapping[int, Sequence[Way]], costs: CoreCosts) -> list[Point]:
    names = sorted({name for choices in ways.values() for way in choices for name in way.kernels})
    found: list[Point] = []
    for allowed in _subsets(names):
        left = {node: _useful([way for way in choices if way.kernels <= allowed]) for node, choices in ways.items()}
        if all(left.values()):
            found += _within(left, allowed)
    return _best(found, costs)


def _subsets(names: Sequence[str]) -> Iterable[frozenset[str]]:
    sizes: Iterable[int] = range(len(names) + 1)
    if len(names) > MOST_KERNELS:
        sizes = sorted({0, 1, 2, len(names) - 2, len(names) - 1, len(names)})
    return (frozenset(chosen) for size in sizes for chosen in combinations(names, size))


def _useful(ways: Sequence[Way]) -> list[Way]:
    """Without those that another one beats or equals, where all of their kernels are linked anyway."""
    kept: list[Way] = []
    for way in sorted(ways, key=lambda w: (w.instructions, w.own_bytes)):
        if not kept or way.own_bytes < kept[-1].own_bytes:
            kept.append(way)
    return kept


def _within(ways: Mapping[int, Sequence[Way]], allowed: frozenset[str]) -> list[Point]:
    """All kernels that are allowed are linked: only instructions and bytes of the nodes' own differ."""
    instructions, own_bytes = np.zeros(1), np.zeros(1, np.int64)
    steps: list[tuple[Array, Array]] = []  # of each node: which earlier combinations go on, and by which way
    for choices in ways.values():
        instructions = np.add.outer(instructions, [way.instructions for way in choices]).reshape(-1)
        own_bytes = np.add.outer(own_bytes, [way.own_bytes for way in choices]).reshape(-1)
        kept = np.array(_unbeaten(instructions, own_bytes))
        instructions, own_bytes = instructions[kept], own_bytes[kept]
        before, way = np.divmod(kept, len(choices))
        steps.append((before, np.array([choice.index for choice in choices])[way]))
    places, picks = np.arange(len(instructions)), []
    for before, indices in reversed(steps):
        picks.append(indices[places].tolist())
        places = before[places]
    rows = zip(instructions.tolist(), own_bytes.tolist(), zip(*reversed(picks), strict=True), strict=True)
    return [Point(speed, own, allowed, tuple(zip(ways, row, strict=True))) for speed, own, row in rows]


def _best(points: Sequence[Point], costs: CoreCosts) -> list[Point]:
    sizes = {kernels: costs.kernel_bytes(kernels) for kernels in {point.kernels for point in points}}
    flash = np.array([point.own_bytes + sizes[point.kernels] for point in points])
    functions = [costs.library_of(point.kernels) for point in points]
    return [points[i] for i in _unbeaten_apart(np.array([point.instructions for point in points]), flash, functions)]


def _unbeaten_apart(instructions: Array, flash: Array, functions: Sequence[frozenset[str]]) -> list[int]:
    """Places of those that no other beats that links the same functions of the library."""
    kept: list[int] = []
    for linked in dict.fromkeys(functions):
        places = np.array([i for i, own in enumerate(functions) if own == linked])
        kept += places[_unbeaten(instructions[places], flash[places])].tolist()
    return kept


def _unbeaten(instructions: Array, flash: Array) -> list[int]:
    """Places of those that no other beats in instructions and flash, by rising instructions; of too many some, evenly,
    with both ends."""
    order = np.lexsort((flash, instructions))
    falling = flash[order]
    first = np.concatenate(([True], falling[1:] < np.minimum.accumulate(falling)[:-1]))
    kept: list[int] = order[first].tolist()
    if len(kept) <= LIMIT:
        return kept
    return [kept[round(i * (len(kept) - 1) / (LIMIT - 1))] for i in range(LIMIT)]
