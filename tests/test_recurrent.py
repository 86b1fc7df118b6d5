"""Lstm, Gru and Rnn of any number of layers and directions, against onnxruntime's nodes, one a layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array
from rlx_edge.ir.ops.recurrent import Gru, Lstm, RecurrentLayers, Rnn
from rlx_edge.reference.recurrent import final_states

SEEDS = st.integers(0, 1 << 20)
GATES = {Lstm: (0, 3, 1, 2), Gru: (1, 0, 2), Rnn: (0,)}
"""Places of ONNX's gates among ours: its Lstm's are i, o, f, g, its Gru's z, r, n."""


def operands_of(op: RecurrentLayers, batch: int, length: int, inputs: int, seed: int) -> list[Array]:
    draw = np.random.default_rng(seed).normal
    count, rows = op.num_layers * op.directions, op.gates * op.hidden_size
    sizes = [rows * width for width in op.widths(inputs) for _ in range(op.directions)]
    shapes: list[tuple[int, ...]] = [(batch, length, inputs), (sum(sizes),), (count * rows, op.hidden_size)]
    shapes += [(count * rows,)] * len(op.biases)
    shapes += [(count, batch, op.hidden_size)] * (len(op.states) * op.carry)
    return [draw(0, 0.7, shape).astype(np.float32) for shape in shapes]


def in_onnx_order(op: RecurrentLayers, packed: Array) -> Array:
    """Gates of [D, gates * H, ..] as ONNX orders them."""
    split = packed.reshape(len(packed), op.gates, op.hidden_size, *packed.shape[2:])
    return split[:, GATES[type(op)]].reshape(packed.shape)


def onnx_layers(op: RecurrentLayers, operands: list[Array]) -> tuple[Array, list[Array]]:
    """The value, and final states [L * D, B, H], from a node for each layer."""
    x, w_ih, w_hh, *others = operands
    directions, hidden, rows = op.directions, op.hidden_size, op.gates * op.hidden_size
    biases, states = others[: len(op.biases)], others[len(op.biases) :]
    begin, finals = 0, []
    for layer in range(op.num_layers):
        blocks = slice(layer * directions, (layer + 1) * directions)
        count = directions * rows * x.shape[2]
        w = in_onnx_order(op, w_ih[begin : begin + count].reshape(directions, rows, x.shape[2]))
        begin += count
        r = in_onnx_order(op, w_hh.reshape(-1, rows, hidden)[blocks])
        both = [in_onnx_order(op, bias.reshape(-1, rows)[blocks]) for bias in biases]
        b = np.concatenate([*both, np.zeros_like(both[0])][:2], axis=1)
        given = {"x": x.transpose(1, 0, 2)} | {f"s{i}": state[blocks] for i, state in enumerate(states)}
        value, *ends = onnx_layer(op, given, {"w": w, "r": r, "b": b})
        x = value.transpose(2, 0, 1, 3).reshape(*x.shape[:2], directions * hidden)
        finals.append(ends)
    return x, [np.concatenate(each) for each in zip(*finals, strict=True)]


def onnx_layer(op: RecurrentLayers, given: dict[str, Array], parameters: dict[str, Array]) -> list[Array]:
    attributes: dict[str, object] = {"hidden_size": op.hidden_size}
    attributes["direction"] = "bidirectional" if op.bidirectional else "forward"
    if isinstance(op, Gru):
        attributes["linear_before_reset"] = 1
    if isinstance(op, Rnn):
        attributes["activations"] = ["Relu" if op.relu else "Tanh"] * op.directions
    outputs = ["y", "h", "c"][: 1 + len(op.states)]
    node = helper.make_node(op.kind_name.upper(), ["x", "w", "r", "b", "", *list(given)[1:]], outputs, **attributes)
    model = make_model([node], {name: value.shape for name, value in given.items()}, outputs, parameters)
    return run_oracle(model, {name: np.ascontiguousarray(value) for name, value in given.items()})


@FEW
@given(
    kind=st.sampled_from([Lstm, Gru, Rnn]),
    layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    carry=st.booleans(),
    relu=st.booleans(),
    sizes=st.tuples(*[st.integers(1, 4)] * 4),
    seed=SEEDS,
)
def test_layers_are_onnxruntimes(
    kind: type[RecurrentLayers],
    layers: int,
    bidirectional: bool,
    carry: bool,
    relu: bool,
    sizes: tuple[int, int, int, int],
    seed: int,
) -> None:
    hidden, *others = sizes
    op = kind(hidden, layers, bidirectional, carry, *([relu] if kind is Rnn else []))
    operands = operands_of(op, *others, seed)
    kept = [operand.copy() for operand in operands]
    expected, finals = onnx_layers(op, operands)
    np.testing.assert_allclose(compute(op, *operands), expected, rtol=1e-4, atol=1e-5)
    for found, final in zip(final_states(op, operands), finals, strict=True):
        np.testing.assert_allclose(found, final, rtol=1e-4, atol=1e-5)
    for operand, before in zip(operands, kept, strict=True):
        np.testing.assert_array_equal(operand, before)


@pytest.mark.parametrize("op", [Lstm(3, 2, False, True), Gru(3, 2, False, True), Rnn(3, 2, False, True, False)])
def test_a_sequence_in_two_parts_gives_the_whole_through_the_carried_states(op: RecurrentLayers) -> None:
    x, *others = operands_of(op, 2, 6, 3, seed=1)
    parameters, states = others[: -len(op.states)], others[-len(op.states) :]
    first = [x[:, :4], *parameters, *states]
    second = [x[:, 4:], *parameters, *final_states(op, first)]
    joined = np.concatenate([compute(op, *first), compute(op, *second)], axis=1)
    np.testing.assert_allclose(joined, compute(op, x, *others), rtol=1e-5, atol=1e-6)


def test_weights_of_equal_width_may_have_two_axes() -> None:
    op = Lstm(2, 2, True, False)
    x, w_ih, *others = operands_of(op, 1, 3, 4, seed=2)
    np.testing.assert_array_equal(compute(op, x, w_ih.reshape(-1, 4), *others), compute(op, x, w_ih, *others))
