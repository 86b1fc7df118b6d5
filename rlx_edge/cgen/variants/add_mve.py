"""Sums and differences on Cortex-M55 and M85 (firmware/kernels/rlx_add_mve_s8.c)."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.plan import Call, Constant, View, proportional
from rlx_edge.cgen.rows import image_views, rows_of
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import add
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, FrozenAdd, Graph, Node
from rlx_edge.ir.ops import Binary
from rlx_edge.reference.integer import quant_of

ELEMENTS = 4

ADD = Kernel(
    "rlx_add_mve_s8",
    "rlx_add_mve_t",
    (),
    (
        *("width", "factor_b", "offset_b", "multiplier_b", "shift_b", "factor", "offset", "multiplier", "shift"),
        *("out_zp", "low", "high"),
    ),
    inputs=2,
    in_place=True,
    order=add.order,
)
"""Its order is that of single elements: four are read before the first is written."""


def sums(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """The calls of an ADD or SUB of tensors of one shape, or why not."""
    op = node.op
    assert isinstance(op, Binary)
    made = add.sum_of(graph, node)
    if isinstance(made, str):
        return made
    assert isinstance(op.frozen, FrozenAdd)
    shift_b = -made.scale.shifts[0]
    # A shift by 0 would round nothing. Twice the operand, shifted by 1, is the same where that is even.
    factor = (1 if shift_b else 2) << op.frozen.left_shift
    params = dict(
        **dict(factor_b=factor, offset_b=-made.other_zp * factor),
        **dict(multiplier_b=made.scale.multipliers[0], shift_b=max(1, shift_b)),
        **dict(factor=made.slope, offset=made.start, multiplier=made.out.multipliers[0], shift=made.shift),
        **dict(out_zp=quant_of(node.type).zero_point, **bounds(op.clamp)),
    )
    if not np.array_equal(_rescaled_codes(params), made.table):
        return "the operand that is rescaled with rounding is subtracted, or shifted to the left or by more than 31"
    _, rows, width = rows_of(node.type)
    params |= dict(width=width)
    work = proportional(dict(rows=1, fours=-(-width // ELEMENTS)), 1)
    operands = [_views(graph, graph.nodes[node.inputs[k]]) for k in (made.linear, 1 - made.linear)]
    return tuple(
        Call(ADD, params, (a, b), target, rows, {}, 0, work, made.text)
        for a, b, target in zip(*operands, image_views(node.type, node.id), strict=True)
    )


def _rescaled_codes(params: dict[str, int]) -> Array:
    """What the kernel makes of each code of operand b, int64 [256]; none where it has no room for the shift."""
    shift = params["shift_b"]
    if shift > 31:
        return np.zeros(0, np.int64)
    x = add.CODES * params["factor_b"] + params["offset_b"]  # below 2^29: at most 255 * 2^21
    h = ((x * params["multiplier_b"] + (1 << 30)) >> 31) - (x < 0)
    return np.asarray((h + (1 << (shift - 1))) >> shift)


def _views(graph: Graph, operand: Node) -> list[View]:
    """A view of each image of a tensor or constant."""
    values = graph.constant(operand)
    base: int | Constant = operand.id if values is None else Constant("operand", values)
    return [View(base, view.pitch, view.offset) for view in image_views(operand.type, operand.id)]


VARIANTS = (Variant("add_mve", Isa.MVE, Binary, (ADD,), sums),)
