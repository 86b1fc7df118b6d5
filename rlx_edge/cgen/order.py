"""In which order a kernel reads its inputs and writes its output: what lets the planner overlap the two.

A kernel says so by a function from a call to its `Accesses`: events in the order of time, each "reads bytes
[first, end) of operand k" or "writes bytes [first, end) of the output". Bytes count from row 0 of the operand's (or the
output's) view, row y beginning at y * pitch whether the view is a ring or not. Only the rows
[call.first_row, call.rows) are computed, and only their events may appear.

What an order promises, byte by byte:
- every byte that the kernel reads and uses is read no later than its last declared read;
- every byte that it writes, it writes no earlier than its first declared write.
So declared reads may cover too much and last too long, declared writes may cover too much and begin too early: that
only loses memory. A kernel that works channel by channel on a pixel, say, reads the pixel's window again after it wrote
some of the pixel: `reads_again=True` declares the write first and the read after it.

The promise is about the machine's loads and stores. C kernels keep it as written, as int8_t may alias anything; a block
of inline assembly that loads or stores needs a "memory" clobber. A last tile that is moved back so as to be full (and
computes some pixels twice) breaks `window_order`, which takes it to be short: read its pixels early or do not do that.

Kernel authors pick one of these, by itself or through functools.partial:
- window_order     convolution, pooling: a tile of pixels at a time, along each output row
- band_order       the same in bands of whole output rows
- sliding_order    depthwise by blocks of channels: each reads and writes its own channels only
- pointwise_order  1x1 windows over rows that follow each other in memory: tiles may cross from one row into the next
- rowwise_order    one row of each operand gives one row of output: matrix products
- elementwise_order, binary_order, cast_order, copy_order, mean_order, softmax_order, pad_order, strided_order
A kernel that declares none is taken to write everything before it reads anything, so nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlx_edge.ir import Array

if TYPE_CHECKING:
    from rlx_edge.cgen.plan import Call

OUTPUT = -1
NO_EVENT = -(1 << 60)
"""The end of an event that does not happen."""
PIECES = 8
"""Of a row of elements, each of which takes the place of another."""


@dataclass(frozen=True, eq=False)
class Accesses:
    """Events in the order of time. operands: int8 [n], an index into the call's inputs or OUTPUT; firsts, ends: int64
    [n], bytes from the view's row 0. No event is empty."""

    operands: Array
    firsts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.operands)


