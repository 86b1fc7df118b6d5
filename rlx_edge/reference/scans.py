"""What the kinds of ir/ops/scans.py mean: step after step in float64, the result rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.scans import GatedDeltaNet, Mamba2, SelectiveScan
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def selective_scan(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, SelectiveScan)
    values, delta, a, b, c = _wide(x)
    result, state = np.zeros(out.shape), np.zeros((out.shape[0], *a.shape))
    for t in range(out.shape[1]):
        step = delta[:, t, :, None]
        state = np.exp(step * a) * state + step * b[:, t, None, :] * values[:, t, :, None]
        result[:, t] = (state * c[:, t, None, :]).sum(axis=-1)
    return result.astype(out.dtype.numpy)


def mamba2(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Mamba2)
    values, dt, a, b, c = _wide(x)
    batch, length, heads, size = out.shape
    result, state = np.zeros(out.shape), np.zeros((batch, heads, size, op.state_size))
    for t in range(length):
        decay = np.exp(dt[:, t] * a)[..., None, None]
        state = decay * state + (dt[:, t, :, None] * values[:, t])[..., None] * b[:, t, :, None, :]
        result[:, t] = (state * c[:, t, :, None, :]).sum(axis=-1)
    return result.astype(out.dtype.numpy)


def gated_delta_net(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, GatedDeltaNet)
    q, k, v, g, beta, *first = _wide(x)
    batch, length, heads, size = out.shape
    state = first[0] if first else np.zeros((batch, heads, size, size))
    gates = np.exp(g if op.gate_per_channel else g[..., None])
    result = np.zeros(out.shape)
    for t in range(length):
        state = gates[:, t, :, :, None] * state
        missing = v[:, t] - np.einsum("bhij,bhi->bhj", state, k[:, t])
        state = state + np.einsum("bhi,bhj->bhij", k[:, t], beta[:, t, :, None] * missing)
        result[:, t] = np.einsum("bhij,bhi->bhj", state, q[:, t]) / np.sqrt(size)
    return result.astype(out.dtype.numpy)


def _wide(operands: Sequence[Array]) -> list[Array]:
    return [operand.astype(np.float64) for operand in operands]


FUNCTIONS: dict[type[Op], OpFunction] = {
    SelectiveScan: selective_scan,
    Mamba2: mamba2,
    GatedDeltaNet: gated_delta_net,
}
