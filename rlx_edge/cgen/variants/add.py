"""Sums and differences of tensors of one shape, with what is known of the operands worked into tables or constants.

One operand, the one of the larger scale, is rescaled to the common scale by a power of two, so that a product does it.
The other one takes a table of 256 int32 (add_table) or a rescaling with rounding (add_direct).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.lower_windows import bounds
from rlx_edge.cgen.order import OUTPUT, Accesses
from rlx_edge.cgen.plan import Call, Constant, View, proportional
from rlx_edge.cgen.rows import image_views, rows_of
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, FrozenAdd, FrozenScale, Graph, Node, Requant
from rlx_edge.ir.ops import Binary, BinaryOp
from rlx_edge.reference.fixedpoint import ADD_LEFT_SHIFT, rescale
from rlx_edge.reference.integer import quant_of

RULES = (Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8)
CODES = np.arange(-128, 128, dtype=np.int64)
ACCUMULATOR_BITS = 30


def order(call: Call) -> Accesses:
    """Element by element: both operands are read, then the result is written."""
    y, i = np.arange(call.first_row, call.rows)[:, None], np.arange(call.params["width"])
    pitches = [call.inputs[0].pitch, call.inputs[1].pitch, call.output.pitch]
    firsts = np.stack([y * pitch + i for pitch in pitches], axis=-1).ravel().astype(np.int64)
    operands = np.tile(np.array([0, 1, OUTPUT], np.int8), len(firsts) // 3)
    return Accesses(operands, firsts, firsts + 1)


TABLE = Kernel(
    "rlx_add_table_s8",
    "rlx_add_table_t",
    ("table",),
    ("width", "factor", "multiplier", "k", "shift", "low", "high"),
    inputs=2,
    in_place=True,
    order=order,
)
DIRECT = Kernel(
    "rlx_add_direct_s8",
    "rlx_add_direct_t",
    (),
    ("width", "factor", "offset", "b_offset", "b_multiplier", "b_shift", "multiplier", "k", "shift", "low", "high"),
    inputs=2,
    in_place=True,
    order=order,
)


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum or difference as the kernels compute it. linear, other: which operand is which.

    slope, start: the linear operand's code q contributes slope * q + start. table: int64 [256], what each code of the
    other one contributes; both with the sign of a difference. other_sign: its sign. scale: of the other operand.
    """

    linear: int
    slope: int
    start: int
    table: Array
    other_sign: int
    scale: FrozenScale
    other_zp: int
    out: FrozenScale
    k: int
    largest: int

    @property
    def shift(self) -> int:
        return -self.out.shifts[0]

    @property
    def text(self) -> str:
        bits = self.largest.bit_length()
        return f"|sum| <= {self.largest} < 2^{bits} over all codes, shift {self.shift}; operand {self.linear} is linear"


def sum_of(graph: Graph, node: Node) -> Sum | str:
    """What is known of an ADD or SUB, proved over all values of its operands; or why it cannot be computed so."""
    op = node.op
    assert isinstance(op, Binary)
    types = graph.operand_types(node)
    if op.fn is BinaryOp.MUL or op.requant not in RULES or not isinstance(op.frozen, FrozenAdd):
        return "it is no sum or difference in integers"
    if any(type.shape != node.type.shape for type in types):
        return "an operand is broadcast"
    signs = (1, -1 if op.fn is BinaryOp.SUB else 1)
    scales, zero_points = (op.frozen.a, op.frozen.b), tuple(quant_of(type).zero_point for type in types)
    tables = [
        sign * rescale((CODES - zero_point) << op.frozen.left_shift, scale, op.requant)
        for sign, zero_point, scale in zip(signs, zero_points, scales, strict=True)
    ]
    linear = next((k for k, table in enumerate(tables) if len(set(np.diff(table).tolist())) == 1), None)
    if linear is None:
        return "neither operand is rescaled by a power of two"
    other, largest = 1 - linear, sum(int(np.abs(table).max()) for table in tables)
    k = _offset(op.frozen.out, quant_of(node.type).zero_point, largest)
    if isinstance(k, str):
        return k
    slope = int(tables[linear][1] - tables[linear][0])
    start = int(tables[linear][128])
    terms = (tables[other], signs[other], scales[other], zero_points[other])
    return Sum(linear, slope, start, *terms, op.frozen.out, k, largest)


