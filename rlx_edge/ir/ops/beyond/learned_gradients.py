"""Gradients of weights that are synthesized, of splines, of a recurrence and of a spectrogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.attributes import SynthKind
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype, require_like
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class SynthBwdWrt(Enum):
    """What a gradient of SynthMatMul is for; the values are the vocabulary's names."""

    DX = "Dx"
    CODEBOOK = "Codebook"


@dataclass(frozen=True)
class SynthMatMulBackward(Op):
    """Operands x [m, k], indices [n, k / entry_dim] (u8), codebook [num_entries, entry_dim], upstream [m, n].

    The gradient of SynthMatMul for x, or for the codebook.
    """

    operand_count: ClassVar[Arity] = exact(4)
    text: ClassVar[str] = "synth_matmul_backward({wrt:?})"
    kind: SynthKind
    wrt: SynthBwdWrt

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, indices, codebook, upstream = operands
        m, k = require_rank("x", x, 2)
        entry = self.kind.entry_dim
        require(entry > 0 and k % entry == 0, f"x is {x}; a last axis of whole entries of {entry} is needed")
        n = require_rank("indices", indices, 2)[0]
        require_shape("indices", indices, (n, k // entry))
        require_dtype("indices", indices, DType.U8)
        require_shape("codebook", codebook, (self.kind.num_entries, entry))
        require_shape("upstream", upstream, (m, n))
        dtype = require_floats([x, codebook, upstream])
        return x.shape if self.wrt is SynthBwdWrt.DX else codebook.shape, dtype


@dataclass(frozen=True)
class SplineActivationBackwardX(Op):
    """Operands x [.., C], coeff [C, num_basis], upstream [.., C]: the gradient of SplineActivation for x."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "spline_activation_backward_x(basis={num_basis})"
    num_basis: int
    grid_min: float
    grid_max: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, coeff, upstream = operands
        require_shape("coeff", coeff, _coefficients(x, self.num_basis))
        require_like("upstream", upstream, "x", x)
        return x.shape, require_floats(operands)


@dataclass(frozen=True)
class SplineActivationBackwardCoeff(Op):
    """Operands x, upstream [.., C]: the gradient of SplineActivation for its coefficients, [C, num_basis]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "spline_activation_backward_coeff(basis={num_basis})"
    num_basis: int
    grid_min: float
    grid_max: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        x, upstream = operands
        require_like("upstream", upstream, "x", x)
        return _coefficients(x, self.num_basis), require_floats(operands)


def _coefficients(x: TensorType, num_basis: int) -> Shape:
    require(bool(x.shape), "x is a scalar; a last axis of channels is needed")
    require(num_basis > 1, f"{num_basis} functions; a basis has two at least")
    return x.shape[-1], num_basis


@dataclass(frozen=True)
class GatedDeltaNetBackward(Op):
    """Operands q, k, v [B, S, H, n], g, beta [B, S, H], a state [B, H, n, n] with `carry_state`, dy [B, S, H, n].

    g is [B, S, H, n] with `gate_per_channel`. The gradients of GatedDeltaNet for all operands but dy, in their order,
    packed into one axis.
    """

    state_size: int
    carry_state: bool
    gate_per_channel: bool

    @property
    def arity(self) -> Arity:
        return exact(7 if self.carry_state else 6)

    def display(self) -> str:
        carry, per_channel = ",carry" if self.carry_state else "", ",gpc" if self.gate_per_channel else ""
        return f"gated_delta_net_backward(n={self.state_size}{carry}{per_channel})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        q, k, v, g, beta, *state, dy = operands
        batch, steps, heads, n = require_rank("q", q, 4)
        require(n == self.state_size, f"q is {q}; a last axis of {self.state_size} is needed")
        for name, operand in (("k", k), ("v", v), ("dy", dy)):
            require_shape(name, operand, q.shape)
        require_shape("g", g, q.shape if self.gate_per_channel else q.shape[:3])
        require_shape("beta", beta, (batch, steps, heads))
        for operand in state:
            require_shape("the state", operand, (batch, heads, n, n))
        return (sum(operand.elements for operand in operands[:-1]),), require_floats(operands)


@dataclass(frozen=True)
class LogMelBackward(Op):
    """Operands spectrum [.., 2 n_fft], filters [n_mels, n_fft / 2 + 1], dy [.., n_mels]: the gradient for spectrum."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "log_mel_backward()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        spectrum, filters, dy = operands
        fits = bool(spectrum.shape) and spectrum.shape[-1] % 2 == 0
        require(fits, f"spectrum is {spectrum}; a last axis of real, then imaginary parts is needed")
        n_mels = require_rank("filters", filters, 2)[0]
        require_shape("filters", filters, (n_mels, spectrum.shape[-1] // 4 + 1))
        require_shape("dy", dy, (*spectrum.shape[:-1], n_mels))
        return spectrum.shape, require_floats(operands)


KINDS: tuple[type[Op], ...] = (
    *(SynthMatMulBackward, SplineActivationBackwardX, SplineActivationBackwardCoeff),
    *(GatedDeltaNetBackward, LogMelBackward),
)
