"""Where an int8 model's integer arithmetic rounds a second time, so that the module's tensors have the same codes.

The rule tflm multiplies by q / 2^31 and rounds, then shifts right and rounds again. With weights of few bits the
shift is short, and a code in 30 differs from what one rounding gives.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, FrozenTable, Node, Requant, TensorType
from rlx_edge.ir.ops import Activation, Binary, BinaryOp, Clamp, Reduce
from rlx_edge.passes.fuse import bounds_of
from rlx_edge.quant.assign import Assignment
from rlx_edge.reference.fixedpoint import dequantize_f32, freeze

TWICE = (Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8)
"""Rules that round twice."""


def right_shift(multiplier: Tensor | float, rule: Requant) -> Tensor | float:
    """How many bits are shifted out after a multiplication by `multiplier`: 0 under a rule that rounds once."""
    if rule not in TWICE:
        return 0.0
    if isinstance(multiplier, Tensor):
        bits: Tensor = torch.frexp(multiplier).exponent.neg().clamp_min(0).to(multiplier.dtype)
        return bits
    return float(max(-math.frexp(multiplier)[1], 0))


def multiplier_of(node: Node, assignment: Assignment) -> float:
    """The real multiplier of an op without weights, as int8 applies it; 1 where it has none that matters."""
    fusion = assignment.fusions.get(node.id)
    anchor = node if fusion is None else fusion.anchor
    scales = [assignment.params[i].scale for i in anchor.inputs if i in assignment.params]
    out = assignment.params[node.id].scale
    if isinstance(anchor.op, Binary) and anchor.op.fn is BinaryOp.MUL:
        return scales[0] * scales[1] / out
    if isinstance(anchor.op, Reduce):  # A power of two of the count is shifted with the rest.
        count = assignment.graph.nodes[anchor.inputs[0]].type.elements // node.type.elements
        return scales[0] / out / 2.0 ** (count.bit_length() - 1)
    if isinstance(anchor.op, Clamp) or (isinstance(anchor.op, Activation) and bounds_of(anchor) is not None):
        return scales[0] / out
    return 1.0


def table_of(node: Node, assignment: Assignment, rule: Requant) -> Array | None:
    """The real results [256] of a function of one tensor, by the operand's code from -128 on; None for other ops."""
    if not isinstance(node.op, Activation) or bounds_of(node) is not None or node.id in assignment.fusions:
        return None
    source, quant = assignment.params[node.inputs[0]], assignment.params[node.id]
    types: Any = [TensorType((1,), DType.I8, source)], TensorType((1,), DType.I8, quant)
    try:
        frozen = freeze(replace(node.op, requant=rule), *types)
    except UnsupportedError:
        frozen = freeze(replace(node.op, requant=Requant.RLX), *types)
    assert isinstance(frozen, FrozenTable)
    return dequantize_f32(np.array(frozen.codes, np.int8), quant)
