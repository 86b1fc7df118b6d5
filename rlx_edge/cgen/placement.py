"""Places for buffers in one arena, as low as can be found: a pure puzzle of sizes and distances.

Placing buffers one after the other, each at the lowest place that its distances to those already placed allow, makes
the result depend on the sequence only, and some sequence gives the best arena when distances are sizes. So the search
is over sequences: all of them, with bounds, where few buffers are, otherwise good first guesses and improvements.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

EXHAUSTIVE_BUFFERS = 8
IMPROVEMENTS = 300


@dataclass(frozen=True)
class Puzzle:
    """Buffers to place.

    sizes: bytes. apart[low, high] = d allows place(high) - place(low) >= d; a pair must satisfy the entry of one of its
    two directions. Pairs without entries may lie anywhere; both directions have one or none. bound: no arena is
    smaller. alignment: of every place, where `alignments` (by buffer) says nothing greater. coincide: pairs, in both
    directions, that may also lie at the very same place.
    """

    sizes: Sequence[int]
    apart: Mapping[tuple[int, int], int]
    bound: int
    alignments: Mapping[int, int]
    alignment: int = 16
    coincide: Set[tuple[int, int]] = frozenset()
    first_guesses: Sequence[Sequence[int]] = ()


def place(puzzle: Puzzle) -> list[int]:
    """Offsets of all buffers. The same puzzle gives the same places."""
    count = len(puzzle.sizes)
    neighbors = _neighbors(puzzle)
    by_size = sorted(range(count), key=lambda i: -puzzle.sizes[i])
    guesses: list[Sequence[int]] = [by_size, *puzzle.first_guesses]
    if count <= EXHAUSTIVE_BUFFERS:
        return _best_of_all(puzzle, neighbors, guesses)
    return _improved(puzzle, neighbors, guesses)


def arena_of(puzzle: Puzzle, offsets: Sequence[int]) -> int:
    """The end of the buffer that ends last."""
    return max((offset + size for offset, size in zip(offsets, puzzle.sizes, strict=True)), default=0)


Neighbors = list[list[tuple[int, int, int]]]
"""For each buffer b the others o that it must keep away from, with apart[b, o] and apart[o, b]."""


def _neighbors(puzzle: Puzzle) -> Neighbors:
    found: Neighbors = [[] for _ in puzzle.sizes]
    for (low, high), below in puzzle.apart.items():
        found[low].append((high, below, puzzle.apart[high, low]))
    return found


def _lowest(puzzle: Puzzle, neighbors: Neighbors, offsets: list[int], buffer: int) -> int:
    """The lowest place of a buffer among those placed already (offset -1: not yet)."""
    step = max(puzzle.alignment, puzzle.alignments.get(buffer, 1))
    taken, shared = [], []
    for other, below, above in neighbors[buffer]:
        if offsets[other] >= 0:
            # Below `other` by at least `below`, or above it by at least `above`; nothing in between.
            taken.append((offsets[other] - below, offsets[other] + above, other))
            if (buffer, other) in puzzle.coincide and offsets[other] % step == 0:
                shared.append((offsets[other], other))
    taken.sort()
    offset = 0
    for first, end, _ in taken:
        if first < offset < end:
            offset = -(-end // step) * step
    for at, owner in shared:
        if at < offset and not any(first < at < end for first, end, other in taken if other != owner):
            offset = at
    return offset


def _placed(
    puzzle: Puzzle, neighbors: Neighbors, sequence: Iterable[int], limit: int | None = None
) -> list[int] | None:
    """Places in this sequence; None as soon as a buffer ends beyond the limit."""
    offsets = [-1] * len(puzzle.sizes)
    for buffer in sequence:
        offsets[buffer] = _lowest(puzzle, neighbors, offsets, buffer)
        if limit is not None and offsets[buffer] + puzzle.sizes[buffer] > limit:
            return None
    return offsets


def _first(puzzle: Puzzle, neighbors: Neighbors, guesses: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The places by the best guess, and that guess."""
    found = []
    for guess in guesses:
        offsets = _placed(puzzle, neighbors, guess)
        assert offsets is not None
        found.append((arena_of(puzzle, offsets), offsets, list(guess)))
    _, offsets, guess = min(found, key=lambda item: item[0])
    return offsets, guess


def _best_of_all(puzzle: Puzzle, neighbors: Neighbors, guesses: Sequence[Sequence[int]]) -> list[int]:
    best, _ = _first(puzzle, neighbors, guesses)
    best_arena = arena_of(puzzle, best)
    offsets = [-1] * len(puzzle.sizes)

    def extend(left: Sequence[int], arena: int) -> None:
        nonlocal best, best_arena
        if not left:
            best, best_arena = offsets.copy(), arena
        for buffer in left:
            offset = _lowest(puzzle, neighbors, offsets, buffer)
            end = max(arena, offset + puzzle.sizes[buffer])
            if end < best_arena and best_arena > puzzle.bound:
                offsets[buffer] = offset
                extend([other for other in left if other != buffer], end)
                offsets[buffer] = -1

    extend(list(guesses[0]), 0)
    return best


def _improved(puzzle: Puzzle, neighbors: Neighbors, guesses: Sequence[Sequence[int]]) -> list[int]:
    """From the best guess on: the buffer that ends last goes to the front, or two buffers change places; kept when the
    arena does not grow."""
    chance = random.Random(0)
    best, sequence = _first(puzzle, neighbors, guesses)
    arena = arena_of(puzzle, best)
    for turn in range(IMPROVEMENTS):
        if arena <= puzzle.bound:
            break
        attempt = sequence.copy()
        if turn % 2:
            top = max(sequence, key=lambda i: best[i] + puzzle.sizes[i])
            attempt.remove(top)
            attempt.insert(chance.randrange(len(attempt)), top)
        else:
            i, k = chance.randrange(len(attempt)), chance.randrange(len(attempt))
            attempt[i], attempt[k] = attempt[k], attempt[i]
        offsets = _placed(puzzle, neighbors, attempt, arena)
        if offsets is not None:
            sequence, best, arena = attempt, offsets, arena_of(puzzle, offsets)
    return best
