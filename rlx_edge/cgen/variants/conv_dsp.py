"""Convolutions on Cortex-M4, M7 and M33: 4 positions x 2 channels a tile, or 2 x 4 where weights have 4 or 2 bits
(firmware/kernels/rlx_conv_dsp.h)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import window_order
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.rows import image_views
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import digits_dsp, packing, proofs
from rlx_edge.cgen.variants.digits_dsp import Digits
from rlx_edge.cgen.variants.proofs import Weighted
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import QConv2d
from rlx_edge.ir.ops.conv import pad_sides

POSITIONS = 4
DIGITS_UNROLL = 4
"""Of kernels of 4 and 2 bits: times 2 steps in a row."""

FIELDS = (
    *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
    *("stride_h", "stride_w", "pad_top", "pad_left", "x_zp", "low", "high"),
    *("steps", "pointwise"),
)
CONV = Kernel(
    "rlx_conv_dsp_s8",
    "rlx_conv_dsp_t",
    ("stream",),
    FIELDS,
    stack_bytes=960,
    scratch=True,
    order=partial(window_order, pixels=1),
)
"""Its tiles of 4 positions read earlier and write later than a pixel at a time does, which the order says."""


@dataclass(frozen=True)
class Form:
    """How the stream holds a pair of channels (c, d): rlx_gemm_dsp.h, RLX_GEMM_WEIGHTS.

    bits: |accumulator| is proved to be below 2^bits. weights: int64 [2 channels, steps, 2] to what the stream holds;
    biases: int64 [2] to int32 [2]. unroll: steps in a row between two looks at the loop's end.
    """

    kernel: Kernel
    bits: int
    weights: Callable[[Array], Array]
    biases: Callable[[Array], Array]
    unroll: int = 8


S8 = Form(CONV, 30, lambda pair: pair.transpose(1, 2, 0).astype(np.int8), packing.int32)
S16 = Form(
    replace(CONV, name="rlx_conv_dsp_w16_s8"),
    30,
    lambda pair: packing.int16(2 * pair).transpose(1, 0, 2),
    lambda bias: packing.int32(2 * bias),
    unroll=16,
)
JOINED = Form(
    replace(CONV, name="rlx_conv_dsp_joined_s8"),
    proofs.JOINED_BITS,
    lambda pair: packing.int16(packing.joined(*pair)),
    lambda bias: packing.wrapped(np.array([bias[0], packing.joined(*bias)])),
)


def step_order(k_h: int, run: int) -> Array:
    """Which weights a step multiplies: [steps, 2] indices into a window [k_h][run], -1 for none.

    Of each kernel row words of 4 values as (0, 2), (1, 3); then what is left over of all rows, two a step.
    """
    taps = np.arange(k_h * run).reshape(k_h, run)
    whole = run // 4 * 4
    words = taps[:, :whole].reshape(-1, 2, 2).swapaxes(1, 2) if whole else taps[:, :0].reshape(-1, 2, 2)
    rest = taps[:, whole:].ravel()
    rest = np.pad(rest, (0, len(rest) % 2), constant_values=-1)
    return np.concatenate([words.reshape(-1, 2), rest.reshape(-1, 2)])


def _with_zeros(w: Weighted) -> Array:
    """Weights with one more of 0, int64 [C_out, taps + 1]: what the step order's -1 stands for."""
    return np.pad(w.rows.astype(np.int64), ((0, 0), (0, 1)))


def pack(w: Weighted, offsets: Array, order: Array, form: Form) -> Array:
    """The stream of rlx_gemm_dsp.h: channel pairs with biases, weights step by step, and requantization."""
    rows = _with_zeros(w)
    pairs = packing.channel_groups(len(rows), 2)
    pieces = []
    for pair, moves in zip(pairs, packing.steps_to_next(pairs), strict=True):
        scales = [w.multipliers[pair], offsets[pair], w.shifts[pair] + 256 * moves]
        pieces += [form.biases(w.bias[pair]), form.weights(rows[pair][:, order])]
        pieces.append(packing.int32(np.stack(scales, axis=1)))
    return packing.stream(pieces)


def pack_digits(w: Weighted, order: Array, digits: Digits) -> Array:
    """The stream of rlx_digits_dsp.h, by 4 channels. order: an even number of steps."""
    rows = _with_zeros(w)
    quads = packing.channel_groups(len(rows), digits_dsp.CHANNELS)
    pieces = [digits_dsp.zero_point(w)]
    for quad, moves in zip(quads, packing.steps_to_next(quads), strict=True):
        pieces += [digits.start(w, quad), digits.numbers(rows[quad][:, order]), *digits_dsp.scales(w, quad, moves)]
    return packing.stream(pieces)


def _lower(graph: Graph, node: Node, form: Form) -> tuple[Call, ...] | str:
    """Calls of the form's kernel, or why it cannot compute the node."""
    found = _numbers(graph, node)
    if isinstance(found, str):
        return found
    w, order = found
    refused = proofs.limit_accumulators(w, form.bits)
    if form is JOINED:
        refused = proofs.limit_joined(w, packing.channel_groups(len(w.rows), 2))
    offsets = proofs.offsets(w)
    if refused is not None or isinstance(offsets, str):
        return refused or str(offsets)
    stream, work = pack(w, offsets, order, form), partial(_work, unroll=form.unroll)
    return _calls(
        graph, node, form.kernel, len(order), stream, work, w.text + (proofs.JOINED_TEXT if form is JOINED else "")
    )


