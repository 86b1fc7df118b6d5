"""Random models of one operator that takes parts of a tensor, turns it around or repeats it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tflite
from hypothesis import strategies as st

from oracles.single_ops import Build, Case, Draw
from oracles.tflite_writer import OpSpec
from rlx_edge.formats.export_tflite_context import INT8_VERSIONS


class Moved(Build):
    """A model of one operator on one tensor, which keeps its parameters."""

    def __init__(self, draw: Draw, least_rank: int = 1) -> None:
        super().__init__(draw)
        self.params = self.scale(), self.zero_point()
        self.shape = tuple(self.integer(1, 5) for _ in range(self.integer(least_rank, 4)))
        self.axis = self.integer(0, len(self.shape) - 1)
        self.x = self.input(self.shape, *self.params)

    def with_axis(self, size: int) -> tuple[int, ...]:
        return (*self.shape[: self.axis], size, *self.shape[self.axis + 1 :])

    def made(self, kind: str, inputs: Sequence[int], shapes: Sequence[Sequence[int]], **fields: Any) -> Case:
        outputs = [self.output(shape, *self.params) for shape in shapes]
        words = "".join("V" if word == "V" else word.capitalize() for word in kind.split("_"))
        version = INT8_VERSIONS.get(kind, 1)
        return self.case(OpSpec(kind, list(inputs), outputs, f"{words}Options", fields, version=version))


def slices(draw: Draw) -> Case:
    b = Moved(draw)
    begin = [b.integer(0, size - 1) for size in b.shape]
    count = [b.integer(1, size - first) for size, first in zip(b.shape, begin, strict=True)]
    given = [-1 if b.shape[i] - begin[i] == n and b.integer(0, 1) else n for i, n in enumerate(count)]
    return b.made("SLICE", [b.x, b.integers("begin", begin), b.integers("size", given)], [count])


def strided_slices(draw: Draw) -> Case:
    b = Moved(draw)
    columns: list[tuple[int, int, int]] = []
    masks = {"Begin": 0, "End": 0, "ShrinkAxis": 0}
    out = []
    for axis, size in enumerate(b.shape):
        step = draw(st.sampled_from([1, 1, 2, -1, -2, 3]))
        bounds = b.integer(-size - 1, size + 1), b.integer(-size - 1, size + 1)
        drop = {name: b.integer(0, 3) == 0 for name in ("Begin", "End")}
        chosen = range(size)[slice(*(None if drop[n] else v for n, v in zip(drop, bounds, strict=True)), step)]
        if b.integer(0, 4) == 0:
            columns.append((b.integer(-size, size - 1), 0, 1))
            masks["ShrinkAxis"] |= 1 << axis
            continue
        if not chosen:
            bounds, step, drop, chosen = (0, size), 1, {"Begin": False, "End": False}, range(size)
        columns.append((*bounds, step))
        masks["Begin"] |= drop["Begin"] << axis
        masks["End"] |= drop["End"] << axis
        out.append(len(chosen))
    operands = [b.integers(f"column{i}", values) for i, values in enumerate(zip(*columns, strict=True))]
    fields = {f"{name}Mask": mask for name, mask in masks.items()}
    return b.made("STRIDED_SLICE", [b.x, *operands], [out], **fields)


def splits(draw: Draw) -> Case:
    b = Moved(draw)
    count = draw(st.sampled_from([n for n in (1, 2, 3, 4, 5) if b.shape[b.axis] % n == 0]))
    parts = [b.with_axis(b.shape[b.axis] // count)] * count
    return b.made("SPLIT", [b.integers("axis", b.axis), b.x], parts, NumSplits=count)


def splits_v(draw: Draw) -> Case:
    b = Moved(draw)
    ends = sorted({*(b.integer(1, b.shape[b.axis]) for _ in range(2)), b.shape[b.axis]})
    sizes = np.diff([0, *ends]).tolist()
    given = [-1, *sizes[1:]] if b.integer(0, 1) else sizes
    operands = [b.x, b.integers("sizes", given), b.integers("axis", b.axis - len(b.shape) * b.integer(0, 1))]
    return b.made("SPLIT_V", operands, [b.with_axis(n) for n in sizes], NumSplits=len(sizes))


def unpacks(draw: Draw) -> Case:
    b = Moved(draw, least_rank=2)
    rest = (*b.shape[: b.axis], *b.shape[b.axis + 1 :])
    return b.made("UNPACK", [b.x], [rest] * b.shape[b.axis], Num=b.shape[b.axis], Axis=b.axis)


def packs(draw: Draw) -> Case:
    b = Moved(draw)
    operands = [b.x, *(b.input(b.shape, *b.params) for _ in range(b.integer(0, 2)))]
    axis = b.integer(0, len(b.shape))
    out = (*b.shape[:axis], len(operands), *b.shape[axis:])
    return b.made("PACK", operands, [out], ValuesCount=len(operands), Axis=axis)


def tiles(draw: Draw) -> Case:
    b = Moved(draw)
    counts = [b.integer(1, 3) for _ in b.shape]
    return b.made("TILE", [b.x, b.integers("counts", counts)], [np.multiply(b.shape, counts).tolist()])


def reverses(draw: Draw) -> Case:
    b = Moved(draw)
    return b.made("REVERSE_V2", [b.x, b.integers("axes", [b.axis])], [b.shape])


def broadcasts(draw: Draw) -> Case:
    b = Moved(draw)
    out = [size if size > 1 else b.integer(1, 4) for size in b.shape]
    return b.made("BROADCAST_TO", [b.x, b.integers("shape", out)], [out])


def mirror_pads(draw: Draw) -> Case:
    b = Moved(draw)
    pads = [[b.integer(0, size - 1), b.integer(0, size - 1)] for size in b.shape]
    out = [size + sum(pad) for size, pad in zip(b.shape, pads, strict=True)]
    mode = tflite.MirrorPadMode.REFLECT
    return b.made("MIRROR_PAD", [b.x, b.integers("pads", pads)], [out], Mode=mode)


_BUILDS: Mapping[str, Callable[[Draw], Case]] = {
    "SLICE": slices,
    "STRIDED_SLICE": strided_slices,
    "SPLIT": splits,
    "SPLIT_V": splits_v,
    "UNPACK": unpacks,
    "PACK": packs,
    "TILE": tiles,
    "REVERSE_V2": reverses,
    "BROADCAST_TO": broadcasts,
    "MIRROR_PAD": mirror_pads,
}

SINGLE_SLICES: Mapping[str, st.SearchStrategy[Case]] = {name: st.composite(build)() for name, build in _BUILDS.items()}
"""One strategy an operator; each draws a Case."""
