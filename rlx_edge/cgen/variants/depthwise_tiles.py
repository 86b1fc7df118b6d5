"""How depthwise_dsp cuts an image into tiles and bands: those that take the fewest instructions.

The counts of instructions are those of firmware/kernels/rlx_depthwise_dsp_s8.c and its headers, per piece of their
loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rlx_edge.cgen.variants.axis import Axis, Band

LANES, PITCH, TAPS = 4, 32, 3
TILE_BYTES = 132
"""What the kernel keeps of each tile where there are several."""
LINE_BYTES = 28
"""Outputs of a tile's line * inner stride: what a line of the planes has room for, beside 4 bytes."""
SCRATCH_BYTES = 2512
"""What bands may take, if there are several."""
ONE_BAND_BYTES = 4352
"""What may be taken where all is one band: by small images, whose layers are seldom those that need most memory."""
GAIN = 0.98
"""More memory is taken only where it saves at least 2% of the instructions."""

COSTS: Mapping[str, float] = {
    **{"set_tiles": 80, "filled": 1.4, "groups": 40, "bands": 70, "set_tiles_again": 30},
    **{"filled_again": 1.4, "moved": 0.8},
    **{"tiles": 110, "copied_lines": 12, "quads": 23, "singles": 11, "bytes": 10},
    **{"channels": 38, "double_lines": 24, "columns": 41, "blocks": 60},
    **{"lines": 10, "odd": 26, "pairs": 36, "pairs_2": 39},
}
"""Instructions of each count in `Tiling.counts`, roughly."""


@dataclass(frozen=True)
class Tiling:
    """Tiles of `tile` outputs along the inner axis, bands of `band` outputs along the outer one. along_y: the inner one
    is y, or else x."""

    inner: Axis
    outer: Axis
    channels: int
    tile: int
    band: int
    along_y: bool

    @property
    def _lines(self) -> int:
        """Of a plane."""
        return (min(self.band, self.outer.outputs) - 1) * self.outer.stride + TAPS

    @property
    def _tiles(self) -> list[Band]:
        """Along a line: what each needs."""
        return list(self.inner.bands(self.tile, slides=False))

    @property
    def scratch(self) -> int:
        """Bytes, as the kernel's file says."""
        tiles = len(self._tiles)
        return PITCH + tiles * LANES * PITCH * self._lines + (TILE_BYTES * tiles if tiles > 1 else 0)

    def of_rows(self, rows: int) -> Tiling:
        """A call of so many rows."""
        if self.along_y:
            return replace(self, inner=self.inner.middle(rows))
        return replace(self, outer=self.outer.middle(rows))

    @property
    def counts(self) -> dict[str, int]:
        """Of the kernel's loops: tiles that are set up, words filled with zero points; groups of channels; where there
        are several bands, those of all groups, with what they set up and fill again, and words moved; tiles of all
        groups and bands; lines copied to planes (with their pixels by fours and by ones), or bytes of fewer channels;
        channels of a tile; lines by twos, with single columns and blocks of 2x2 outputs; other lines, with odd outputs
        and pairs of outputs (pairs_2 at stride 2)."""
        counts = dict.fromkeys(COSTS, 0)
        groups, tiles, bands = -(-self.channels // LANES), self._tiles, list(self.outer.bands(self.band))
        words = len(tiles) * LANES * PITCH // 4
        counts["set_tiles"] = len(tiles)
        counts["filled"] = words * self._lines
        counts["groups"] = groups
        if len(bands) > 1:
            counts["bands"] = groups * len(bands)
            counts["set_tiles_again"] = groups * len(bands) * len(tiles)
            counts["filled_again"] = groups * words * sum(band.outside for band in bands)
            counts["moved"] = groups * words * sum(band.kept for band in bands)
        for band in bands:
            for tile in tiles:
                counts["tiles"] += groups
                self._count_copies(counts, len(band.inside), len(tile.inside), groups)
                self._count_lines(counts, band.outputs, tile.outputs)
        return counts

    def _count_copies(self, counts: dict[str, int], lines: int, pixels: int, groups: int) -> None:
        if self.channels < LANES:
            counts["bytes"] += lines * pixels * self.channels
        elif pixels:
            counts["copied_lines"] += groups * lines
            counts["quads"] += groups * lines * (pixels // 4)
            counts["singles"] += groups * lines * (pixels % 4)

    def _count_lines(self, counts: dict[str, int], lines: int, outputs: int) -> None:
        doubled = lines // 2 if self.inner.stride == self.outer.stride == 1 else 0
        single = lines - 2 * doubled
        counts["channels"] += self.channels
        counts["double_lines"] += self.channels * doubled
        counts["columns"] += self.channels * doubled * (outputs % 2)
        counts["blocks"] += self.channels * doubled * (outputs // 2)
        counts["lines"] += self.channels * single
        counts["odd"] += self.channels * single * (outputs % 2)
        counts["pairs_2" if self.inner.stride == 2 else "pairs"] += self.channels * single * (outputs // 2)

    @property
    def cost(self) -> float:
        """Instructions, roughly."""
        return sum(COSTS[name] * count for name, count in self.counts.items())


def choose_tiling(rows: Axis, columns: Axis, channels: int, *, by_rows: bool = False) -> Tiling | None:
    """The tiling with the fewest instructions within the limits (or with the least memory), one that takes less memory
    where it hardly costs any; None where neither axis has stride 1 or 2.

    by_rows: for calls of one row each, which read from rings: a column of a ring lies in two parts, which costs more.
    Such calls get tiles along rows.
    """
    best = None
    found = [tiling for tiling in _tilings(rows, columns, channels) if not (by_rows and tiling.along_y)]
    for tiling in sorted(found, key=lambda tiling: (tiling.scratch, tiling.cost)):
        limit = ONE_BAND_BYTES if tiling.band >= tiling.outer.outputs else SCRATCH_BYTES
        if best is None or (tiling.scratch <= limit and tiling.cost < best.cost * GAIN):
            best = tiling
    return best


def _tilings(rows: Axis, columns: Axis, channels: int) -> Iterator[Tiling]:
    """Tilings worth a look: the fewest tiles of a line, or one more; bands of equal shares."""
    for along_y, inner, outer in ((False, columns, rows), (True, rows, columns)):
        if inner.stride > 2:
            continue
        fewest = -(-inner.outputs // (LINE_BYTES // inner.stride))
        for tiles in (fewest, fewest + 1):
            tile = -(-inner.outputs // tiles)
            for band in dict.fromkeys(-(-outer.outputs // parts) for parts in range(1, outer.outputs + 1)):
                yield Tiling(inner, outer, channels, tile, band, along_y)
