"""Lists of the weights that are 1 and -1, so that kernels need not look at those that are 0
(firmware/kernels/rlx_octets_skip.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.variants.packing import wrapped
from rlx_edge.ir import Array
from rlx_edge.ir.subbyte import pack

MOST = 255
"""Weights that are not 0, of a run: 255 * 128 < 2^15."""
MOST_SKIPPED = 15
LIST_WORD = 8
LAST_START = (1 << 16) - 1
MOST_WORDS = 127


@dataclass(frozen=True)
class Skips:
    """channels: per channel its runs, each of two lists of taps, subtracted and added."""

    channels: tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], ...]
    zeros: float

    @property
    def text(self) -> str:
        """For the comment in the generated C."""
        return f"{self.zeros:.0%} of the weights are 0; runs of at most {MOST} others fit in fields of 16 bits"

    def counts(self) -> dict[str, int]:
        """Of all channels: taps of lists, their words, lists that have some, runs before the last ones."""
        lists = [taps for runs in self.channels for run in runs for taps in run]
        return {
            "listed": sum(map(len, lists)),
            "words": sum(-(-len(taps) // LIST_WORD) for taps in lists),
            "lists": sum(1 for taps in lists if taps),
            "flushes": sum(len(runs) - 1 for runs in self.channels),
        }


def skips(rows: Array) -> Skips | str:
    """rows: int8 [C_out, taps], all -1, 0 or 1. Or why there are no such lists."""
    if rows.shape[1] > LAST_START:
        return f"a window has {rows.shape[1]} taps, more than {LAST_START}"
    channels = []
    for row in rows:
        runs = [_bridged(*run) for run in _runs(row)]
        if any(run is None for run in runs):
            return "more than 15 neighbors have the same sign"
        channels.append(tuple(run for run in runs if run is not None))
    return Skips(tuple(channels), float((rows == 0).mean()))


def _runs(row: Array) -> Iterator[tuple[set[int], set[int], set[int]]]:
    """Taps of -1, of 1 and of 0, of at most MOST others each; at least one run."""
    taken = np.flatnonzero(row)
    ends = [*taken[MOST::MOST].tolist(), len(row)]
    for first, end in zip([0, *ends], ends, strict=False):
        part = row[first:end]
        minus, zero, plus = (set((first + np.flatnonzero(part == w)).tolist()) for w in (-1, 0, 1))
        yield minus, plus, zero


def _bridged(minus: set[int], plus: set[int], zeros: set[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Both lists, with taps of weight 0 in both of them where more than 15 would be skipped."""
    while (gap := next((found for found in map(_gap, (minus, plus)) if found is not None), None)) is not None:
        between = zeros & set(range(gap + 1, gap + 2 + MOST_SKIPPED))
        if not between:
            return None
        bridge = max(between)
        zeros = zeros - {bridge}
        minus, plus = minus | {bridge}, plus | {bridge}
    return tuple(sorted(minus)), tuple(sorted(plus))


def _gap(taps: set[int]) -> int | None:
    """The first tap after which more than 15 are skipped."""
    order = np.array(sorted(taps), np.int64)
    wide = np.flatnonzero(np.diff(order) > MOST_SKIPPED + 1)
    return int(order[wide[0]]) if len(wide) else None


def list_words(taps: tuple[int, ...], code: int) -> Array:
    """A list as int32. code: bytes of code of a tap."""
    words = -(-len(taps) // LIST_WORD)
    assert words <= MOST_WORDS, "a list that its header cannot tell"
    first = (len(taps) - 1) % LIST_WORD + 1 if taps else 0
    start = taps[0] if taps else 0
    numbers = np.diff(np.array([start - 1, *taps], np.int64)) - 1
    numbers = np.pad(numbers[: len(taps)], (words * LIST_WORD - len(taps), 0))
    header = wrapped(np.array([start << 16 | 1 << 15 | words << 8 | code * first], np.int64))
    return np.concatenate([header, pack(numbers, 4).view("<i4")]) if taps else header
