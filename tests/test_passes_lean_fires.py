"""Each pass of `lean` finds what it is for, and leaves alone what would not be the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import ModelMaker
from test_passes_lean import check_same, lowered

from rlx_edge.formats.load import load
from rlx_edge.ir import Array, Graph, Node, QuantParams, Requant, real_multipliers, to_text
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Dequantize,
    Layout,
    Leaf,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    ReduceOp,
    Reshape,
)
from rlx_edge.passes.fold_constant_channels import fold_constant_channels
from rlx_edge.passes.pipeline import lean

MODELS = Path(__file__).parents[2] / "shared" / "models"
SIDES = ((0, 0), (1, 1), (1, 1), (0, 0))
LOW = QuantParams.per_tensor(0.05, -128)


def lean_of(graph: Graph) -> Graph:
    """The lean graph, which gives the same."""
    before = lowered(graph)
    after = lean(before)
    check_same(before, after)
    return after


def computed(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if not isinstance(node.op, Leaf)]


def node(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def conv_op(graph: Graph, name: str) -> QConv2d:
    op = node(graph, name).op
    assert isinstance(op, QConv2d)
    return op


def live(graph: Graph) -> tuple[int, int]:
    """(weights, channels) of all convolutions and dense layers."""
    layers = [node for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul)]
    return sum(graph.nodes[n.inputs[1]].type.elements for n in layers), sum(n.type.shape[-1] for n in layers)


def edited(graph: Graph, **changes: Callable[[Array], None]) -> Graph:
    """The graph with parameters (`conv/w` as conv_w) changed in place in a copy."""
    params = {name: values.copy() for name, values in graph.params.items()}
    for name, change in changes.items():
        change(params[name.replace("_", "/")])
    return replace(graph, params=params)


def set_to(value: int, *where: Any) -> Callable[[Array], None]:
    def change(values: Array) -> None:
        values[tuple(where)] = value

    return change


def chain(padding: bool = False, zero_point: int = -128) -> Graph:
    """conv 2 -> 4, conv 4 -> 5 (3x3, with or without padding), flattened, dense -> 3."""
    maker = ModelMaker("chain", 11)
    a = maker.conv(maker.input((1, 5, 5, 2)), 4, name="a", out=QuantParams.per_tensor(0.05, zero_point))
    b = maker.conv(a, 5, name="b")
    c = maker.dense(maker.flatten(b), 3, name="c")
    graph = maker.builder.build([c])
    if padding:
        return graph
    maker = ModelMaker("chain", 11)
    a = maker.conv(maker.input((1, 5, 5, 2)), 4, name="a", out=QuantParams.per_tensor(0.05, zero_point))
    op = replace(conv_op(graph, "b"), padding=(0, 0, 0, 0))
    w, bias = (graph.params[f"b/{name}"] for name in "wb")
    operands = [a, maker.builder.param("b/w", w, node(graph, "b/w").type.quant), maker.builder.param("b/b", bias)]
    b = maker.builder.add(op, operands, "b", node(graph, "b").type.quant)
    return maker.builder.build([maker.dense(maker.flatten(b), 3, name="c")])


# ---- Channels --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not here")
def test_vww_loses_its_dead_channels() -> None:
    after = lean_of(load(MODELS / "vww_int8.tflite"))
    weights, channels = live(after)
    assert weights <= 29_286 and channels <= 1_022


@pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not here")
@pytest.mark.parametrize("name", ["kws_int8", "ic_int8", "ad_int8"])
def test_models_without_dead_channels_keep_all(name: str) -> None:
    before = lowered(load(MODELS / f"{name}.tflite"))
    assert live(lean(before)) == live(before)


def test_channels_that_nobody_reads_go() -> None:
    graph = edited(chain(), b_w=set_to(0, slice(None), slice(None), slice(None), [0, 2]))
    after = lean_of(graph)
    assert node(after, "a").type.shape == (1, 5, 5, 2)
    assert str(node(after, "a").channels) == "channels 1, 3: 2 of 4 kept"
    assert "channels [1, 3] of 4" in to_text(after)
    assert node(after, "b/w").type.shape == (5, 3, 3, 2)


def test_channels_that_a_dense_layer_ignores_go_through_its_flatten() -> None:
    graph = edited(chain(), c_w=lambda w: w.reshape(9, 5, 3).__setitem__((slice(None), [1, 4]), 0))
    after = lean_of(graph)
    assert node(after, "b").type.shape == (1, 3, 3, 3) and node(after, "c/w").type.shape == (27, 3)
    assert node(after, "flatten").channels is not None


def test_groups_go_as_wholes() -> None:
    maker = ModelMaker("groups", 3)
    a = maker.conv(maker.input((1, 4, 4, 3)), 6, name="a")
    b = maker.conv(a, 12, groups=3, name="b")
    graph = maker.builder.build([maker.conv(b, 2, 1, name="c")])
    graph = edited(graph, c_w=set_to(0, slice(None), 0, 0, [0, 1, 2, 3, 5]))
    after = lean_of(graph)
    assert conv_op(after, "b").groups == 2
    assert node(after, "b").type.shape[3] == 8 and node(after, "a").type.shape[3] == 4


def test_what_else_reads_a_channel_keeps_it() -> None:
    """A residual sum has the channels that any reader of its operands needs."""
    maker = ModelMaker("residual", 3)
    a = maker.conv(maker.input((1, 4, 4, 2)), 4, name="a")
    total = maker.add(a, maker.conv(a, 4, name="b"))
    graph = maker.builder.build([maker.conv(total, 2, 1, name="c")])
    dead = edited(graph, c_w=set_to(0, slice(None), 0, 0, 1))
    assert [node(lean_of(dead), name).type.shape[3] for name in ("a", "b", "add")] == [4, 4, 4]
    unread = edited(dead, b_w=set_to(0, slice(None), slice(None), slice(None), 1))
    assert [node(lean_of(unread), name).type.shape[3] for name in ("a", "b", "add")] == [3, 3, 3]


def test_a_channel_without_weights_goes_into_the_next_bias() -> None:
    graph = edited(chain(), a_w=set_to(0, 2))
    assert node(lean_of(graph), "a").type.shape[3] == 3


@pytest.mark.parametrize("bias", [-5_000_000, 5_000_000])
def test_a_channel_that_saturates_for_every_input_goes(bias: int) -> None:
    graph = edited(chain(), a_b=set_to(bias, 2))
    assert node(lean_of(graph), "a").type.shape[3] == 3


def test_behind_padding_only_the_zero_point_goes() -> None:
    graph = chain(padding=True)
    low = edited(graph, a_b=set_to(-5_000_000, 2))  # Saturates at -128, which is the zero point.
    high = edited(graph, a_b=set_to(5_000_000, 2))
    assert node(lean_of(low), "a").type.shape[3] == 3
    assert node(lean_of(high), "a").type.shape[3] == 4
    column = edited(high, b_w=set_to(0, slice(None), slice(None), [0, 2], 2))  # Above and below are paddings.
    assert node(lean_of(column), "a").type.shape[3] == 4
    centre = edited(column, b_w=set_to(0, slice(None), [0, 2], 1, 2))
    assert node(lean_of(centre), "a").type.shape[3] == 3


def test_a_bias_that_would_leave_int32_stays() -> None:
    graph = edited(chain(), a_b=set_to(5_000_000, 2), b_b=set_to(2**31 - 1, slice(None)))
    up = edited(graph, b_w=lambda w: w.__setitem__(..., np.abs(w)))
    before = lowered(up)
    after = fold_constant_channels(before)
    assert (node(after, "a/w").type.shape, after.params["b/b"].tolist()) == ((4, 3, 3, 2), [2**31 - 1] * 5)
    check_same(before, after)


def test_a_constant_tensor_beside_another_becomes_a_number() -> None:
    maker = ModelMaker("constant", 3)
    x = maker.input((1, 4, 4, 2))
    total = maker.add(maker.conv(x, 1, name="a"), maker.conv(x, 1, name="b"))
    after = lean_of(edited(maker.builder.build([total]), b_w=set_to(0, ...)))
    assert [n.name for n in computed(after)] == ["a", "add"]
    assert isinstance(computed(after)[1].op, Activation)


def test_an_output_without_weights_is_still_computed() -> None:
    maker = ModelMaker("nothing", 3)
    graph = maker.builder.build([maker.conv(maker.conv(maker.input((1, 4, 4, 2)), 4, name="a"), 3, name="b")])
    after = lean_of(edited(graph, b_w=set_to(0, ...)))
    assert node(after, "a").type.shape[3] == 1 and node(after, "b").type.shape[3] == 3


# ---- Kernels ---------------------------------------------------------------------------------------------------------


def test_taps_on_padding_alone_and_taps_without_weights_go() -> None:
    maker = ModelMaker("taps", 3)
    pixel = maker.builder.build([maker.conv(maker.input((1, 1, 1, 2)), 3, name="a")])
    assert conv_op(lean_of(pixel), "a").kernel_size == (1, 1)
    maker = ModelMaker("taps", 3)
    image = maker.builder.build([maker.conv(maker.input((1, 6, 5, 2)), 3, stride=2, name="a")])
    rows = edited(image, a_w=set_to(0, slice(None), 0))
    assert conv_op(lean_of(rows), "a").kernel_size == (2, 3)
    columns = edited(image, a_w=set_to(0, slice(None), slice(None), 2))
    assert conv_op(lean_of(columns), "a").kernel_size == (3, 2)


# ---- Tables ----------------------------------------------------------------------------------------------------------


def on_input(*layers: Callable[[ModelMaker, int], int]) -> Graph:
    maker = ModelMaker("tables", 3)
    last = maker.input((1, 3, 3, 2))
    for layer in layers:
        last = layer(maker, last)
    return maker.builder.build([last])


def requantize(maker: ModelMaker, x: int) -> int:
    quant = maker.quant(maker.quant_of(x).scale * 0.8)
    return maker.builder.add(Quantize.to(quant, Requant.TFLM), [x], "requantize", quant)


def through_float(maker: ModelMaker, x: int) -> int:
    real = maker.builder.add(Dequantize.of(maker.quant_of(x)), [x], "real")
    return maker.builder.add(Quantize.to(LOW, Requant.TFLM), [real], "codes", LOW)


def add_number(maker: ModelMaker, x: int) -> int:
    return maker.add(x, maker.builder.param("number", np.full((1, 1, 1, 2), 40, np.int8), LOW))


def number_minus(maker: ModelMaker, x: int) -> int:
    return maker.add(maker.builder.param("number", np.full(1, 40, np.int8), LOW), x, fn=BinaryOp.SUB)


def swish(maker: ModelMaker, x: int) -> int:
    sigmoid = Activation(ActivationFn.SIGMOID, requant=Requant.TFLM)
    gate = maker.builder.add(sigmoid, [x], "gate", QuantParams.per_tensor(1 / 256, -128))
    return maker.add(x, gate, fn=BinaryOp.MUL)


@pytest.mark.parametrize(
    "layers",
    [[requantize, requantize], [through_float], [add_number], [number_minus], [swish], [swish, add_number, requantize]],
)
def test_elementwise_chains_become_one_table(layers: list[Callable[[ModelMaker, int], int]]) -> None:
    (only,) = computed(lean_of(on_input(*layers)))
    assert isinstance(only.op, Activation) and only.op.fn is ActivationFn.TABLE


def test_what_else_is_read_stays_and_one_number_a_channel_is_no_table() -> None:
    maker = ModelMaker("tables", 3)
    first = requantize(maker, maker.input((1, 3, 3, 2)))
    second = requantize(maker, first)
    assert [type(n.op) for n in computed(lean_of(maker.builder.build([first, second])))] == [Quantize, Quantize]
    maker = ModelMaker("tables", 3)
    numbers = maker.builder.param("numbers", np.array([40, 41], np.int8), LOW)
    graph = maker.builder.build([maker.add(maker.input((1, 3, 3, 2)), numbers)])
    assert isinstance(computed(lean_of(graph))[0].op, Binary)


# ---- Clamps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("relu", [Clamp(0.0, 3.0), Activation(ActivationFn.RELU, requant=Requant.TFLM)])
def test_a_clamp_goes_into_the_layer_before(relu: Clamp | Activation, reshaped: bool) -> None:
    maker = ModelMaker("clamps", 3)
    out = QuantParams.per_tensor(0.05, -100)
    last = maker.conv(maker.input((1, 3, 3, 2)), 4, name="a", out=out)
    if reshaped:
        last = maker.flatten(last)
    after = lean_of(maker.builder.build([maker.builder.add(relu, [last], "y", out)]))
    assert [type(n.op) for n in computed(after)] == [QConv2d, *([Reshape] if reshaped else [])]
    assert conv_op(after, computed(after)[0].name).clamp == (-100, -40 if isinstance(relu, Clamp) else 127)


def test_a_clamp_that_bounds_nothing_goes() -> None:
    graph = chain()
    op = replace(conv_op(graph, "a"), clamp=(-128, 127))
    with_bounds = replace(graph, nodes=tuple(replace(n, op=op) if n.name == "a" else n for n in graph.nodes))
    assert conv_op(lean_of(with_bounds), "a").clamp is None


# ---- Paddings --------------------------------------------------------------------------------------------------------


def padded(pads: list[Pad], between: list[Op], window: QConv2d | Pool | None, zero_point: int = -100) -> Graph:
    """conv, pads, what is between, and a 2x2 window (None: another convolution without padding)."""
    maker = ModelMaker("pads", 3)
    quant = QuantParams.per_tensor(0.05, zero_point)
    last = maker.conv(maker.input((1, 4, 4, 2)), 3, name="a", out=quant)
    relu = Activation(ActivationFn.RELU, requant=Requant.TFLM)
    last = maker.builder.add(relu, [last], "relu", quant)
    for op in (*pads, *between):
        last = maker.builder.add(op, [last], "pad", quant)
    if window is not None:
        return maker.builder.build([maker.builder.add(window, [last], "pool", quant)])
    weights = maker.builder.param("w", np.ones((2, 2, 2, 3), np.int8) * 3, QuantParams.per_tensor(0.01, 0))
    out = QuantParams.per_tensor(0.03, 0)
    mult = real_multipliers(quant, QuantParams.per_tensor(0.01, 0), out)
    op = QConv2d((2, 2), (1, 1), (0, 0), (1, 1), 1, zero_point, 0, 0, mult, Layout.NHWC, Requant.TFLM)
    bias = maker.builder.param("b", np.zeros(2, np.int32))
    return maker.builder.build([maker.builder.add(op, [last, weights, bias], "conv", out)])


def pool(kind: ReduceOp) -> Pool:
    return Pool(kind, (2, 2), (1, 1), (0, 0), Layout.NHWC, requant=Requant.TFLM)


@pytest.mark.parametrize(
    ("graph", "folds"),
    [
        (padded([Pad(SIDES)], [], None), True),
        (padded([Pad(SIDES, value=0.01)], [], None), True),  # Rounds to the zero point.
        (padded([Pad(SIDES, value=0.1)], [], None), False),
        (padded([Pad(SIDES), Pad(SIDES)], [], None), True),
        (padded([Pad(SIDES)], [Clamp(-1.0, 2.0)], None), True),
        (padded([Pad(SIDES)], [Clamp(1.0, 2.0)], None), False),  # Fills with 1 then.
        (
            padded([Pad(((0, 0), (1, 1), (0, 0), (0, 0)))], [Reshape((1, 6, 1, 4, 3)), Reshape((1, 6, 4, 3))], None),
            True,
        ),
        (padded([Pad(SIDES)], [], pool(ReduceOp.MEAN)), True),
        (padded([Pad(SIDES, value=1.0)], [], pool(ReduceOp.MEAN)), False),
        (padded([Pad(SIDES)], [], pool(ReduceOp.MAX)), True),  # After a Relu no code is lower.
        (padded([Pad(SIDES, value=1.0)], [], pool(ReduceOp.MAX)), False),
        (padded([Pad(((0, 0), (2, 1), (1, 1), (0, 0)))], [], pool(ReduceOp.MAX)), False),  # As wide as the window.
    ],
)
def test_padding_goes_into_the_window_that_reads_it(graph: Graph, folds: bool) -> None:
    after = lean_of(graph)
    assert any(isinstance(n.op, Pad) for n in after.nodes) is not folds


def test_channels_of_a_concatenation_go_where_they_came_from() -> None:
    maker = ModelMaker("join", 3)
    x = maker.input((1, 4, 4, 2))
    a = maker.conv(x, 3, name="a")
    b = maker.conv(x, 2, name="b", out=maker.quant_of(a))
    join = maker.builder.add(Concat(3), [a, b], "join", maker.quant_of(a))
    graph = maker.builder.build([maker.conv(join, 2, 1, name="c")])
    after = lean_of(edited(graph, c_w=set_to(0, slice(None), 0, 0, [1, 4])))
    assert [node(after, name).type.shape[3] for name in ("a", "b", "join")] == [2, 1, 3]
    assert str(node(after, "join").channels) == "channels 0, 2, 3: 3 of 5 kept"
