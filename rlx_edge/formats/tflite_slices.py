"""TFLite operators that take a part of a tensor, turn it around or repeat it, for INT8 and FLOAT32 alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tflite

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.formats.tflite_moves import Builder, moved_input
from rlx_edge.ir.ops import Concat, Expand, Narrow, Op, Pad, PadMode, Reshape, Reverse, Slice, Tile

Part = slice | int
"""Of an axis, as numpy's indexing has it; a number takes the axis away."""


def _emit(ctx: OpContext, x: int, ops: Sequence[Op]) -> int:
    """The operand through these ops, and at last in the shape that the output declares."""
    quant = ctx.type(x).quant
    for i, op in enumerate(ops):
        x = ctx.add_helper(op, (x,), f"part{i}", quant)
    return ctx.add(Reshape(ctx.output_type(ctx.type(x).dtype).shape), (x,), quant)


def _picked(ctx: OpContext, x: int, parts: Sequence[Part]) -> int:
    """x[parts]."""
    shape = ctx.type(x).shape
    if len(parts) > len(shape):
        raise ModelError(f"{ctx.describe()}: {len(parts)} axes of a tensor of rank {len(shape)}")
    ops: list[Op] = []
    for axis, part in enumerate(parts):
        if isinstance(part, int):
            if not -shape[axis] <= part < shape[axis]:
                raise ModelError(f"{ctx.describe()}: element {part} along axis {axis} of {shape[axis]}")
            part = slice(part % shape[axis], part % shape[axis] + 1)
        chosen = range(*part.indices(shape[axis]))
        if not chosen:
            raise UnsupportedError(f"no element is left along axis {axis}")
        if chosen == range(shape[axis]):
            continue
        one_by_one = chosen.step == 1 or len(chosen) == 1
        length = len(chosen)
        ops.append(Narrow(axis, chosen[0], length) if one_by_one else Slice(axis, chosen[0], length, chosen.step))
    return _emit(ctx, x, ops)


def slice_(ctx: OpContext) -> int:
    """A count of -1: to the end."""
    x, _ = moved_input(ctx)
    begins, counts = ctx.integers(1, "begins")[0], ctx.integers(2, "sizes")[0]
    if len(begins) != len(counts):
        raise ModelError(f"{ctx.describe()}: {len(begins)} begins, but {len(counts)} sizes")
    return _picked(ctx, x, [slice(b, None if n == -1 else b + n) for b, n in zip(begins, counts, strict=True)])


