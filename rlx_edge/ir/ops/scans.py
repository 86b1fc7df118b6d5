"""Recurrences of state-space models and of linear attention, from a state of zeros along an axis of S steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class SelectiveScan(Op):
    """Operands x, delta [B, S, C], a [C, N], b, c [B, S, N]. For each channel, with a state h of N elements:
    h = exp(delta_t a) h + delta_t b_t x_t, y_t = c_t . h, as in Mamba."""

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "ssm_scan(n={state_size})"
    state_size: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, delta, a, b, c = operands
        batch, length, channels = require_rank("x", x, 3)
        require_shape("delta", delta, x.shape)
        require_shape("a", a, (channels, self.state_size))
        for name, operand in (("b", b), ("c", c)):
            require_shape(name, operand, (batch, length, self.state_size))
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class Mamba2(Op):
    """Operands x [B, S, H, P], dt [B, S, H], a [H], b, c [B, S, H, N]. For each head, with a state s [P, N]:
    s = exp(dt_t a) s + (dt_t x_t) b_t^T, y_t = s c_t; P = head_dim, N = state_size."""

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "mamba2(p={head_dim},n={state_size})"
    head_dim: int
    state_size: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, dt, a, b, c = operands
        before = require_rank("x", x, 4)[:3]
        require_shape("x", x, (*before, self.head_dim))
        require_shape("dt", dt, before)
        require_shape("a", a, before[2:])
        for name, operand in (("b", b), ("c", c)):
            require_shape(name, operand, (*before, self.state_size))
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class GatedDeltaNet(Op):
    """Operands q, k, v [B, S, H, N], g, beta [B, S, H]; with `carry_state` the first state [B, H, N, N] too.

    For each head, with a state s [N, N]: s = exp(g_t) s, s = s + beta_t k_t (v_t - s^T k_t)^T, o_t = s^T q_t / sqrt(N).
    With `gate_per_channel` g is [B, S, H, N], a gate for each row of s. The vocabulary writes the last state back into
    its operand; here (ours) operands keep their values.
    """

    state_size: int
    carry_state: bool
    gate_per_channel: bool

    @property
    def arity(self) -> Arity:
        return exact(5 + self.carry_state)

    def display(self) -> str:
        flags = f"{',carry' if self.carry_state else ''}{',gpc' if self.gate_per_channel else ''}"
        return f"gated_delta_net(n={self.state_size}{flags})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        q, k, v, g, beta, *state = operands
        before, size = require_rank("q", q, 4)[:3], self.state_size
        for name, operand in (("q", q), ("k", k), ("v", v)):
            require_shape(name, operand, (*before, size))
        require_shape("g", g, (*before, size) if self.gate_per_channel else before)
        require_shape("beta", beta, before)
        for operand in state:
            require_shape("state", operand, (before[0], before[2], size, size))
        return q.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (SelectiveScan, Mamba2, GatedDeltaNet)
