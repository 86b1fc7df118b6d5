"""Random int8 graphs, exported to `.tflite`: TFLite's own runtimes and the reference give equal bits.

`RLX_EDGE_TESTS=long` makes 2000 examples of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from composed_graphs import TFLITE_OPS, compose, extreme_inputs
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from op_graphs import draw_legal, zero_points
from oracles.tflite_ref import SKIP_REASON, TfliteRuntime, oracle_python
from oracles.tflm import Tflm

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_tflite import tflite_bytes
from rlx_edge.formats.export_tflite_ops import EXPORTERS
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Op
from rlx_edge.passes.freeze import freeze
from rlx_edge.reference import run

NO_TFLITE_FORM = (
    "weights with the zero point .* symmetric weights",
    "a mean pooling padded by .* SAME and VALID only",
    "an output scale too small for its operands'",
)
"""What our kernels compute, and TFLite's do not: the only refusals that a legal graph may meet."""

seeds = st.integers(0, 2**32 - 1)
slopes = st.floats(0, 2, width=32)


def exported(graph: Graph) -> bytes:
    """The graph's file; other graphs are drawn where it is refused for one of the known reasons."""
    try:
        return tflite_bytes(graph)
    except UnsupportedError as error:
        if all(re.search("|".join(NO_TFLITE_FORM), problem) for problem in error.problems):
            reject()
        raise


def under(graph: Graph, rule: Requant) -> Graph:
    """The graph with every op under a runtime's rule; others are drawn where the rule refuses the scales."""
    nodes = []
    for node in graph.nodes:
        fields = {"requant": rule, "frozen": None}
        held = {name: value for name, value in fields.items() if hasattr(node.op, name)}
        nodes.append(replace(node, op=replace(node.op, **held)))
    try:
        return freeze(replace(graph, nodes=tuple(nodes)))
    except UnsupportedError:
        reject()


def ours(graph: Graph, inputs: dict[str, Array]) -> list[Array]:
    found = run(graph, inputs)
    return [found[node.name] for node in graph.output_nodes]


def assert_equal(found: list[Array], expected: list[Array]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def assert_tflite_micro_agrees(graph: Graph, seed: int) -> None:
    inputs = extreme_inputs(graph, seed)
    expected = Tflm(exported(graph)).run(list(inputs.values()), len(graph.outputs))
    assert_equal(ours(graph, inputs), expected)


@pytest.mark.parametrize("op", TFLITE_OPS)
def test_single_ops_equal_tflite_micro(op: str) -> None:
    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        assert_tflite_micro_agrees(under(draw_legal(data, op), Requant.TFLM), seed)

    check()


def test_graphs_equal_tflite_micro() -> None:
    drawn: Counter[type[Op]] = Counter()

    @settings(max_examples=2 * settings().max_examples)
    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        graph = under(compose(data), Requant.TFLM)
        assert_tflite_micro_agrees(graph, seed)
        drawn.update(type(node.op) for node in graph.nodes)

    check()
    assert set(EXPORTERS) <= set(drawn)


@pytest.fixture(scope="module")
def runtime() -> Iterator[TfliteRuntime]:
    if oracle_python() is None:
        pytest.skip(SKIP_REASON)
    with TfliteRuntime() as worker:
        yield worker


def test_graphs_equal_tflite_runtime_under_its_rule(runtime: TfliteRuntime) -> None:
    @settings(max_examples=max(settings().max_examples // 2, 1))
    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        graph = under(compose(data), Requant.TFLITE_REF)
        inputs = extreme_inputs(graph, seed)
        assert_equal(ours(graph, inputs), runtime.run(exported(graph), list(inputs.values())))

    check()


def test_graphs_come_back_from_their_files() -> None:
    """Names and parameters of inputs and outputs are kept, and so are all bits.

    Left out: float32 inputs and outputs, which the importer takes off an int8 model, and functions, which may be a
    look-up in the file and are none in the graph.
    """

    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        graph = under(compose(data, without=("quantize", "dequantize", "activation")), Requant.TFLM)
        loaded = load_tflite(exported(graph))
        assert [(n.name, n.type) for n in loaded.inputs] == [(n.name, n.type) for n in graph.inputs]
        assert [n.type for n in loaded.output_nodes] == [n.type for n in graph.output_nodes]
        inputs = extreme_inputs(graph, seed)
        assert_equal(ours(loaded, inputs), ours(graph, inputs))

    check()


TABLE_FUNCTIONS = sorted((fn for fn in ActivationFn if fn is not ActivationFn.TABLE), key=lambda fn: fn.value)


@pytest.mark.parametrize("rule", [Requant.TFLM, Requant.TFLITE_REF])
def test_functions_of_every_code_at_any_scale(rule: Requant, runtime: TfliteRuntime) -> None:
    """Scales over ten orders of magnitude, for the fixed-point kernels' own ends."""
    magnitudes = st.floats(-8, 2).map(lambda e: float(np.float32(10**e)))

    @given(st.sampled_from(TABLE_FUNCTIONS), magnitudes, magnitudes, zero_points, zero_points, slopes)
    def check(fn: ActivationFn, scale: float, out_scale: float, zero: int, out_zero: int, slope: float) -> None:
        fixed = {ActivationFn.SIGMOID: (1 / 256, -128), ActivationFn.TANH: (1 / 128, 0)}
        out = QuantParams.per_tensor(*fixed.get(fn, (out_scale, out_zero)))
        builder = GraphBuilder("function")
        x = builder.input("x", TensorType((256,), DType.I8, QuantParams.per_tensor(scale, zero)))
        op = Activation(fn, slope if fn is ActivationFn.LEAKY_RELU else None, rule)
        graph = under(builder.build([builder.add(op, [x], "y", out)]), rule)
        codes = np.arange(-128, 128).astype(np.int8)
        model = exported(graph)
        expected = Tflm(model).run([codes]) if rule is Requant.TFLM else runtime.run(model, [codes])
        assert_equal(ours(graph, {"x": codes}), expected)

    check()
