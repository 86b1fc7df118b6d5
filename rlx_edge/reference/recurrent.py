"""What the kinds of ir/ops/recurrent.py mean: computed in float64 from end to end, the result rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.recurrent import Gru, Lstm, RecurrentLayers, Rnn
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]
States = tuple[Array, ...]
"""What a layer carries from step to step, each [B, H]: h, and the memory c of an Lstm."""


@dataclass(frozen=True)
class Block:
    """Parameters of one layer in one direction: w_ih [G H, I], w_hh [G H, H], biases [G H]."""

    w_ih: Array
    w_hh: Array
    biases: tuple[Array, ...]


def layers(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """[B, S, D H]: what the last layer gives at each step, forward beside reverse."""
    assert isinstance(op, RecurrentLayers)
    return _run(op, x)[0].astype(out.dtype.numpy)


def final_states(op: RecurrentLayers, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The states after the last step of each layer and direction, [L D, B, H]: h, and of an Lstm c too."""
    return tuple(np.stack(states).astype(operands[0].dtype) for states in zip(*_run(op, operands)[1], strict=True))


def _run(op: RecurrentLayers, x: Sequence[Array]) -> tuple[Array, list[States]]:
    """The value, and the final states of each block."""
    sequence, *others = (operand.astype(np.float64) for operand in x)
    none = np.zeros((op.num_layers * op.directions, len(sequence), op.hidden_size))
    initial = others[2 + len(op.biases) :] or [none] * len(op.states)
    blocks = _blocks(op, sequence.shape[2], others)
    finals: list[States] = []
    for _ in range(op.num_layers):
        given = []
        for order in (slice(None), slice(None, None, -1))[: op.directions]:
            start = tuple(state[len(finals)] for state in initial)
            steps, states = _one_block(op, next(blocks), sequence[:, order], start)
            given.append(steps[:, order])
            finals.append(states)
        sequence = np.concatenate(given, axis=2)
    return sequence, finals


def _blocks(op: RecurrentLayers, inputs: int, packed: Sequence[Array]) -> Iterator[Block]:
    w_ih, w_hh, *rest = (operand.ravel() for operand in packed[: 2 + len(op.biases)])
    rows, begin = op.gates * op.hidden_size, 0
    for block in range(op.num_layers * op.directions):
        width = op.widths(inputs)[block // op.directions]
        yield Block(
            w_ih[begin : begin + rows * width].reshape(rows, width),
            w_hh.reshape(-1, rows, op.hidden_size)[block],
            tuple(bias.reshape(-1, rows)[block] for bias in rest),
        )
        begin += rows * width


def _one_block(op: RecurrentLayers, block: Block, x: Array, states: States) -> tuple[Array, States]:
    """h after each step [B, S, H], and the states after the last one."""
    step = STEPS[type(op)]
    steps = np.zeros((*x.shape[:2], op.hidden_size))
    for t in range(x.shape[1]):
        states = step(op, block, x[:, t], states)
        steps[:, t] = states[0]
    return steps, states


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def _lstm(op: RecurrentLayers, block: Block, x: Array, states: States) -> States:
    h, c = states
    i, f, g, o = np.split(x @ block.w_ih.T + h @ block.w_hh.T + block.biases[0], 4, axis=1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(op: RecurrentLayers, block: Block, x: Array, states: States) -> States:
    (h,) = states
    a = np.split(x @ block.w_ih.T + block.biases[0], 3, axis=1)
    b = np.split(h @ block.w_hh.T + block.biases[1], 3, axis=1)
    r, z = _sigmoid(a[0] + b[0]), _sigmoid(a[1] + b[1])
    return ((1 - z) * np.tanh(a[2] + r * b[2]) + z * h,)


def _rnn(op: RecurrentLayers, block: Block, x: Array, states: States) -> States:
    assert isinstance(op, Rnn)
    total = x @ block.w_ih.T + states[0] @ block.w_hh.T + block.biases[0]
    return (np.maximum(total, 0) if op.relu else np.tanh(total),)


STEPS: dict[type[Op], Callable[[RecurrentLayers, Block, Array, States], States]] = {Lstm: _lstm, Gru: _gru, Rnn: _rnn}

FUNCTIONS: dict[type[Op], OpFunction] = {Lstm: layers, Gru: layers, Rnn: layers}
