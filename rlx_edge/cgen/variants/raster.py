"""The order of kernels that take positions in tiles which run through the rows of the output as one line."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen.order import NO_EVENT, OUTPUT, Accesses, Window
from rlx_edge.cgen.plan import Call

POSITIONS = 4


def raster_order(call: Call, positions: int = POSITIONS) -> Accesses:
    """All windows of a tile are read before any of its outputs is written. A tile's positions may lie in two or more
    rows; the last tile has as many as are left."""
    w = Window.of(call)
    first, end = call.first_row * w.out_w, call.rows * w.out_w
    count = -(-(end - first) // positions)
    place = np.minimum(first + np.arange(count * positions), end - 1)
    y, x = place // w.out_w, place % w.out_w
    row = y[:, None] * w.stride_h - w.pad_top + np.arange(w.k_h)  # [positions, k_h]
    left = np.maximum(0, x * w.stride_w - w.pad_left)
    right = np.minimum(w.in_w, x * w.stride_w - w.pad_left + w.k_w)
    inside = (row >= 0) & (row < w.in_h) & (right > left)[:, None]
    start = row * w.x_pitch
    read_first = start + left[:, None] * w.in_c
    read_end = np.where(inside, start + right[:, None] * w.in_c, NO_EVENT)
    write = y * w.y_pitch + x * w.out_c
    tiles = (count, -1)
    firsts = np.concatenate([read_first.reshape(tiles), write.reshape(tiles)], axis=1)
    ends = np.concatenate([read_end.reshape(tiles), (write + w.out_c).reshape(tiles)], axis=1)
    operands = np.zeros(firsts.shape, np.int8)
    operands[:, positions * w.k_h :] = OUTPUT
    kept = ends > firsts
    return Accesses(operands[kept], firsts[kept].astype(np.int64), ends[kept].astype(np.int64))


def tiles(call_rows: int, out_w: int, positions: int = POSITIONS) -> int:
    """How many tiles a call of `call_rows` rows takes."""
    return -(-call_rows * out_w // positions)