Order = Callable[["Call"], Accesses]


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution or pooling, in pixels; pitches in bytes; in_c and out_c in bytes a pixel."""

    in_h: int
    in_w: int
    in_c: int
    out_w: int
    out_c: int
    k_h: int
    k_w: int
    stride_h: int
    stride_w: int
    pad_top: int
    pad_left: int
    x_pitch: int
    y_pitch: int
    dilation_h: int = 1
    dilation_w: int = 1

    @classmethod
    def of(cls, call: Call) -> Window:
        """From parameters named as in rlx_conv_t or rlx_pool_t."""
        p = call.params
        names = ("in_h", "in_w", "out_w", "k_h", "k_w", "stride_h", "stride_w", "pad_top", "pad_left")
        return cls(
            **{name: p[name] for name in names},
            in_c=p["in_c"] if "in_c" in p else p["channels"],
            out_c=call.output.pitch // p["out_w"],
            dilation_h=p.get("dilation_h", 1),
            dilation_w=p.get("dilation_w", 1),
            x_pitch=call.inputs[0].pitch,
            y_pitch=call.output.pitch,
        )

    def input_rows(self, y0: int, y1: int) -> tuple[int, int]:
        """The input rows [first, end) that output rows [y0, y1) need; empty when all lie in the padding."""
        first = max(0, y0 * self.stride_h - self.pad_top)
        end = min(self.in_h, (y1 - 1) * self.stride_h - self.pad_top + (self.k_h - 1) * self.dilation_h + 1)
        return first, max(first, end)


def window_order(call: Call, *, pixels: int = 1, reads_again: bool = False) -> Accesses:
    """Output rows one after the other, in each row tiles of `pixels` from left to right (0: the whole row).

    A tile's windows are read before any of it is written; or, with `reads_again`, until all of it is written.
    """
    return window_accesses(Window.of(call), call.first_row, call.rows, pixels, reads_again)


def window_accesses(w: Window, y0: int, y1: int, pixels: int = 1, reads_again: bool = False) -> Accesses:
    """`window_order` of plain numbers, for kernels whose parameters have other names."""
    left = np.arange(0, w.out_w, pixels or w.out_w)
    right = np.minimum(left + (pixels or w.out_w), w.out_w)
    x0 = np.maximum(0, left * w.stride_w - w.pad_left)
    x1 = np.minimum(w.in_w, (right - 1) * w.stride_w - w.pad_left + (w.k_w - 1) * w.dilation_w + 1)
    y = np.arange(y0, y1)
    rows = y[:, None] * w.stride_h - w.pad_top + np.arange(w.k_h) * w.dilation_h  # [rows, k_h]
    inside = (rows >= 0) & (rows < w.in_h)
    starts = rows[:, None, :] * w.x_pitch  # [rows, 1, k_h]
    reads = _Lane(0, starts + x0[:, None] * w.in_c, np.where(inside[:, None], starts + x1[:, None] * w.in_c, NO_EVENT))
    out = (y * w.y_pitch)[:, None, None]
    writes = _Lane(OUTPUT, out + left[:, None] * w.out_c, out + right[:, None] * w.out_c)
    return _woven([writes, reads] if reads_again else [reads, writes])


def band_order(call: Call, *, rows: int = 0, reads_again: bool = False) -> Accesses:
    """As `window_order`, in bands of `rows` whole output rows (0: all rows of the call at once), from its first row."""
    w = Window.of(call)
    parts = []
    for y in range(call.first_row, call.rows, rows or max(1, call.rows - call.first_row)):
        end = min(call.rows, y + rows) if rows else call.rows
        x0, x1 = w.input_rows(y, end)
        read, write = (0, x0 * w.x_pitch, x1 * w.x_pitch), (OUTPUT, y * w.y_pitch, end * w.y_pitch)
        parts.append(events([write, read] if reads_again else [read, write]))
    return joined(parts)


def sliding_order(call: Call, *, channels: int, band: int, upright: bool) -> Accesses:
    """Depthwise, as many channels out as in: `channels` channels after the others, each in bands of `band` output rows
    (columns, if upright). The pixels of a band that none before it has read are read, then its outputs are written.

    Told pixel by pixel, so that the planner sees when y may lie where x lies.
    """
    w = Window.of(call)
    rows, columns = range(call.first_row, call.rows), range(w.out_w)
    size = len(columns) if upright else len(rows)
    parts, row, column = [], 0, 0
    for start in range(0, size, band):
        ys, xs = (rows, columns[start : start + band]) if upright else (rows[start : start + band], columns)
        top, end = w.input_rows(ys.start, ys.stop)
        left = max(0, xs.start * w.stride_w - w.pad_left)
        right = min(w.in_w, (xs.stop - 1) * w.stride_w - w.pad_left + w.k_w)
        reads = pixels(range(max(top, row), end), range(max(left, column), right), w.x_pitch, w.in_c)
        writes = pixels(ys, xs, w.y_pitch, w.out_c)
        parts += [(np.zeros_like(reads), reads), (np.full_like(writes, OUTPUT), writes)]
        row, column = (0, right) if upright else (end, 0)
    operands, firsts = (np.concatenate(part) for part in zip(*parts, strict=True))
    starts = np.arange(0, w.out_c, channels)[:, None]
    ends = np.minimum(starts + channels, w.out_c)
    return Accesses(np.tile(operands, len(starts)).astype(np.int8), (firsts + starts).ravel(), (firsts + ends).ravel())


def pixels(rows: range, columns: range, pitch: int, channels: int) -> Array:
    """The first byte of each pixel of a block, int64 [rows * columns]."""
    places = np.array(rows, np.int64)[:, None] * pitch + np.array(columns, np.int64) * channels
    return np.asarray(places.ravel())


def pointwise_order(call: Call, *, pixels: int, reads_again: bool = False) -> Accesses:
    """1x1 windows, stride 1, no padding, over all pixels of the call's rows in tiles that may span rows. Both views
    must be dense (no ring, pitch = width * channels)."""
    w = Window.of(call)
    count = call.rows * w.out_w
    left = np.arange(call.first_row * w.out_w, count, pixels)
    right = np.minimum(left + pixels, count)
    reads = _Lane(0, left[:, None] * w.in_c, right[:, None] * w.in_c)
    writes = _Lane(OUTPUT, left[:, None] * w.out_c, right[:, None] * w.out_c)
    return _woven([writes, reads] if reads_again else [reads, writes])


def rowwise_order(call: Call, *, reads_again: bool = True) -> Accesses:
    """Row y of every operand gives row y of the output; an operand's row is read until the output's row is written, or
    before any of it is (a kernel that copies its input to scratch first)."""
    y = np.arange(call.first_row, call.rows)[:, None]
    lanes = [_Lane(k, y * view.pitch, (y + 1) * view.pitch) for k, view in enumerate(call.inputs)]
    write = _Lane(OUTPUT, y * call.output.pitch, (y + 1) * call.output.pitch)
    return _woven([write, *lanes] if reads_again else [*lanes, write])


def elementwise_order(call: Call) -> Accesses:
    """Each int8 element of a row of `width` gives the element at the same place, in the order of memory."""
    return _in_place(call, call.params["width"])


def copy_order(call: Call) -> Accesses:
    """The first `bytes` bytes of each row."""
    return _in_place(call, call.params["bytes"])


def _in_place(call: Call, width: int) -> Accesses:
    """Rows of `width` bytes, each read from every operand right before it is written at the same place of the output.

    Told in a few pieces a row, not byte by byte: wherever the two rows lie, when a byte is written too early for a
    later byte's read, so is one of at least two pieces. (Written k bytes above where it was read, byte i falls on byte
    i + k, still to be read. Some such pair lies in two pieces unless there is but one.)
    """
    y = np.arange(call.first_row, call.rows)[:, None, None]
    step = -(-width // min(PIECES, max(width, 1))) or 1
    first = np.arange(0, width, step)[:, None]
    end = np.minimum(first + step, width)
    lanes = [_Lane(k, y * view.pitch + first, y * view.pitch + end) for k, view in enumerate(call.inputs)]
    return _woven([*lanes, _Lane(OUTPUT, y * call.output.pitch + first, y * call.output.pitch + end)])


def cast_order(call: Call, *, read: int, write: int) -> Accesses:
    """Elements of `read` bytes in rows of `width`, which become elements of `write` bytes, one after the other."""
    y = np.arange(call.first_row, call.rows)[:, None, None]
    i = np.arange(call.params["width"])[:, None]
    source, target = y * call.inputs[0].pitch + i * read, y * call.output.pitch + i * write
    return _woven([_Lane(0, source, source + read), _Lane(OUTPUT, target, target + write)])


def binary_order(call: Call) -> Accesses:
    """Elements of two operands, either of which may broadcast (rlx_binary_t), in the order of the output's memory."""
    p = call.params
    if all(p[f"{k}_stride_c"] == 1 and (p["width"] == 1 or p[f"{k}_stride_w"] == p["channels"]) for k in "ab"):
        return _in_place(call, p["width"] * p["channels"])
    y = np.arange(call.first_row, call.rows)[:, None, None, None]
    w, c = np.arange(p["width"])[:, None, None], np.arange(p["channels"])[:, None]
    lanes = []
    for k, name in enumerate("ab"):
        at = y * call.inputs[k].pitch + w * p[f"{name}_stride_w"] + c * p[f"{name}_stride_c"]
        lanes.append(_Lane(k, at, at + 1))
    at = y * call.output.pitch + w * p["channels"] + c
    return _woven([*lanes, _Lane(OUTPUT, at, at + 1)])


