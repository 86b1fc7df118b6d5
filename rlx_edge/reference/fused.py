"""What the fused kinds mean: their graphs of other ops, with the same roundings in between, so the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    LayerNorm,
    MatMul,
    Op,
    RmsNorm,
)
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.reference.compose import apply
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]
ADD, MUL = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL)


def swiglu(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedSwiGLU)
    low, high = np.split(x[0], 2, axis=-1)
    up, gate = (high, low) if op.gate_first else (low, high)
    result = apply(MUL, up, apply(Activation(ActivationFn.SILU), gate))
    return result if op.cast_to is None else apply(Cast(op.cast_to), result)


def matmul_bias_act(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedMatMulBiasAct)
    return activated(apply(ADD, apply(MatMul(), *x[:2]), x[2]), op.activation)


def matmul_residual(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    return apply(ADD, apply(MatMul(), *x[:2]), x[2])


def conv_bias_act(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedConvBiasAct)
    result = apply(ADD, apply(op.conv, *x[:2]), x[2].reshape(1, -1, 1, 1))
    for residual in x[3:]:
        result = apply(ADD, result, residual)
    return activated(result, op.activation)


def residual_layer_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedResidualLN)
    return apply(LayerNorm(-1, op.eps), _sum(x[:-2]), *x[-2:])


def residual_rms_norm(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FusedResidualRmsNorm)
    return apply(RmsNorm(-1, op.eps), _sum(x[:-2]), *x[-2:])


def activated(x: Array, fn: ActivationFn | None) -> Array:
    return x if fn is None else apply(Activation(fn), x)


def _sum(terms: Sequence[Array]) -> Array:
    """x + residual, then + bias where there is one."""
    result = terms[0]
    for term in terms[1:]:
        result = apply(ADD, result, term)
    return result


FUNCTIONS: dict[type[Op], OpFunction] = {
    FusedSwiGLU: swiglu,
    FusedMatMulBiasAct: matmul_bias_act,
    FusedMatMulResidual: matmul_residual,
    FusedConvBiasAct: conv_bias_act,
    FusedResidualLN: residual_layer_norm,
    FusedResidualRmsNorm: residual_rms_norm,
}
