"""How depthwise_v6m cuts an image: into lines along its rows or its columns, and into bands of them.

The counts are those of the loops of firmware/kernels/rlx_lines_v6m.h and rlx_depthwise_v6m_s8.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlx_edge.cgen.variants.axis import Axis

STEP = 3
"""Taps that the kernel multiplies together."""
SCRATCH_BYTES = 1152
"""Bands have no more lines than fit in this, but at least those of one row of outputs."""
GAIN = 0.97
"""Larger bands are taken only where they save at least 3% of the instructions."""

COSTS: Mapping[str, float] = {
    **{"bands": 250, "lines": 30, "blank_words": 3, "shared_words": 6, "moved_words": 1},
    **{"copied_lines": 120, "copied": 7, "pair_words": 6, "any_words": 12, "rows": 22, "pairs": 85},
}
"""Instructions of each count in `Lines.counts`, roughly: enough to choose by."""


@dataclass(frozen=True)
class Lines:
    """Lines run along one axis, side by side across the other one; a band has the lines of `band` outputs across. Lines
    are rows, or (upright) columns. again: several outputs of a channel need its lines, which each band then copies
    anew."""

    along: Axis
    across: Axis
    band: int
    upright: bool
    again: bool

    @property
    def pairs(self) -> int:
        """Of outputs of a line, rounded up."""
        return -(-self.along.outputs // 2)

    @property
    def columns(self) -> int:
        """Of three taps."""
        return -(-self.along.kernel // STEP)

    @property
    def taps(self) -> int:
        """Of the kernel, rounded up to whole columns."""
        return self.columns * self.across.kernel * STEP

    @property
    def values(self) -> int:
        """Of x and of zero points, for a line."""
        return (2 * self.pairs - 1) * self.along.stride + self.columns * STEP

    @property
    def words(self) -> int:
        """Of a line."""
        return self.values if self.along.stride == 1 else self.pairs * self.columns * STEP

    @property
    def scratch(self) -> int:
        """Bytes: the table, a band's lines, and a line's values where they are copied."""
        lines = (min(self.band, self.across.outputs) - 1) * self.across.stride + self.across.kernel
        values = 0 if self.along.stride == 1 else self.values
        return 4 * (2 + -(-self.taps // 4) * 4 + 4 + lines * self.words) + values

    def of_rows(self, rows: int) -> Lines:
        """A call of so many rows."""
        if self.upright:
            return replace(self, along=self.along.middle(rows))
        return replace(self, across=self.across.middle(rows))

    @property
    def counts(self) -> dict[str, int]:
        """Of a channel: bands; lines within the image and words of each kind (`_line`); words of zero points; words
        moved from band to band; rows and pairs of outputs."""
        across = self.across
        bands = list(across.bands(self.band, slides=not self.again))
        inside = sum(len(band.inside) for band in bands)
        outside = sum(band.outside for band in bands)
        moved = sum(band.kept for band in bands)
        line = self._line
        return {
            **{"bands": len(bands), "lines": inside},
            **{name: inside * count for name, count in line.items()},
            "blank_words": inside * line["blank_words"] + outside * self.words,
            "moved_words": moved * self.words,
            **{"rows": across.outputs, "pairs": across.outputs * self.pairs},
        }

    @property
    def _line(self) -> dict[str, int]:
        """Of a line within the image: words that pairs share, of zero points and of other values; or values that are
        copied first, and words of three taps with stride 2 or of any."""
        along = self.along
        first = along.first - along.outputs % 2 * along.stride
        inside = min(first + self.values, along.size) - max(0, first)
        found = dict.fromkeys(("shared_words", "blank_words", "copied_lines", "copied", "pair_words", "any_words"), 0)
        if inside <= 0:
            return found | {"blank_words": self.words}
        if along.stride == 1:
            return found | {"shared_words": inside, "blank_words": self.words - inside}
        kind = "pair_words" if along.stride == 2 and self.columns == 1 else "any_words"
        return found | {"copied_lines": 1, "copied": self.values, kind: self.words}

    @property
    def cost(self) -> float:
        """Instructions of a channel, roughly."""
        return sum(COSTS[name] * count for name, count in self.counts.items())


def choose_lines(rows: Axis, columns: Axis, multiplier: int, *, by_rows: bool = False) -> Lines:
    """Lines of rows or of columns, whichever take fewer instructions, in bands as large as is worth their memory.

    by_rows: for calls of one row each, which read from rings: a column of a ring lies in two parts, so that each of its
    values is looked up on its own. Such calls get lines of rows.
    """
    found = [_banded(Lines(columns, rows, 1, upright=False, again=multiplier > 1))]
    if multiplier == 1 and not by_rows:  # else the kernel wants bands of rows
        found.append(_banded(Lines(rows, columns, 1, upright=True, again=False)))
    return min(found, key=lambda lines: lines.cost)


def _banded(lines: Lines) -> Lines:
    made = lines
    for band in range(2, lines.across.outputs + 1):
        larger = replace(lines, band=band)
        if larger.scratch > SCRATCH_BYTES:
            break
        if larger.cost < made.cost * GAIN:
            made = larger
    return made