def _offset(scale: FrozenScale, zero_point: int, largest: int) -> int | str:
    """K = (zero_point << e) + 2^(e - 1) of rlx_twice.h, for |value| <= largest, or which of its conditions fails."""
    shift, multiplier = -scale.shifts[0], scale.multipliers[0]
    if not 1 <= shift <= 31:
        return f"the result is shifted to the right by {shift}, not 1 to 31"
    if largest >= 1 << ACCUMULATOR_BITS:
        return f"the sum can reach {largest}, 2^{ACCUMULATOR_BITS} or more"
    k = (zero_point << shift) + (1 << (shift - 1))
    high = (largest * multiplier + (1 << 30)) >> 31
    if k + high > (1 << 31) - 1 or k - high - 1 < -(1 << 31):
        return f"zero point {zero_point} << {shift} does not fit in int32"
    return k


def table(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_add_table_s8, or why it cannot compute the node."""
    made = sum_of(graph, node)
    if isinstance(made, str):
        return made
    values = packing.int32(2 * (made.table + made.start))
    params = dict(factor=2 * made.slope)
    return _calls(graph, node, TABLE, made, params, {"table": Constant("table", values)})


def direct(graph: Graph, node: Node) -> tuple[Call, ...] | str:
    """Calls of rlx_add_direct_s8, or why it cannot compute the node."""
    made = sum_of(graph, node)
    if isinstance(made, str):
        return made
    shift, op = -made.scale.shifts[0], node.op
    assert isinstance(op, Binary) and isinstance(op.frozen, FrozenAdd)
    if made.other_sign < 0:
        return "the operand that is rescaled with rounding is subtracted"
    if not 1 <= shift <= 23:
        return f"an operand is shifted to the right by {shift}, not 1 to 23"
    if op.frozen.left_shift != ADD_LEFT_SHIFT:
        return f"the operands are shifted to the left by {op.frozen.left_shift}"
    offset = -made.other_zp * (2 << ADD_LEFT_SHIFT)  # |code - zero point| <= 255, so |operand| < 2^28
    params = dict(factor=2 * made.slope, offset=2 * made.start, b_offset=offset)
    params |= dict(b_multiplier=made.scale.multipliers[0], b_shift=shift)
    return _calls(graph, node, DIRECT, made, params, {})


def _calls(
    graph: Graph, node: Node, kernel: Kernel, made: Sum, params: dict[str, int], constants: dict[str, Constant]
) -> tuple[Call, ...]:
    assert isinstance(node.op, Binary)
    _, rows, width = rows_of(node.type)
    params |= dict(width=width, multiplier=made.out.multipliers[0], k=made.k, shift=made.shift)
    params |= bounds(node.op.clamp)
    narrow = params["low"] > -128 or params["high"] < 127
    work = proportional({"rows": 1, "elements": width, "clamped": width * int(narrow)}, 1)
    operands = [_views(graph, graph.nodes[node.inputs[k]]) for k in (made.linear, 1 - made.linear)]
    return tuple(
        Call(kernel, params, (a, b), target, rows, constants, 0, work, made.text)
        for a, b, target in zip(*operands, image_views(node.type, node.id), strict=True)
    )


def _views(graph: Graph, operand: Node) -> list[View]:
    """A view of each image of a tensor or constant."""
    values, views = graph.constant(operand), list(image_views(operand.type, operand.id))
    if values is None:
        return views
    constant = Constant("operand", values)
    return [replace(view, base=constant) for view in views]


VARIANTS = (
    Variant("add_table", Isa.PORTABLE, Binary, (TABLE,), table),
    Variant("add_direct", Isa.PORTABLE, Binary, (DIRECT,), direct),
)
