"""How depthwise_dsp cuts an output into tiles: which tile and which direction of lines take the fewest instructions.

The counts of instructions are those of firmware/kernels/rlx_depthwise_dsp.h, per piece of its loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.order import OUTPUT, Accesses, Window, joined, pixels

LANES, PITCH, TAPS = 4, 32, 3
LINE_BYTES = 30
"""Outputs of a line * inner stride: what a line of the planes has room for, beside the two pixels that follow."""
SCRATCH_BYTES = 2080
GAIN = 0.95
"""More memory is taken only where it saves at least 5% of the instructions."""

COSTS: Mapping[str, int] = {
    **{"tiles": 150, "filled": 2, "groups": 110, "copied_lines": 12, "quads": 23, "singles": 11},
    **{"channels": 38, "double_lines": 8, "columns": 42, "blocks": 62},
    **{"lines": 8, "odd": 24, "pairs": 34, "pairs_2": 40},
}
"""Instructions of each count in `Tiling.work`, roughly."""


@dataclass(frozen=True)
class Tiling:
    """Tiles of `height` x `width` outputs; lines along y or along x."""

    height: int
    width: int
    along_y: bool


@dataclass(frozen=True)
class Tile:
    """Output rows [y0, y1) and columns [x0, x1), and the input's [row0, row1) and [column0, column1) that they need."""

    y0: int
    y1: int
    x0: int
    x1: int
    row0: int
    row1: int
    column0: int
    column1: int


def scratch_bytes(tiling: Tiling, stride: tuple[int, int]) -> int:
    """What the kernel's file says."""
    outer = (tiling.width - 1) * stride[1] if tiling.along_y else (tiling.height - 1) * stride[0]
    return PITCH + LANES * PITCH * (outer + TAPS)


def tiles(w: Window, tiling: Tiling, first_row: int, rows: int) -> Iterator[Tile]:
    """The tiles of output rows [first_row, rows) in the kernel's order, for an output that is no ring."""
    for y0 in range(first_row, rows, tiling.height):
        y1 = min(rows, y0 + tiling.height)
        row0, row1 = w.input_rows(y0, y1)
        for x0 in range(0, w.out_w, tiling.width):
            x1 = min(w.out_w, x0 + tiling.width)
            left = x0 * w.stride_w - w.pad_left
            column0 = max(0, left)
            column1 = max(column0, min(w.in_w, left + (x1 - x0 - 1) * w.stride_w + w.k_w))
            yield Tile(y0, y1, x0, x1, row0, row1, column0, column1)


def work(w: Window, tiling: Tiling, rows: int) -> dict[str, int]:
    """Counts of the kernel's loops: tiles, words filled around the image, groups of channels, lines copied to planes
    (with their pixels by fours and by ones), channels of a tile; lines by twos, with single columns and blocks of 2x2
    outputs; other lines, with odd outputs and pairs of outputs (pairs_2 at stride 2)."""
    counts = dict.fromkeys((*COSTS, "clamped"), 0)
    for tile in tiles(w, tiling, 0, rows):
        _count_copies(w, tiling, tile, counts)
        counts["channels"] += w.out_c
        lines, outputs = tile.y1 - tile.y0, tile.x1 - tile.x0
        inner = w.stride_w
        if tiling.along_y:
            lines, outputs, inner = outputs, lines, w.stride_h
        doubled = lines // 2 if w.stride_h == w.stride_w == 1 else 0
        counts["double_lines"] += w.out_c * doubled
        counts["columns"] += w.out_c * doubled * (outputs % 2)
        counts["blocks"] += w.out_c * doubled * (outputs // 2)
        single = w.out_c * (lines - 2 * doubled)
        counts["lines"] += single
        counts["odd"] += single * (outputs % 2)
        counts["pairs_2" if inner == 2 else "pairs"] += single * (outputs // 2)
    return counts


def _count_copies(w: Window, tiling: Tiling, tile: Tile, counts: dict[str, int]) -> None:
    groups = -(-w.out_c // LANES)
    reach_h = (tile.y1 - tile.y0 - 1) * w.stride_h + TAPS
    reach_w = (tile.x1 - tile.x0 - 1) * w.stride_w + TAPS
    lines, pixels = copied = (tile.row1 - tile.row0, tile.column1 - tile.column0)
    filled = PITCH * reach_h
    if tiling.along_y:
        lines, pixels, filled = pixels, lines, PITCH * reach_w
    counts["tiles"] += 1
    counts["groups"] += groups
    counts["filled"] += filled if copied != (reach_h, reach_w) else 0
    if lines and pixels:
        counts["copied_lines"] += groups * lines
        counts["quads"] += groups * lines * (pixels // 4)
        counts["singles"] += groups * lines * (pixels % 4)


def choose_tiling(w: Window, rows: int) -> Tiling | None:
    """The tiling with the fewest instructions within SCRATCH_BYTES, one that takes less memory where it hardly costs
    any; None where neither axis has stride 1 or 2."""
    found = [(t, _cost(w, t, rows), _memory(w, t, rows)) for t in _tilings(w, rows)]
    if not found:
        return None
    best = None
    for tiling, cost, _ in sorted(found, key=lambda item: (item[2], item[1])):
        if best is None or cost < best[1] * GAIN:
            best = (tiling, cost)
    assert best is not None
    return best[0]


def _memory(w: Window, tiling: Tiling, rows: int) -> int:
    """Bytes of scratch, and of the output that is written before the input beside it has been read: about the rows of
    a tile, unless one tile is all."""
    ahead = 0 if tiling.height >= rows and tiling.width >= w.out_w else tiling.height * w.y_pitch
    return scratch_bytes(tiling, (w.stride_h, w.stride_w)) + ahead


def _cost(w: Window, tiling: Tiling, rows: int) -> int:
    return sum(COSTS[name] * count for name, count in work(w, tiling, rows).items() if name in COSTS)


def _tilings(w: Window, rows: int) -> Iterator[Tiling]:
    """Tilings worth a look: equal shares of each axis, within the bounds of a line and of the scratch."""
    most = (SCRATCH_BYTES - PITCH) // (LANES * PITCH) - TAPS
    for along_y, inner, outer in ((False, w.stride_w, w.stride_h), (True, w.stride_h, w.stride_w)):
        if inner > 2:
            continue
        in_line, lines = LINE_BYTES // inner, most // outer + 1
        for height in _shares(rows, in_line if along_y else lines):
            for width in _shares(w.out_w, lines if along_y else in_line):
                yield Tiling(height, width, along_y)


def _shares(size: int, most: int) -> Iterator[int]:
    """Lengths at most `most`, each the shortest that cuts `size` into as many parts."""
    yield from dict.fromkeys(-(-size // parts) for parts in range(-(-size // most), -(-size // most) + 4))


def accesses(w: Window, tiling: Tiling, first_row: int, rows: int) -> Accesses:
    """Tile by tile, 4 channels at a time: a tile's pixels of these channels are read, then its outputs are written."""
    parts = []
    for tile in tiles(w, tiling, first_row, rows):
        reads = pixels(range(tile.row0, tile.row1), range(tile.column0, tile.column1), w.x_pitch, w.in_c)
        writes = pixels(range(tile.y0, tile.y1), range(tile.x0, tile.x1), w.y_pitch, w.out_c)
        for channel in range(0, w.out_c, LANES):
            end = min(w.out_c, channel + LANES)
            for operand, places in ((0, reads), (OUTPUT, writes)):
                operands = np.full(len(places), operand, np.int8)
                parts.append(Accesses(operands, places + channel, places + end))
    return joined(parts)