def mean_order(call: Call) -> Accesses:
    """Each output element sums over its column of x (rlx_mean_t) before it is written."""
    p = call.params
    y = np.arange(call.first_row, call.rows)[:, None, None, None]
    i, c = np.arange(p["keep_1"])[:, None, None], np.arange(p["keep_2"])[:, None]
    block = p["reduce_1"] * p["keep_2"]
    first = y * call.inputs[0].pitch + i * block + c
    span = (p["reduce_0"] - 1) * p["keep_1"] * block + (p["reduce_1"] - 1) * p["keep_2"] + 1
    at = y * call.output.pitch + i * p["keep_2"] + c
    return _woven([_Lane(0, first, first + span), _Lane(OUTPUT, at, at + 1)])


def pool_sum_order(call: Call) -> Accesses:
    """For each channel of an input row: its column and the sum before are read, then the sum is written."""
    p, pitch, sums = call.params, call.inputs[0].pitch, call.output.pitch
    y, c = np.arange(call.first_row, call.rows)[:, None, None], np.arange(p["channels"])[:, None]
    column = y * pitch + c
    before = (y - 1) * sums + 4 * c
    return _woven(
        [
            _Lane(0, column, column + (p["in_w"] - 1) * p["channels"] + 1),
            _Lane(1, before, np.where(y > 0, before + 4, NO_EVENT)),
            _Lane(OUTPUT, before + sums, before + sums + 4),
        ]
    )


