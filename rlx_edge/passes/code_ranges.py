"""Which codes an int8 tensor can hold, channel by channel, whatever the inputs are.

Interval arithmetic with the reference's own functions: every rounding rule is monotone, so the codes at the ends of an
operand's range bound all those between. A convolution's accumulator is bounded from its actual weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, DType, FrozenScale, Graph, Node, Requant
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Concat,
    Expand,
    Input,
    Layout,
    Leaf,
    Narrow,
    Op,
    Pad,
    PadMode,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from rlx_edge.passes.code_functions import function_of, holds_codes, table_of
from rlx_edge.passes.int8_layers import Layer, layer_of
from rlx_edge.reference import integer
from rlx_edge.reference.fixedpoint import rescale
from rlx_edge.reference.integer import pad_value, quant_of, requantize

LOWEST, HIGHEST = DType.I8.limits


@dataclass(frozen=True, eq=False)
class Codes:
    """Lowest and highest code, int64 [entries of the tensor's last axis] each."""

    low: Array
    high: Array

    @staticmethod
    def anything(node: Node) -> Codes:
        size = node.type.shape[-1] if node.type.shape else 1
        return Codes(np.full(size, LOWEST), np.full(size, HIGHEST))

    @property
    def constant(self) -> Array:
        """Whether only one code is possible, bool."""
        return np.asarray(self.low == self.high)

    def clamped(self, clamp: tuple[int, int] | None) -> Codes:
        low, high = clamp or (LOWEST, HIGHEST)
        return Codes(np.clip(self.low, low, high), np.clip(self.high, low, high))

    def with_code(self, code: int) -> Codes:
        """The range that has this code too."""
        return Codes(np.minimum(self.low, code), np.maximum(self.high, code))

    def overall(self, size: int) -> Codes:
        """The range of all channels together, for a tensor of another last axis."""
        return Codes(np.full(size, self.low.min()), np.full(size, self.high.max()))


Ranges = dict[int, Codes]
"""By node id; int8 tensors that stand for real values only."""

Clamped = QConv2d | QMatMul | Binary | Quantize | Pool
"""Ops that bound their codes themselves."""


def code_ranges(graph: Graph) -> Ranges:
    """The codes that each int8 tensor with one scale can hold. Weights and biases are left out."""
    weights = {i for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul) for i in node.inputs[1:]}
    found: Ranges = {}
    for node in graph.nodes:
        if holds_codes(node.type) and node.id not in weights:
            found[node.id] = codes_of(graph, node, found)
    return found


def codes_of(graph: Graph, node: Node, known: Ranges) -> Codes:
    """The range of one tensor from those of its operands."""
    if isinstance(node.op, Leaf):
        return _of_leaf(graph, node)
    read = node.inputs[:1] if isinstance(node.op, QConv2d | QMatMul) else node.inputs
    operands = [known[i] for i in read if i in known]
    codes = None
    if len(operands) == len(read) and node.type.shape:
        rule = _RULES.get(type(node.op))
        codes = None if rule is None else rule(graph, node, operands)
        if codes is None and function_of(graph, node) is not None:
            codes = _function(graph, node, operands[0])
    return Codes.anything(node).clamped(getattr(node.op, "clamp", None)) if codes is None else codes


def accumulators(layer: Layer, x: Codes) -> tuple[Array, Array]:
    """(lowest, highest), int64 [C_out]: bounds of the accumulator with its bias."""
    low, high = layer.by_output(x.low - layer.op.x_zp), layer.by_output(x.high - layer.op.x_zp)
    padded_low, padded_high = np.minimum(low, 0), np.maximum(high, 0)
    totals = layer.bias.copy(), layer.bias.copy()
    for taps, least, most in (
        (layer.always, low, high),
        (layer.ever & ~layer.always, padded_low, padded_high),  # Padding stands for the zero point.
    ):
        up = np.maximum(layer.weights[:, taps], 0).sum(axis=1)
        down = np.minimum(layer.weights[:, taps], 0).sum(axis=1)
        totals = (
            totals[0] + (up * least + down * most).sum(axis=1),
            totals[1] + (up * most + down * least).sum(axis=1),
        )
    return totals


# ---- Rules -----------------------------------------------------------------------------------------------------------


def _of_leaf(graph: Graph, node: Node) -> Codes:
    values = None if isinstance(node.op, Input) else graph.constant(node)
    if values is None or values.ndim == 0:
        return Codes.anything(node) if values is None else Codes(*(values.reshape(1).astype(np.int64),) * 2)
    rows = values.reshape(-1, values.shape[-1]).astype(np.int64)
    return Codes(rows.min(axis=0), rows.max(axis=0))


def _weighted(graph: Graph, node: Node, operands: list[Codes]) -> Codes | None:
    layer = layer_of(graph, node)
    if layer is None:
        return None
    ends = np.stack(accumulators(layer, operands[0]))
    low, high = requantize(ends, layer.op, graph.operand_types(node), node.type).astype(np.int64)
    return Codes(low, high)


