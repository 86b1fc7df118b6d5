"""Portable kernels for weights of 4 and 2 bits, packed by 4 output channels (firmware/kernels/rlx_dot_packed.h)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from rlx_edge.cgen import kernels, lower_windows
from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call, Constant
from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants import packing
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, Graph, Node, Requant, subbyte
from rlx_edge.ir.ops import Op, QConv2d, QMatMul

CHANNELS = 4


def pack(weights: Array, depthwise: bool, bits: int) -> Array:
    """Weights [C_out, taps] by 4 channels: int8 of [C_out / 4][taps], or [taps][C_out / 4], times 4 values."""
    groups = packing.ending_groups(len(weights), CHANNELS)
    by_four = weights[groups].transpose((2, 0, 1) if depthwise else (0, 2, 1))
    return subbyte.pack(by_four, bits).view(np.int8)


def _lower(graph: Graph, node: Node, depthwise: bool, kernel: Kernel, bits: int) -> tuple[Call, ...] | str:
    """Calls of a kernel for weights of so many bits, or why it cannot compute the node."""
    op = node.op
    assert isinstance(op, QConv2d | QMatMul)
    weights = graph.constant(graph.operands(node)[1])
    if weights is None or op.requant is Requant.ONNX or op.w_zp != 0:
        return "the weights have a zero point or are no constants, or the rounding rule is onnx"
    out_c, in_c = node.type.shape[-1], graph.nodes[node.inputs[0]].type.shape[-1]
    groups = op.groups if isinstance(op, QConv2d) else 1
    if (groups, depthwise) not in ((1, False), (out_c, True)) or (depthwise and (in_c != out_c or in_c == 1)):
        return f"it has {groups} groups" + (", not one a channel" if depthwise else "")
    if out_c < CHANNELS:
        return f"it has {out_c} output channels; at least {CHANNELS} are needed"
    limit = 1 << (bits - 1)
    if weights.min() < -limit or weights.max() >= limit:
        return f"it has weights from {weights.min()} to {weights.max()}, not {-limit} to {limit - 1}"
    rows = weights.T if isinstance(op, QMatMul) else weights.reshape(out_c, -1)
    packed = Constant("weights", pack(rows, depthwise, bits))
    lower = lower_windows.dense if isinstance(op, QMatMul) else lower_windows.conv
    proof = f"weights from {weights.min()} to {weights.max()}"
    return tuple(
        replace(call, kernel=kernel, constants={**call.constants, "weights": packed}, work=_rows, proof=proof)
        for call in lower(graph, node)
    )


def _rows(rows: int) -> dict[str, int]:
    """The rest is counted as for the kernels of int8 weights (cgen/work.py)."""
    return {"rows": rows}


def _variants(name: str, op: type[Op], plain: Kernel) -> tuple[Variant, ...]:
    stack = plain.stack_bytes + 64
    made = {bits: replace(plain, name=f"rlx_{name}_w{bits}_s8", stack_bytes=stack) for bits in (4, 2)}
    return tuple(
        Variant(
            f"{name}_portable_w{bits}",
            Isa.PORTABLE,
            op,
            (kernel,),
            partial(_lower, depthwise=name == "depthwise", kernel=kernel, bits=bits),
        )
        for bits, kernel in made.items()
    )


VARIANTS = (
    *_variants("conv", QConv2d, kernels.CONV),
    *_variants("depthwise", QConv2d, kernels.DEPTHWISE),
    *_variants("dense", QMatMul, kernels.DENSE),
)
