"""What the kinds of ir/ops/synth.py mean: sums in float64, the result rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.errors import DataError
from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.synth import SplineActivation, SynthMatMul, SynthReconstruct
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def synth_matmul(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, SynthMatMul)
    product = x[0].astype(np.float64) @ _weights(x[1], x[2]).astype(np.float64)
    return np.asarray(product).astype(out.dtype.numpy)


def synth_reconstruct(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, SynthReconstruct)
    return np.ascontiguousarray(_weights(x[0], x[1]))


def _weights(indices: Array, codebook: Array) -> Array:
    """[K, N]. Raises DataError for an index of no entry."""
    if indices.size and indices.max() >= len(codebook):
        raise DataError(f"index {indices.max()} into a codebook of {len(codebook)} entries")
    return codebook[indices].reshape(len(indices), -1).T


def spline_activation(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """One basis function after the other, so that no array is larger than x."""
    assert isinstance(op, SplineActivation)
    values, coeff = (operand.astype(np.float64) for operand in x)
    step = (op.grid_max - op.grid_min) / (op.num_basis - 1)
    total = np.zeros(values.shape)
    with np.errstate(all="ignore"):
        for g in range(op.num_basis):
            distance = (values - (op.grid_min + g * step)) / step
            total += coeff[:, g] * np.exp(-(distance**2))
    return total.astype(out.dtype.numpy)


FUNCTIONS: dict[type[Op], OpFunction] = {
    SynthMatMul: synth_matmul,
    SynthReconstruct: synth_reconstruct,
    SplineActivation: spline_activation,
}
