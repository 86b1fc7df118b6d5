"""The node tests of the `onnx` package, run through our importer and reference.

Each case is a model with inputs and the outputs that ONNX gives for them. It passes, is refused by name, or fails: with
a wrong result, or any other error. Where the import refuses a case as it stands, all its inputs but the first are
stored in the model, as weights, shapes and axes are in real files, and it is tried again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.formats.onnx_integers import to_int8
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

EXPANDED = "_expanded"
"""In the name of a case: its op is written as the simpler ones that define it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `status` is passed, refused or failed; `stored`: with inputs stored in the model."""

    name: str
    op: str
    status: str
    reason: str = ""
    stored: bool = False


@cache
def node_cases() -> tuple[Any, ...]:
    """All cases, in the order of their names. Building them takes some ten seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tuple(sorted(collect_testcases(None), key=lambda case: str(case.name)))


def op_names() -> dict[str, str]:
    """Which op each case is about: its only one, or for an expanded case that of the case that it expands."""
    cases = node_cases()
    single = {c.name: c.model.graph.node[0].op_type for c in cases if EXPANDED not in c.name}
    return {c.name: single.get(c.name.split(EXPANDED)[0], c.model.graph.node[0].op_type) for c in cases}


def run_case(case: Any, op: str) -> Outcome:
    """Import a case, run it, and compare: floats within the case's own tolerances, all else exactly."""
    stored = False
    try:
        graph, stored, reason = _load(case)
        if graph is None:
            return Outcome(case.name, op, "refused", reason)
        for inputs, outputs in case.data_sets:
            given = dict(zip([v.name for v in case.model.graph.input], inputs, strict=False))
            found = run(graph, {node.name: _in_codes(node, np.asarray(given[node.name])) for node in graph.inputs})
            _compare(
                [
                    _out_of_codes(node, found[node.name], wanted)
                    for node, wanted in zip(graph.output_nodes, outputs, strict=True)
                ],
                outputs,
                case.rtol,
                case.atol,
            )
    except Exception as error:
        return Outcome(case.name, op, "failed", f"{type(error).__name__}: {error}", stored)
    return Outcome(case.name, op, "passed", "", stored)


def _in_codes(node: Node, values: Array) -> Array:
    """uint8 values for an input that the importer moved to int8; real ones for one that stands for real values."""
    quant = node.type.quant
    if quant is None or values.dtype == np.int8:
        return values
    return to_int8(values) if values.dtype == np.uint8 else quantize_f32(values, quant, rounding=np.rint)


def _out_of_codes(node: Node, values: Array, wanted: Any) -> Array:
    """The other way round, for an output."""
    kind = np.asarray(wanted).dtype
    if node.type.quant is None or kind == np.int8:
        return values
    return (
        (values.astype(np.int16) + 128).astype(np.uint8)
        if kind == np.uint8
        else dequantize_f32(values, node.type.quant)
    )


def _load(case: Any) -> tuple[Graph | None, bool, str]:
    """The graph, whether inputs had to be stored in the model for it, and why there is none."""
    try:
        return load_onnx(case.model.SerializeToString()), False, ""
    except UnsupportedError as error:
        reason = _reason(error)
    stored = _with_stored_inputs(case)
    if stored is None:
        return None, False, reason
    try:
        return load_onnx(stored.SerializeToString()), True, ""
    except UnsupportedError as error:
        return None, True, _reason(error)


def _reason(error: UnsupportedError) -> str:
    """The first problem, without the name of the node."""
    return error.problems[0].split(": ", 1)[-1] if error.problems else str(error).split(": ", 1)[-1]


def _with_stored_inputs(case: Any) -> onnx.ModelProto | None:
    """The model with every input but the first as an initializer, where all are plain tensors and there is one set."""
    rest = list(case.model.graph.input)[1:]
    values = list(case.data_sets[0][0])[1:]
    if len(case.data_sets) != 1 or not rest or not all(isinstance(v, np.ndarray | np.generic) for v in values):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.input[1:]
    for value, array in zip(rest, values, strict=False):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
    model.ir_version = max(model.ir_version, 4)  # Before, initializers had to be inputs too.
    return model


def _compare(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> None:
    assert len(found) == len(expected), f"{len(found)} outputs instead of {len(expected)}"
    for ours, theirs in zip(found, expected, strict=True):
        wanted = np.asarray(theirs)
        assert (ours.dtype, ours.shape) == (wanted.dtype, wanted.shape), f"{ours.dtype}{ours.shape}"
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(ours, wanted, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(ours, wanted)


def outcomes() -> Iterator[Outcome]:
    """What becomes of every case."""
    ops = op_names()
    return (run_case(case, ops[case.name]) for case in node_cases())