def pool_mean_order(call: Call) -> Accesses:
    """The last row of sums is read while the output is written."""
    last, pitch = (call.params["in_h"] - 1) * call.inputs[0].pitch, call.output.pitch
    written = (OUTPUT, call.first_row * pitch, call.rows * pitch)
    return events([written, (0, last, last + call.inputs[0].pitch)])


def softmax_order(call: Call) -> Accesses:
    """Rows of `width`: all of a row is read, then each element again before its result is written."""
    width = call.params["width"]
    parts = []
    for y in range(call.first_row, call.rows):
        x, out = y * call.inputs[0].pitch, y * call.output.pitch
        i = np.arange(width)[:, None]
        parts.append(events([(0, x, x + width)]))
        parts.append(_woven([_Lane(0, x + i, x + i + 1), _Lane(OUTPUT, out + i, out + i + 1)]))
    return joined(parts)


def pad_order(call: Call) -> Accesses:
    """Each output row is written while the input row that it holds, if any, is read (rlx_pad_t)."""
    p, pitch = call.params, call.inputs[0].pitch
    y = np.arange(call.first_row, call.rows)[:, None]
    source = y - p["top"]
    inside = (source >= 0) & (source < p["in_h"])
    write = _Lane(OUTPUT, y * call.output.pitch, (y + 1) * call.output.pitch)
    return _woven([write, _Lane(0, source * pitch, np.where(inside, (source + 1) * pitch, NO_EVENT))])


def strided_order(call: Call) -> Accesses:
    """Each output row is written while the elements that it holds are read: from the least to the greatest place
    (rlx_transpose_t, whose strides may be negative)."""
    p = call.params
    spans = [(p[f"d{i}"] - 1) * p[f"stride_{i}"] for i in (1, 2, 3)]
    y = np.arange(call.first_row, call.rows)[:, None]
    first = y * p["stride_0"] + sum(min(span, 0) for span in spans)
    end = y * p["stride_0"] + sum(max(span, 0) for span in spans) + 1
    pitch = call.output.pitch
    return _woven([_Lane(OUTPUT, y * pitch, (y + 1) * pitch), _Lane(0, first, end)])


def events(items: Sequence[tuple[int, int, int]]) -> Accesses:
    """From (operand index or OUTPUT, first byte, end byte); empty ranges are left out."""
    kept = [item for item in items if item[2] > item[1]]
    table = np.array(kept, np.int64).reshape(-1, 3)
    return Accesses(table[:, 0].astype(np.int8), table[:, 1], table[:, 2])


def joined(parts: Sequence[Accesses]) -> Accesses:
    """One after the other."""
    if not parts:
        return events([])
    return Accesses(
        np.concatenate([part.operands for part in parts]),
        np.concatenate([part.firsts for part in parts]),
        np.concatenate([part.ends for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class _Lane:
    """Events of one operand: ranges [..., m], m one after the other at each place of the loops that `...` are. An event
    that ends before it begins does not happen."""

    operand: int
    firsts: Array
    ends: Array


def _woven(lanes: Sequence[_Lane]) -> Accesses:
    """At each place of the loops the events of all lanes in turn; the places in C order."""
    outer = np.broadcast_shapes(*(lane.firsts.shape[:-1] for lane in lanes), *(lane.ends.shape[:-1] for lane in lanes))
    operands, firsts, ends = [], [], []
    for lane in lanes:
        shape = (*outer, np.broadcast_shapes(lane.firsts.shape[-1:], lane.ends.shape[-1:])[0])
        operands.append(np.broadcast_to(np.int8(lane.operand), shape))
        firsts.append(np.broadcast_to(lane.firsts, shape))
        ends.append(np.broadcast_to(lane.ends, shape))
    operand, first, end = (np.concatenate(part, axis=-1).ravel() for part in (operands, firsts, ends))
    kept = end > first
    return Accesses(operand[kept], first[kept].astype(np.int64), end[kept].astype(np.int64))
