"""Ops made of others: the same bits from the reference, on float32 and on int8, and from C on the host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import Draw, activation, params, random_inputs, seeds

from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Gather, Op, Pad, PadMode, Tile
from rlx_edge.passes.decompose import RULES, decompose
from rlx_edge.reference.run import run

NUMPY_MODES = {PadMode.REFLECT: "reflect", PadMode.REPLICATE: "edge", PadMode.CIRCULAR: "wrap"}


@st.composite
def tiles(draw: Draw, shape: tuple[int, ...]) -> Tile:
    return Tile(tuple(draw(st.integers(1, 3)) for _ in shape))


@st.composite
def pads(draw: Draw, shape: tuple[int, ...]) -> Pad:
    mode = draw(st.sampled_from(sorted(NUMPY_MODES, key=lambda mode: mode.value)))
    most = [3 if mode is PadMode.REPLICATE else size - (mode is PadMode.REFLECT) for size in shape]
    return Pad(tuple((draw(st.integers(0, n)), draw(st.integers(0, n))) for n in most), mode)


@st.composite
def gathers(draw: Draw, shape: tuple[int, ...]) -> Gather:
    return Gather(draw(st.integers(-len(shape), len(shape) - 1)))


OPS = {"tile": tiles, "pad": pads, "gather": gathers}


@st.composite
def graphs(draw: Draw, name: str, quant: QuantParams | None) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    op: Op = draw(OPS[name](shape))
    builder = GraphBuilder(name)
    operands = [builder.input("x", TensorType(shape, DType.F32) if quant is None else activation(shape, quant))]
    if isinstance(op, Gather):
        size = shape[op.axis]
        indices = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=6))
        operands.append(builder.param("indices", np.array(indices, np.int32)))
    return builder.build([builder.add(op, operands, "y", quant)])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("quantized", [False, True])
def test_what_an_op_is_made_of_gives_the_same_bits(name: str, quantized: bool) -> None:
    seen = set()

    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        graph = data.draw(graphs(name, data.draw(params()) if quantized else None))
        made = decompose(graph)
        inputs = random_inputs(graph, seed)
        np.testing.assert_array_equal(run(made, inputs)["y"], decomposed_by_numpy(graph, inputs["x"]))
        seen.add(made is graph)
        assert made is graph or not any(isinstance(node.op, tuple(RULES)) for node in made.nodes)

    check()
    assert False in seen


def decomposed_by_numpy(graph: Graph, x: np.ndarray) -> np.ndarray:
    node = graph.nodes[graph.outputs[0]]
    if isinstance(node.op, Tile):
        return np.tile(x, node.op.reps)
    if isinstance(node.op, Gather):
        return np.take(x, graph.params["indices"], axis=node.op.axis)
    assert isinstance(node.op, Pad)
    return np.pad(x, node.op.pads, mode=NUMPY_MODES[node.op.mode])