def _lower_digits(graph: Graph, node: Node, kernel: Kernel, digits: Digits) -> tuple[Call, ...] | str:
    """Calls of a kernel for weights of 4 or 2 bits, or why it cannot compute the node."""
    found = _numbers(graph, node)
    if isinstance(found, str):
        return found
    w, order = found
    refused = digits.refused(w, packing.channel_groups(len(w.rows), digits_dsp.CHANNELS))
    offsets = proofs.offsets_of_doubled(w)
    if refused is not None or isinstance(offsets, str):
        return refused or str(offsets)
    even = np.pad(order, ((0, len(order) % 2), (0, 0)), constant_values=-1)
    return _calls(graph, node, kernel, len(even), pack_digits(w, even, digits), _work_digits, w.text)


def _numbers(graph: Graph, node: Node) -> tuple[Weighted, Array] | str:
    """The layer's numbers and the steps, when what all kernels here need holds."""
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    if op.groups != 1 or op.dilation != (1, 1):
        return "it has groups or dilation"
    w = proofs.weighted(graph, node)
    return w if isinstance(w, str) else (w, step_order(op.kernel_size[0], op.kernel_size[1] * x.type.shape[3]))


def _calls(
    graph: Graph, node: Node, kernel: Kernel, steps: int, stream: Array, work: Callable[..., dict[str, int]], proof: str
) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, QConv2d)
    params = _params(op, x.type.shape, node.type.shape, steps)
    scratch = 16 * steps + _copies(op, op.kernel_size[0] * op.kernel_size[1] * x.type.shape[3])
    constants = {"stream": Constant("stream", stream)}
    return tuple(
        Call(kernel, params, (source,), target, node.type.shape[1], constants, scratch, partial(work, params), proof)
        for source, target in zip(image_views(x.type, x.id), image_views(node.type, node.id), strict=True)
    )


def _copies(op: QConv2d, taps: int) -> int:
    """Scratch for copies of 4 windows that the image's border or a ring of rows cuts, in bytes."""
    return POSITIONS * (-(-taps // 4) * 4) if any(pad_sides(op.padding)) or op.kernel_size[0] > 1 else 0


def _params(op: QConv2d, x: tuple[int, ...], y: tuple[int, ...], steps: int) -> dict[str, int]:
    (k_h, k_w), (stride_h, stride_w) = op.kernel_size, op.stride
    top, left, _, _ = pad_sides(op.padding)
    pointwise = (k_h, k_w, stride_h, stride_w) == (1, 1, 1, 1) and not any(pad_sides(op.padding))
    return {
        **dict(in_h=x[1], in_w=x[2], in_c=x[3], out_w=y[2], out_c=y[3], k_h=k_h, k_w=k_w),
        **dict(stride_h=stride_h, stride_w=stride_w, pad_top=top, pad_left=left, x_zp=op.x_zp, **bounds(op.clamp)),
        **dict(steps=steps, pointwise=int(pointwise)),
    }


def _work(p: dict[str, int], rows: int, unroll: int) -> dict[str, int]:
    """Counts of the kernel's loops: tiles of 4 positions, tiles of 4 positions x 2 channels, passes of their unrolled
    loop, steps in them, steps widened, outputs that a narrower clamp goes over again."""
    positions, pairs = rows * p["out_w"], -(-p["out_c"] // 2)
    tiles = -(-positions // POSITIONS)
    tile_pairs = tiles * pairs
    return {
        "tiles": tiles,
        "tile_pairs": tile_pairs,
        "passes": tile_pairs * -(-p["steps"] // unroll),
        "steps": tile_pairs * p["steps"],
        "widened": tiles * p["steps"],
        "clamped": positions * p["out_c"] * int(p["low"] > -128 or p["high"] < 127),
    }


def _work_digits(p: dict[str, int], rows: int) -> dict[str, int]:
    """The same of tiles of 2 positions x 4 channels; those of 4 positions are widened and summed up. The second half
    of the last tile may be left out."""
    positions, quads = rows * p["out_w"], -(-p["out_c"] // digits_dsp.CHANNELS)
    tiles, halves = -(-positions // POSITIONS), -(-positions // 2)
    return {
        "tiles": tiles,
        "halves": halves,
        "tile_quads": halves * quads,
        "passes": halves * quads * -(-p["steps"] // 2 // DIGITS_UNROLL),
        "steps": halves * quads * p["steps"],
        "widened": tiles * p["steps"],
        "clamped": positions * p["out_c"] * int(p["low"] > -128 or p["high"] < 127),
    }


DIGITS = {bits: replace(CONV, name=f"rlx_conv_dsp_w{bits}_s8", stack_bytes=1088) for bits in (4, 2)}

VARIANTS = (
    *(
        Variant(
            f"conv_dsp_w{bits}",
            Isa.DSP,
            QConv2d,
            (kernel,),
            partial(_lower_digits, kernel=kernel, digits=Digits(bits)),
        )
        for bits, kernel in DIGITS.items()
    ),
    *(
        Variant(name, Isa.DSP, QConv2d, (form.kernel,), partial(_lower, form=form))
        for name, form in (("conv_dsp_joined", JOINED), ("conv_dsp", S8), ("conv_dsp_w16", S16))
    ),
)
