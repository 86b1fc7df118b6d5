"""Proofs, from the actual weights, that no int32 in a kernel overflows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen.lower_windows import folded_bias
from rlx_edge.ir import Array, FrozenAdd, FrozenScale, Graph, Node, Requant
from rlx_edge.ir.ops import Binary, BinaryOp, Pool, QConv2d, QMatMul, Quantize, Reduce
from rlx_edge.reference.integer import quant_of

LIMIT = (1 << 31) - 256
"""Room is kept for the output's zero point, which is added last."""


@dataclass(frozen=True)
class Bound:
    """The largest magnitude that an int32 of the kernel can reach."""

    largest: int
    what: str

    @property
    def holds(self) -> bool:
        return self.largest < LIMIT

    @property
    def text(self) -> str:
        share = self.largest / 2**31
        verdict = "fits" if self.holds else "does not fit"
        return f"|{self.what}| <= {self.largest}, {share:.1%} of 2^31, {verdict} in int32"


def prove(graph: Graph, node: Node) -> Bound | None:
    """The bound of a node, or None for an op that computes nothing that could overflow."""
    op = node.op
    if isinstance(op, QConv2d | QMatMul):
        return _weighted(graph, node, op)
    if isinstance(op, Binary) and op.requant is Requant.ONNX:
        return None  # float32 steps, whose range the scales' bounds keep (reference/fixedpoint.py)
    if isinstance(op, Binary):
        return _binary(graph, node, op)
    if isinstance(op, Quantize) and isinstance(op.frozen, FrozenScale):
        reach = _reach(quant_of(graph.nodes[node.inputs[0]].type).zero_point)
        return Bound(_shifted(reach, op.frozen, op.requant), "(x - zero_point) << left shift")
    if isinstance(op, Reduce) and isinstance(op.frozen, FrozenScale):
        source = graph.nodes[node.inputs[0]].type
        count = source.elements // node.type.elements
        largest = _shifted(count * _reach(quant_of(source).zero_point), op.frozen, op.requant)
        return Bound(largest, "sum" if op.requant is Requant.ONNX else "sum << left shift")
    if isinstance(op, Pool):
        taps = op.kernel_size[0] * op.kernel_size[1]
        if op.requant is Requant.TFLITE_UINT8:
            return Bound(taps * 256, "sum + 128 count + count / 2")
        return Bound(taps * 129, "sum + count / 2")
    return None


def _reach(zero_point: int) -> int:
    """The largest |x - zero_point| of an int8 x."""
    return max(127 - zero_point, zero_point + 128)


def _shifted(value: int, frozen: FrozenScale, rule: Requant) -> int:
    """Rule onnx multiplies as float32 does, without a shift of the integer."""
    return value if rule is Requant.ONNX else value << max(0, *frozen.shifts)


def _weighted(graph: Graph, node: Node, op: QConv2d | QMatMul) -> Bound:
    """Sum over the taps of the largest |x * (w - w_zp)|, plus |folded bias|: bounds every partial sum, in any order.

    x is -128 to 127, also where a padded position counts as the zero point.
    """
    _, w_node, bias_node = graph.operands(node)
    w, bias = graph.constant(w_node), graph.constant(bias_node)
    assert w is not None and bias is not None and isinstance(op.frozen, FrozenScale)
    rows = _rows(w, op)
    products = 128 * np.abs(rows.astype(np.int64) - op.w_zp).sum(axis=1)
    shifts = (0,) if op.requant is Requant.ONNX else op.frozen.shifts
    left = np.maximum(np.array(shifts, np.int64), 0)
    largest = [int(v) << int(s) for v, s in np.broadcast(products + np.abs(folded_bias(rows, bias, op)), left)]
    return Bound(max(largest), "accumulator" if not left.any() else "accumulator << left shift")


def _rows(w: Array, op: QConv2d | QMatMul) -> Array:
    """Weights as [C_out, taps]."""
    return w.T if isinstance(op, QMatMul) else w.reshape(w.shape[0], -1)


def _binary(graph: Graph, node: Node, op: Binary) -> Bound:
    a, b = (_reach(quant_of(t).zero_point) for t in graph.operand_types(node))
    if op.fn is BinaryOp.MUL:
        assert isinstance(op.frozen, FrozenScale)
        return Bound(_shifted(a * b, op.frozen, op.requant), "a * b << left shift")
    assert isinstance(op.frozen, FrozenAdd)
    # The multipliers of a and b are at most one half, so each rescaled operand is smaller than the shifted one.
    total = (a + b) << op.frozen.left_shift
    return Bound(_shifted(total, op.frozen.out, op.requant), "rescaled a + b")