def _function(graph: Graph, node: Node, x: Codes) -> Codes:
    """The extremes of a table over each channel's range."""
    table = table_of(graph, node).astype(np.int64)
    ends, channel = np.unique(np.stack([x.low, x.high], axis=1), axis=0, return_inverse=True)
    parts = [table[low - LOWEST : high - LOWEST + 1] for low, high in ends]
    lows, highs = np.array([part.min() for part in parts]), np.array([part.max() for part in parts])
    return Codes(lows[channel.reshape(-1)], highs[channel.reshape(-1)])


def _binary(graph: Graph, node: Node, operands: list[Codes]) -> Codes | None:
    """Sums and products are monotone in each operand, so the extremes lie at the corners."""
    op = node.op
    assert isinstance(op, Binary)
    if op.fn not in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL) or len(operands) != 2 or op.requant is Requant.RLX:
        return None
    a, b = operands
    corners = [(p, q) for p in (a.low, a.high) for q in (b.low, b.high)]
    size = np.broadcast_shapes(a.low.shape, b.low.shape)
    sides = [np.stack([np.broadcast_to(corner[i], size) for corner in corners]).astype(np.int8) for i in (0, 1)]
    values = integer.binary(op, sides, graph.operand_types(node), node.type).astype(np.int64)
    return Codes(values.min(axis=0), values.max(axis=0))


def _pool(graph: Graph, node: Node, operands: list[Codes]) -> Codes | None:
    """A mean lies within what it is made of, also once it is rounded."""
    op = node.op
    assert isinstance(op, Pool)
    if op.layout is not Layout.NHWC:
        return None
    if op.kind is ReduceOp.MAX:
        return operands[0].clamped(op.clamp)
    if op.kind is not ReduceOp.MEAN or op.requant in (Requant.ONNX, Requant.RLX):
        return None
    zero = quant_of(graph.operand_types(node)[0]).zero_point
    counted = op.count_include_pad and any(op.padding)
    return (operands[0].with_code(zero) if counted else operands[0]).clamped(op.clamp)


def _mean(graph: Graph, node: Node, operands: list[Codes]) -> Codes | None:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Reduce)
    rank = len(x.type.shape)
    if not isinstance(op.frozen, FrozenScale) or any(axis % rank == rank - 1 for axis in op.axes):
        return None
    count = x.type.elements // node.type.elements
    sums = (np.stack([operands[0].low, operands[0].high]) - quant_of(x.type).zero_point) * count
    codes = rescale(sums[..., None], op.frozen, op.requant)[..., 0] + quant_of(node.type).zero_point
    return Codes(codes[0], codes[1]).clamped(None)


def _reshape(graph: Graph, node: Node, operands: list[Codes]) -> Codes:
    before, after = len(operands[0].low), node.type.shape[-1] if node.type.shape else 1
    if after % before == 0:
        return Codes(np.tile(operands[0].low, after // before), np.tile(operands[0].high, after // before))
    if before % after == 0:
        low, high = (side.reshape(-1, after) for side in (operands[0].low, operands[0].high))
        return Codes(low.min(axis=0), high.max(axis=0))
    return operands[0].overall(after)


def _transpose(graph: Graph, node: Node, operands: list[Codes]) -> Codes:
    assert isinstance(node.op, Transpose)
    last_stays = node.op.perm[-1] == len(node.op.perm) - 1
    return operands[0] if last_stays else operands[0].overall(node.type.shape[-1])


def _moved(graph: Graph, node: Node, operands: list[Codes]) -> Codes:
    return operands[0].overall(node.type.shape[-1])


def _pad(graph: Graph, node: Node, operands: list[Codes]) -> Codes | None:
    assert isinstance(node.op, Pad)
    if node.op.mode is not PadMode.CONSTANT:
        return None
    codes = operands[0].with_code(int(pad_value(node.op, graph.operand_types(node)[0])))
    return codes if node.op.pads[-1] == (0, 0) else codes.overall(node.type.shape[-1])


def _concat(graph: Graph, node: Node, operands: list[Codes]) -> Codes:
    assert isinstance(node.op, Concat)
    lows, highs = [codes.low for codes in operands], [codes.high for codes in operands]
    rank = len(node.type.shape)
    if node.op.axis % rank == rank - 1:
        return Codes(np.concatenate(lows), np.concatenate(highs))
    return Codes(np.min(lows, axis=0), np.max(highs, axis=0))


_RULES: dict[type[Op], Callable[[Graph, Node, list[Codes]], Codes | None]] = {
    QConv2d: _weighted,
    QMatMul: _weighted,
    Binary: _binary,
    Pool: _pool,
    Reduce: _mean,
    Reshape: _reshape,
    Transpose: _transpose,
    **dict.fromkeys((Narrow, Slice, Expand, Reverse), _moved),
    Pad: _pad,
    Concat: _concat,
}


def unclamped(graph: Graph, node: Node, known: Ranges) -> Codes:
    """The range that the node would have without its clamp."""
    assert isinstance(node.op, Clamped)
    return codes_of(graph, replace(node, op=replace(node.op, clamp=None)), known)