def strided_slice(ctx: OpContext) -> int:
    x, _ = moved_input(ctx)
    masks = {name: ctx.integer(f"{name}Mask") for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    if masks["Ellipsis"] or masks["NewAxis"] or ctx.operator.options.get("Offset"):
        raise UnsupportedError("an ellipsis, a new axis, or ends that count from the begins")
    columns = [ctx.integers(i, what)[0] for i, what in ((1, "begins"), (2, "ends"), (3, "strides"))]
    if len({len(column) for column in columns}) != 1 or 0 in columns[2]:
        raise ModelError(f"{ctx.describe()}: begins, ends and strides {columns}")
    parts: list[Part] = []
    for axis, (begin, end, step) in enumerate(zip(*columns, strict=True)):
        first = None if masks["Begin"] >> axis & 1 else begin
        if not masks["ShrinkAxis"] >> axis & 1:
            parts.append(slice(first, None if masks["End"] >> axis & 1 else end, step))
        elif first is None:  # A begin that is left out is so here too, unlike in TensorFlow.
            parts.append(0 if step > 0 else -1)
        else:
            parts.append(first)
    return _picked(ctx, x, parts)


def split(ctx: OpContext) -> int:
    """SPLIT: into as many equal parts as there are outputs, along the axis in operand 0."""
    x, _ = moved_input(ctx, 1)
    return _part(ctx, x, ctx.integers(0, "an axis")[0])


def split_v(ctx: OpContext) -> int:
    x, _ = moved_input(ctx)
    return _part(ctx, x, ctx.integers(2, "an axis")[0], ctx.integers(1, "sizes")[0])


def unpack(ctx: OpContext) -> int:
    x, _ = moved_input(ctx)
    return _part(ctx, x, [ctx.integer("Axis")])


def _part(ctx: OpContext, x: int, axes: Sequence[int], sizes: Sequence[int] | None = None) -> int:
    """One of the parts that an operator cuts a tensor into; equal ones where no sizes are given."""
    shape, count = ctx.type(x).shape, len(ctx.operator.outputs)
    if len(axes) != 1 or not -len(shape) <= axes[0] < len(shape):
        raise ModelError(f"{ctx.describe()}: axis {axes} of a tensor of rank {len(shape)}")
    axis = axes[0] % len(shape)
    if sizes is None:
        sizes = [shape[axis] // count] * count
    known = sum(size for size in sizes if size != -1)
    sizes = [shape[axis] - known if size == -1 else size for size in sizes]
    if len(sizes) != count or sum(sizes) != shape[axis] or min(sizes) < 1:
        raise ModelError(f"{ctx.describe()}: parts of {list(sizes)} of an axis of {shape[axis]}, for {count} outputs")
    first = sum(sizes[: ctx.position])
    return _picked(ctx, x, [slice(None)] * axis + [slice(first, first + sizes[ctx.position])])


def tile(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
    return ctx.add(Tile(tuple(ctx.integers(1, "counts")[0])), (x,), quant)


def reverse(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
    return ctx.add(Reverse(tuple(ctx.integers(1, "axes")[0])), (x,), quant)


def broadcast_to(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
    return ctx.add(Expand(tuple(ctx.integers(1, "a shape")[0])), (x,), quant)


def mirror_pad(ctx: OpContext) -> int:
    x, quant = moved_input(ctx)
    if ctx.integer("Mode") != tflite.MirrorPadMode.REFLECT:
        raise UnsupportedError("a mirror that repeats the edge; the mode REFLECT is supported")
    flat, shape = ctx.integers(1, "paddings")
    if shape != (len(ctx.type(x).shape), 2):
        raise ModelError(f"{ctx.describe()}: paddings of shape {list(shape)} for rank {len(ctx.type(x).shape)}")
    return ctx.add(Pad(tuple(zip(flat[::2], flat[1::2], strict=True)), PadMode.REFLECT), (x,), quant)


def pack(ctx: OpContext) -> int:
    """Tensors side by side along a new axis."""
    operands = [moved_input(ctx, i)[0] for i in range(len(ctx.operator.inputs))]
    if not operands:
        raise ModelError(f"{ctx.describe()} has no operand")
    shape, quant = ctx.type(operands[0]).shape, ctx.type(operands[0]).quant
    axis = ctx.integer("Axis")
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ModelError(f"{ctx.describe()}: axis {axis} for tensors of rank {len(shape)}")
    axis %= len(shape) + 1
    apart = Reshape((*shape[:axis], 1, *shape[axis:]))
    if len(operands) == 1:
        return ctx.add(apart, operands, quant)
    rows = [ctx.add_helper(apart, (x,), f"row{i}", quant) for i, x in enumerate(operands)]
    return ctx.add(Concat(axis), rows, quant)


SLICES: Mapping[str, Builder] = {
    "SLICE": slice_,
    "STRIDED_SLICE": strided_slice,
    "TILE": tile,
    "REVERSE_V2": reverse,
    "BROADCAST_TO": broadcast_to,
    "MIRROR_PAD": mirror_pad,
    "PACK": pack,
}

PARTS: Mapping[str, Builder] = {"SPLIT": split, "SPLIT_V": split_v, "UNPACK": unpack}
"""Operators with several outputs; `ctx.position` says which one is asked for."""
