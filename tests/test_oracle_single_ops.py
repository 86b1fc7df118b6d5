"""Random models of one operator each: import + reference equal TFLite's own runtimes, every element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from oracles.single_functions import ALL_OPS, NOT_IN_TFLITE_MICRO, NOT_IN_TFLITE_RUNTIME, examples
from oracles.single_ops import Case
from oracles.tflite_ref import SKIP_REASON, TfliteRuntime, oracle_python
from oracles.tflm import Tflm

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.formats.tflite_ops import BUILDERS
from rlx_edge.ir import Array, Graph, Requant
from rlx_edge.ir.ops import QMatMul, Reshape
from rlx_edge.reference import run


def outputs(graph: Graph, case: Case) -> list[Array]:
    inputs = {node.name: value for node, value in zip(graph.inputs, case.inputs, strict=True)}
    return list(run(graph, inputs).values())


def assert_equal(found: Sequence[Array], expected: Sequence[Array]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [name for name in ALL_OPS if name not in NOT_IN_TFLITE_MICRO])
def test_equals_tflite_micro(name: str) -> None:
    @settings(deadline=None, max_examples=examples(name))
    @given(ALL_OPS[name])
    def check(case: Case) -> None:
        found = outputs(load_tflite(case.model), case)
        assert_equal(found, Tflm(case.model).run(case.inputs, len(found)))

    check()


@pytest.fixture(scope="module")
def runtime() -> Iterator[TfliteRuntime]:
    if oracle_python() is None:
        pytest.skip(SKIP_REASON)
    with TfliteRuntime() as worker:
        yield worker


@pytest.mark.parametrize("name", [name for name in ALL_OPS if name not in NOT_IN_TFLITE_RUNTIME])
def test_equals_tflite_runtime_under_its_rule(name: str, runtime: TfliteRuntime) -> None:
    @settings(deadline=None, max_examples=examples(name), suppress_health_check=[HealthCheck.filter_too_much])
    @given(ALL_OPS[name])
    def check(case: Case) -> None:
        graph = load_tflite(case.model, Requant.TFLITE_REF)
        if beyond_tflite_runtime(graph):
            reject()
        try:
            expected = runtime.run(case.model, case.inputs)
        except RuntimeError as error:
            if "has_bias" not in str(error):  # its CONV_2D needs a bias
                raise
            reject()
        try:
            found = outputs(graph, case)
        except UnsupportedError as error:
            if "overflows int32" not in str(error):  # an EXP that the runtime leaves to C's undefined behavior
                raise
            reject()
        assert_equal(found, expected)

    check()


def beyond_tflite_runtime(graph: Graph) -> bool:
    """Its per-channel FULLY_CONNECTED fills the first rows only of an output of rank above 2."""
    output, *_ = graph.output_nodes
    if not isinstance(output.op, Reshape):
        return False
    dense = graph.operands(output)[0]
    return isinstance(dense.op, QMatMul) and len(dense.op.mult) > 1


def test_every_imported_operator_has_a_strategy() -> None:
    covered = {name.split()[0] for name in ALL_OPS} | {"PADV2"}  # the strategy PAD draws both
    assert covered == set(BUILDERS)
