"""Recurrent layers. Their parameters are packed: blocks of each layer and direction one after the other, layers first.

Final states, which the vocabulary writes back into operands where there is a carry, are (ours) no part of the value:
operands keep theirs. `reference.recurrent.final_states` gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class RecurrentLayers(Op):
    """What Lstm, Gru and Rnn share. Operands x [B, S, I], w_ih, w_hh, biases and, with `carry`, states [L * D, B, H].

    L layers of D directions, H = hidden_size; layer 0 reads x, others what the one before gives: [B, S, D * H], forward
    beside reverse. A block of w_ih is [gates * H, inputs], one of w_hh [gates * H, H], one of a bias [gates * H].
    Packed (ours): one axis of all elements, or where all blocks are equally wide, two axes, all rows below each other.
    """

    gates: ClassVar[int]
    biases: ClassVar[tuple[str, ...]] = ("bias",)
    states: ClassVar[tuple[str, ...]] = ("h0",)

    hidden_size: int
    num_layers: int
    bidirectional: bool
    carry: bool

    @property
    def arity(self) -> Arity:
        return exact(3 + len(self.biases) + len(self.states) * self.carry)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def flags(self) -> tuple[str, ...]:
        """What the display string says behind the sizes."""
        return ("bi" if self.bidirectional else "uni", *(("carry",) if self.carry else ()))

    def display(self) -> str:
        sizes = f"h={self.hidden_size},layers={self.num_layers}"
        return f"{self.kind_name.lower()}({sizes},{','.join(self.flags)})"

    def widths(self, inputs: int) -> list[int]:
        """How many inputs each layer has."""
        return [inputs, *[self.directions * self.hidden_size] * (self.num_layers - 1)]

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        layers, hidden = self.num_layers, self.hidden_size
        require(layers >= 1 and hidden >= 1, f"{layers} layers of {hidden} units; at least one of one is needed")
        x, w_ih, w_hh, *others = operands
        batch, length, inputs = require_rank("x", x, 3)
        blocks = layers * self.directions
        rows = self.gates * hidden
        later = self.directions * hidden  # What each layer but the first is given.
        elements = rows * self.directions * (inputs + (layers - 1) * later)
        alike = layers == 1 or inputs == later
        _require_packed("w_ih", w_ih, elements, (blocks * rows, inputs) if alike else None)
        _require_packed("w_hh", w_hh, blocks * rows * hidden, (blocks * rows, hidden))
        for name, bias in zip(self.biases, others, strict=False):
            require_shape(name, bias, (blocks * rows,))
        for name, state in zip(self.states, others[len(self.biases) :], strict=False):
            require_shape(name, state, (blocks, batch, hidden))
        return (batch, length, self.directions * hidden), require_floats(operands)

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        batch, length, _ = operands[0].shape
        return batch * length * (operands[1].elements + operands[2].elements)


@dataclass(frozen=True)
class Lstm(RecurrentLayers):
    """Long short-term memory, gates i, f, g, o of z = x w_ih^T + h w_hh^T + bias: c' = s(f) c + s(i) tanh(g),
    h' = s(o) tanh(c'), s being the sigmoid. States h0, c0."""

    gates: ClassVar[int] = 4
    states: ClassVar[tuple[str, ...]] = ("h0", "c0")


@dataclass(frozen=True)
class Gru(RecurrentLayers):
    """Gated recurrent unit, gates r, z, n of a = x w_ih^T + b_ih and b = h w_hh^T + b_hh, s being the sigmoid:
    n' = tanh(a_n + s(a_r + b_r) b_n), h' = (1 - s(a_z + b_z)) n' + s(a_z + b_z) h."""

    gates: ClassVar[int] = 3
    biases: ClassVar[tuple[str, ...]] = ("b_ih", "b_hh")


@dataclass(frozen=True)
class Rnn(RecurrentLayers):
    """Elman's recurrent layer: h' = f(x w_ih^T + h w_hh^T + bias), f being ReLU where `relu`, else tanh."""

    gates: ClassVar[int] = 1
    relu: bool

    @property
    def flags(self) -> tuple[str, ...]:
        direction, *carry = super().flags
        return (direction, "relu" if self.relu else "tanh", *carry)


def _require_packed(name: str, operand: TensorType, elements: int, matrix: Shape | None) -> None:
    """All blocks in one axis or, where they are equally wide, above each other. (A file may say any number of them.)"""
    shapes = [(elements,), *([] if matrix is None else [matrix])]
    wanted = " or ".join(str(list(shape)) for shape in shapes)
    require(operand.shape in shapes, f"{name} is {operand}; shape {wanted} is needed")


KINDS: tuple[type[Op], ...] = (Lstm, Gru, Rnn)
