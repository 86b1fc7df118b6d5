"""What convolutions by tiles of 4 or 8 positions do beside multiplying: windows gathered singly, copied and widened.

Beside the counts that the variants make from sizes alone (cgen/variants/): these follow the C code from tile to tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlx_edge.cgen.plan import Call

POSITIONS = 4
OCTET = 8


@dataclass(frozen=True)
class _Lines:
    """Output rows as the kernels take them: a 1x1 convolution takes all of them as one. first_row: the first one's
    place; count and out_w: rows and their positions; in_w: pixels of an input row."""

    first_row: int
    count: int
    out_w: int
    in_w: int

    @property
    def tiles(self) -> int:
        return self.tiles_of(POSITIONS)

    def tiles_of(self, positions: int) -> int:
        return -(-self.count * self.out_w // positions)


def _lines(call: Call) -> _Lines:
    p, rows = call.params, call.rows - call.first_row
    if p["pointwise"]:
        return _Lines(0, 1, p["out_w"] * rows, p["in_w"] * rows)
    return _Lines(call.first_row, rows, p["out_w"], p["in_w"])


def _tiles(lines: _Lines, positions: int = POSITIONS) -> Iterator[range]:
    """The positions of each tile, of all lines one after the other."""
    total = lines.count * lines.out_w
    return (range(at, min(at + positions, total)) for at in range(0, total, positions))


def gathered_dsp(call: Call) -> Mapping[str, int]:
    """rlx_conv_dsp.h: windows that the image's border or the end of a ring of rows cuts are copied whole, between zero
    points."""
    p, lines = call.params, _lines(call)
    run = p["k_w"] * p["in_c"]
    room = lines.in_w + p["pad_left"] - p["k_w"]
    first = -(-p["pad_left"] // p["stride_w"])
    end = 0 if room < 0 else min(lines.out_w, room // p["stride_w"] + 1)
    counts = dict.fromkeys(("gathered", "copied_windows", "copied_rows", "copied_words", "copied_bytes"), 0)
    for tile in _tiles(lines):
        row, ox = divmod(tile.start, lines.out_w)
        if (
            _rows_inside(p, lines, row) == p["k_h"]
            and not _cut_by_ring(call, lines, row)
            and first <= ox
            and ox + POSITIONS <= end
        ):
            continue
        for row, ox in (divmod(position, lines.out_w) for position in tile):
            counts["gathered"] += 1
            rows = _rows_inside(p, lines, row)
            if rows < p["k_h"] or _cut_by_ring(call, lines, row) or not first <= ox < end:
                inside = _bytes_inside(p, lines, ox)
                counts["copied_windows"] += 1
                counts["copied_rows"] += rows
                counts["copied_words"] += rows * (inside // 4)
                counts["copied_bytes"] += rows * (inside % 4)
    return counts | {
        "lines": lines.count,
        "copied_zeros": counts["copied_windows"] * ((p["k_h"] * run + 3) // 4),
        "wide_rows": lines.tiles * p["k_h"],
        "wide_words": lines.tiles * p["k_h"] * (run // 4),
        "wide_rest": lines.tiles * p["k_h"] * (run % 4),
    }


def gathered_v7m(call: Call) -> Mapping[str, int]:
    """rlx_conv_v7m_s8.c: of windows that the left or right border cuts, each kernel row is copied."""
    p, lines = call.params, _lines(call)
    run = p["k_w"] * p["in_c"]
    counts = dict.fromkeys(("gathered_tiles", "gathered", "cut_positions", "cut_rows", "cut_bytes"), 0)
    for tile in _tiles(lines):
        ox = tile.start % lines.out_w
        x0 = ox * p["stride_w"] - p["pad_left"]
        x1 = x0 + (POSITIONS - 1) * p["stride_w"] + p["k_w"]
        if ox + POSITIONS <= lines.out_w and x0 >= 0 and x1 <= lines.in_w:
            continue
        counts["gathered_tiles"] += 1
        for row, ox in (divmod(position, lines.out_w) for position in tile):
            counts["gathered"] += 1
            inside = _bytes_inside(p, lines, ox)
            if inside < run:
                rows = _rows_inside(p, lines, row)
                counts["cut_positions"] += 1
                counts["cut_rows"] += rows
                counts["cut_bytes"] += rows * inside
    return counts | {
        "line_bytes": run * counts["cut_positions"],
        "gathered_rows": counts["gathered_tiles"] * p["k_h"],
        "wide_rows": lines.tiles * p["k_h"],
        "wide_fours": lines.tiles * p["k_h"] * (run // 4),
        "wide_rest": lines.tiles * p["k_h"] * (run % 4),
    }


def gathered_octets(call: Call) -> Mapping[str, int]:
    """rlx_octets.h: of windows that the left or right border cuts, kernel rows in the image are made byte by byte."""
    p, lines = call.params, _lines(call)
    run = p["k_w"] * p["in_c"]
    counts = dict.fromkeys(("gathered_tiles", "gathered", "gathered_rows", "cut_pixels", "cut_bytes"), 0)
    for tile in _tiles(lines, OCTET):
        ox = tile.start % lines.out_w
        x0 = ox * p["stride_w"] - p["pad_left"]
        x1 = x0 + (OCTET - 1) * p["stride_w"] + p["k_w"]
        if ox + OCTET <= lines.out_w and x0 >= 0 and x1 <= lines.in_w:
            continue
        counts["gathered_tiles"] += 1
        counts["gathered"] += len(tile)
        counts["gathered_rows"] += p["k_h"]
        for place in range(tile.start, tile.start + OCTET):  # positions that do not exist are the first one again
            row, ox = divmod(place if place in tile else tile.start, lines.out_w)
            if _bytes_inside(p, lines, ox) < run:
                rows = _rows_inside(p, lines, row)
                counts["cut_pixels"] += rows * p["k_w"]
                counts["cut_bytes"] += rows * run
    tiles = lines.tiles_of(OCTET)
    return counts | {
        "line_bytes": run * p["framed"],
        "wide_rows": tiles * p["k_h"],
        "wide_fours": tiles * p["k_h"] * (run // 4),
        "wide_rest": tiles * p["k_h"] * (run % 4),
    }


def _rows_inside(p: Mapping[str, int], lines: _Lines, row: int) -> int:
    """Kernel rows in the image."""
    if p["pointwise"]:
        return 1
    iy = (lines.first_row + row) * p["stride_h"] - p["pad_top"]
    return max(0, min(p["k_h"], p["in_h"] - iy) - max(0, -iy))


def _cut_by_ring(call: Call, lines: _Lines, row: int) -> bool:
    """Whether the kernel rows do not follow each other in memory."""
    p, ring = call.params, call.inputs[0].ring
    iy = (lines.first_row + row) * p["stride_h"] - p["pad_top"]
    return ring > 0 and iy % ring + p["k_h"] > ring


def _bytes_inside(p: Mapping[str, int], lines: _Lines, ox: int) -> int:
    """Bytes of a kernel row that lie between the image's left and right borders."""
    ix = ox * p["stride_w"] - p["pad_left"]
    return max(0, min(p["k_w"], lines.in_w - ix) - max(0, -ix)) * p["in_c"]
