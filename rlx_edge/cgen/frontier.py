"""Ways to compute a whole model, none of which is beaten by another in both instructions and flash.

Each node has some ways; kernels' code is there once however many nodes call it. So the nodes that share kernels are
taken together: for each set of kernels that may be linked, the best combinations of their nodes' ways; then the best
combinations of those groups. Exact up to LIMIT combinations that are kept at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from rlx_edge.cgen.costs import CoreCosts

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
        points = _best((_joined(a, b) for a in points for b in known[key]), costs)
    return points


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
        left = {node: [way for way in choices if way.kernels <= allowed] for node, choices in ways.items()}
        if all(left.values()):
            found += _within(left, allowed)
    return _best(found, costs)


def _subsets(names: Sequence[str]) -> Iterable[frozenset[str]]:
    sizes: Iterable[int] = range(len(names) + 1)
    if len(names) > MOST_KERNELS:
        sizes = sorted({0, 1, 2, len(names) - 2, len(names) - 1, len(names)})
    return (frozenset(chosen) for size in sizes for chosen in combinations(names, size))


def _within(ways: Mapping[int, Sequence[Way]], allowed: frozenset[str]) -> list[Point]:
    """All kernels that are allowed are linked: only instructions and bytes of the nodes' own differ."""
    points = [Point(0.0, 0, allowed, ())]
    for node, choices in ways.items():
        made = [
            Point(p.instructions + w.instructions, p.own_bytes + w.own_bytes, allowed, (*p.picks, (node, w.index)))
            for p in points
            for w in choices
        ]
        points = _unbeaten(made, [point.own_bytes for point in made])
    return points


def _best(points: Iterable[Point], costs: CoreCosts) -> list[Point]:
    made = list(points)
    sizes = {kernels: costs.kernel_bytes(kernels) for kernels in {point.kernels for point in made}}
    return _unbeaten(made, [point.own_bytes + sizes[point.kernels] for point in made])


def _unbeaten(points: Sequence[Point], flash: Sequence[int]) -> list[Point]:
    """Those that no other beats in instructions and flash; of too many some, evenly, with both ends."""
    order = sorted(range(len(points)), key=lambda i: (points[i].instructions, flash[i]))
    kept: list[Point] = []
    least = None
    for i in order:
        if least is None or flash[i] < least:
            kept.append(points[i])
            least = flash[i]
    if len(kept) <= LIMIT:
        return kept
    return [kept[round(i * (len(kept) - 1) / (LIMIT - 1))] for i in range(LIMIT)]
