"""ONNX ops that move elements, look them up or put them."""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.formats.onnx_node import TENSOR_LIMIT, Builder, OnnxNode, RefusedError, from_start, read_axes
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import (
    Cast,
    CmpOp,
    Compare,
    Concat,
    Expand,
    Gather,
    GatherElements,
    GatherNd,
    Narrow,
    Pad,
    PadMode,
    Reshape,
    ScatterElements,
    ScatterNd,
    ScatterNdReduction,
    Slice,
    Tile,
    Transpose,
    Trilu,
    Where,
)
from rlx_edge.ir.ops.base import broadcast_shapes


def flatten(node: OnnxNode) -> int:
    shape = node.shape(0)
    axis = node.integer("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return node.result(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), [node.operand(0)])


def reshape(node: OnnxNode) -> int:
    wanted = node.indices(1, "the new shape")
    held = node.shape(0)
    keep_zero = node.integer("allowzero", 0) != 0
    if any(d == 0 and (keep_zero or axis >= len(held)) for axis, d in enumerate(wanted)):
        raise RefusedError(f"a shape {list(wanted)} with an axis without elements")
    copied = tuple(held[axis] if d == 0 else d for axis, d in enumerate(wanted))
    known = math.prod(d for d in copied if d != -1)
    full = tuple(math.prod(held) // max(known, 1) if d == -1 else d for d in copied)
    return node.result(Reshape(full), [node.operand(0)])


def squeeze(node: OnnxNode) -> int:
    shape = node.shape(0)
    axes = read_axes(node, 1, before=13, default=[i for i, d in enumerate(shape) if d == 1])
    gone = set(from_start(axes, len(shape)))
    if any(shape[axis] != 1 for axis in gone):
        raise RefusedError(f"axes {sorted(gone)} of shape {list(shape)} do not all have one element")
    return node.result(Reshape(tuple(d for i, d in enumerate(shape) if i not in gone)), [node.operand(0)])


def unsqueeze(node: OnnxNode) -> int:
    axes = read_axes(node, 1, before=13, default=())
    rank = node.rank(0) + len(axes)
    added = set(from_start(axes, rank))
    if len(added) != len(axes):
        raise RefusedError(f"axes {list(axes)} name one axis twice")
    rest = iter(node.shape(0))
    return node.result(Reshape(tuple(1 if i in added else next(rest) for i in range(rank))), [node.operand(0)])


def transpose(node: OnnxNode) -> int:
    perm = node.integers("perm", tuple(reversed(range(node.rank(0)))))
    return node.result(Transpose(perm), [node.operand(0)])


def concat(node: OnnxNode) -> int:
    (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    parts = [i for i in range(node.operand_count) if len(node.shape(i)) != node.rank(0) or node.shape(i)[axis]]
    return node.result(Concat(axis), [node.operand(i) for i in parts])


def split(node: OnnxNode) -> list[int | None]:
    """One Narrow an output. Sizes are given, or equal; with `num_outputs` the last one may be smaller."""
    (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    size, parts = node.shape(0)[axis], len(node.proto.output)
    if node.integer("num_outputs", parts) != parts:
        raise RefusedError(f"attribute num_outputs is not the number of its outputs, {parts}")
    if node.opset >= 13 and node.given(1):
        sizes = node.indices(1, "operand split")
    else:
        share = -(-size // parts)
        sizes = node.integers("split", [min(share, size - i * share) for i in range(parts)])
    if len(sizes) != parts or sum(sizes) != size or min(sizes) < 0:
        raise RefusedError(f"an axis of {size} in parts of {list(sizes)}")
    x, shape, start = node.operand(0), node.shape(0), 0
    built: list[int | None] = []
    for i, part in enumerate(sizes):
        if part == 0:
            node.nothing(i, (*shape[:axis], 0, *shape[axis + 1 :]))
        built.append(node.result(Narrow(axis, start, part), [x], i) if node.wants(i) and part else None)
        start += part
    return built


def slice_axes(node: OnnxNode) -> int:
    """One Narrow or Slice an axis; bounds are clipped to the axis, as in Python."""
    shape = node.shape(0)
    if node.opset < 10:
        starts, ends = node.integers("starts", ()), node.integers("ends", ())
        axes, steps = node.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = node.indices(1, "operand starts"), node.indices(2, "operand ends")
        axes = node.indices(3, "operand axes") if node.given(3) else tuple(range(len(starts)))
        steps = node.indices(4, "operand steps") if node.given(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise RefusedError("starts, ends, axes and steps of different lengths")
    if 0 in steps:
        raise RefusedError("a step of 0")
    ops: list[Narrow | Slice] = []
    for axis, start, end, step in zip(from_start(axes, len(shape)), starts, ends, steps, strict=True):
        chosen = range(shape[axis])[_bound(start) : _bound(end) : step]
        if not chosen:
            raise RefusedError(f"a slice [{start}:{end}:{step}] of {shape[axis]} without elements")
        first, count = chosen[0], len(chosen)
        if count < shape[axis] or step < 0:
            ops.append(Narrow(axis, first, count) if step == 1 else Slice(axis, first, count, step))
    x = node.operand(0)
    if not ops:
        return node.result(Reshape(shape), [x])
    for op in ops[:-1]:
        x = node.step(op, [x], f"axis{op.axis}")
    return node.result(ops[-1], [x])


def _bound(index: int) -> int:
    """Exporters write ends as large as int64 has."""
    return max(-(1 << 62), min(index, 1 << 62))


def expand(node: OnnxNode) -> int:
    """ONNX broadcasts both ways: the operand's axes may also be larger than the shape's."""
    wanted = node.indices(1, "the new shape")
    if min(wanted, default=1) < 1:
        raise RefusedError(f"a shape {list(wanted)} with an axis without elements")
    return node.result(Expand(broadcast_shapes(node.shape(0), wanted)), [node.operand(0)])


def tile(node: OnnxNode) -> int:
    return node.result(Tile(node.indices(1, "operand repeats")), [node.operand(0)])


def pad(node: OnnxNode) -> int:
    """Negative amounts cut: a Narrow an axis before the Pad, which only then mirrors or repeats what is left."""
    mode = {"constant": PadMode.CONSTANT, "reflect": PadMode.REFLECT, "edge": PadMode.REPLICATE,
            "wrap": PadMode.CIRCULAR}.get(text := node.text("mode", "constant"))  # fmt: skip
    if mode is None:
        raise RefusedError(f"attribute mode={text} is not supported")
    shape = node.shape(0)
    if node.opset < 11:
        amounts, value = node.integers("pads", ()), node.real("value", 0.0)
    else:
        amounts = node.indices(1, "operand pads")
        value = node.number(2, "the padding value") if node.given(2) else 0.0
    axes = from_start(node.indices(3, "operand axes"), len(shape)) if node.given(3) else tuple(range(len(shape)))
    if len(amounts) != 2 * len(axes):
        raise RefusedError(f"pads {list(amounts)}: two numbers an axis are needed")
    x = node.operand(0)
    pairs = [(0, 0)] * len(shape)
    for i, axis in enumerate(axes):
        before, after = amounts[i], amounts[len(axes) + i]
        if min(before, after) < 0:
            kept = shape[axis] + min(before, 0) + min(after, 0)
            x = node.step(Narrow(axis, max(-before, 0), kept), [x], f"cut{axis}")
        pairs[axis] = (max(before, 0), max(after, 0))
    return node.result(Pad(tuple(pairs), mode, value if mode is PadMode.CONSTANT else 0.0), [x])


def gather(node: OnnxNode) -> int:
    """With one constant index or a constant run of them, a Narrow; else a Gather."""
    (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    shape, known = node.shape(0), node.known(1)
    first = None if known is None or known.ndim > 1 else _run_start(known.reshape(-1), shape[axis])
    if known is None or first is None:
        return node.result(Gather(axis), [node.operand(0), node.operand(1)])
    run = Narrow(axis, first, known.size)
    if known.ndim == 1:
        return node.result(run, [node.operand(0)])
    picked = node.step(run, [node.operand(0)], "picked")
    return node.result(Reshape((*shape[:axis], *shape[axis + 1 :])), [picked])


def _run_start(indices: Array, size: int) -> int | None:
    """The first of indices that rise by 1 within an axis of `size`, or None for others."""
    if indices.dtype.kind != "i" or not indices.size or np.any(np.diff(indices) != 1):
        return None
    first = int(indices[0]) + (size if indices[0] < 0 else 0)
    return first if 0 <= first <= size - indices.size else None


def gather_elements(node: OnnxNode) -> int:
    (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    return node.result(GatherElements(axis), [node.operand(0), node.operand(1)])


def gather_nd(node: OnnxNode) -> int:
    return node.result(GatherNd(node.integer("batch_dims", 0)), [node.operand(0), node.operand(1)])


def scatter_elements(node: OnnxNode) -> int:
    (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    op = ScatterElements(axis, _reduction(node))
    return node.result(op, [node.operand(0), node.operand(1), node.operand(2)])


def scatter_nd(node: OnnxNode) -> int:
    return node.result(ScatterNd(_reduction(node)), [node.operand(0), node.operand(1), node.operand(2)])


def _reduction(node: OnnxNode) -> ScatterNdReduction:
    text = node.text("reduction", "none")
    chosen = next((r for r in ScatterNdReduction if r.value.lower() == text), None)
    if chosen is None:
        raise RefusedError(f"attribute reduction={text} is not supported")
    return chosen


def trilu(node: OnnxNode) -> int:
    diagonal = node.index(1, "operand k") if node.given(1) else 0
    return node.result(Trilu(node.integer("upper", 1) != 0, diagonal), [node.operand(0)])


def depth_to_space(node: OnnxNode) -> int:
    """[N, C, H, W] -> [N, C/b^2, H*b, W*b]; the block's axes stand before (DCR) or behind (CRD) the channels."""
    n, c, h, w = _image(node)
    block, mode = node.integer("blocksize", 1), node.text("mode", "DCR")
    if block < 1 or c % (block * block) or mode not in ("DCR", "CRD"):
        raise RefusedError(f"{c} channels in blocks of {block} in mode {mode}")
    inner = c // (block * block)
    split = (n, block, block, inner, h, w) if mode == "DCR" else (n, inner, block, block, h, w)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    blocks = node.step(Reshape(split), [node.operand(0)], "blocks")
    moved = node.step(Transpose(perm), [blocks], "moved")
    return node.result(Reshape((n, inner, h * block, w * block)), [moved])


def space_to_depth(node: OnnxNode) -> int:
    """[N, C, H*b, W*b] -> [N, C*b^2, H, W]."""
    n, c, h, w = _image(node)
    block, mode = node.integer("blocksize", 1), node.text("mode", "DCR")
    if block < 1 or h % block or w % block or mode not in ("DCR", "CRD"):
        raise RefusedError(f"an image of {h} x {w} in blocks of {block} in mode {mode}")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = node.step(Reshape((n, c, h // block, block, w // block, block)), [node.operand(0)], "blocks")
    moved = node.step(Transpose(perm), [blocks], "moved")
    return node.result(Reshape((n, c * block * block, h // block, w // block)), [moved])


def _image(node: OnnxNode) -> tuple[int, int, int, int]:
    shape = node.shape(0)
    if len(shape) != 4:
        raise RefusedError(f"operand of shape {list(shape)}; only images [N, C, H, W] are supported")
    n, c, h, w = shape
    return n, c, h, w


def one_hot(node: OnnxNode) -> int:
    """Where an index along a new axis equals the operand (counted from the end where it is negative)."""
    wanted = node.number(1, "operand depth")
    rank = node.rank(0) + 1
    (axis,) = from_start([node.integer("axis", -1)], rank)
    if not 1 <= wanted <= TENSOR_LIMIT // max(1, math.prod(node.shape(0))):
        raise RefusedError(f"a depth of {wanted:g}")
    depth = int(wanted)
    indices = node.operand(0)
    if node.dtype(0) is not DType.I64:
        indices = node.step(Cast(DType.I64), [indices], "indices")
    shape = node.shape(0)
    grown = node.step(Reshape((*shape[:axis], 1, *shape[axis:])), [indices], "grown")
    places = np.arange(depth, dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(rank)])
    hot = node.step(Compare(CmpOp.EQ), [grown, node.values("places", places)], "hot")
    below = node.step(Compare(CmpOp.EQ), [grown, node.values("from_end", places - depth)], "hot_from_end")
    off = node.step(Narrow(0, 0, 1), [node.operand(2)], "off")
    on = node.step(Narrow(0, 1, 1), [node.operand(2)], "on")
    rest = node.step(Where(), [below, on, off], "from_end_only")
    return node.result(Where(), [hot, on, rest])


def compress(node: OnnxNode) -> int:
    """A Gather of the places where a constant condition holds."""
    chosen = np.flatnonzero(node.constant(1, "operand condition"))
    if not chosen.size:
        raise RefusedError("its result has no elements")
    x = node.operand(0)
    axis = 0
    if node.has("axis"):
        (axis,) = from_start([node.integer("axis", 0)], node.rank(0))
    else:
        x = node.step(Reshape((math.prod(node.shape(0)),)), [x], "flat")
    return node.result(Gather(axis), [x, node.values("chosen", chosen.astype(np.int64))])


OPS: dict[str, Builder] = {
    "Compress": compress,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "Pad": pad,
    "Reshape": reshape,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": slice_axes,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
