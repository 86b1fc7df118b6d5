"""All node tests of the `onnx` package: each passes or is refused by name; docs/onnx-coverage.md counts them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_node_cases import Outcome, node_cases, outcomes, run_case

from rlx_edge.formats.onnx import load_onnx
from rlx_edge.reference import run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "onnx-coverage.md"
AT_LEAST = 500
"""Cases that must pass with any version of onnx."""


@pytest.fixture(scope="module")
def found() -> Sequence[Outcome]:
    return list(outcomes())


def test_no_case_fails(found: Sequence[Outcome]) -> None:
    failed = [f"{o.name}: {o.reason}" for o in found if o.status == "failed"]
    assert not failed, "\n".join(failed)
    assert sum(o.status == "passed" for o in found) >= AT_LEAST


def test_every_refusal_says_why_in_one_line(found: Sequence[Outcome]) -> None:
    for outcome in found:
        if outcome.status == "refused":
            assert outcome.reason.strip() and "\n" not in outcome.reason, outcome


def test_page_counts_what_is_found(found: Sequence[Outcome]) -> None:
    counts = r"With onnx (\S+): ([\d,]+) cases, ([\d,]+) passed, ([\d,]+) refused, ([\d,]+) failed"
    (line,) = re.findall(counts, PAGE.read_text(encoding="utf-8"))
    if line[0] != onnx.__version__:
        pytest.skip(f"the page was written with onnx {line[0]}; {onnx.__version__} is installed")
    count = [len(found), *(sum(o.status == s for o in found) for s in ("passed", "refused", "failed"))]
    assert [int(n.replace(",", "")) for n in line[1:]] == count, "run scripts/onnx_coverage.py"


STORED = ("int2", "uint2", "int4", "uint4", "axis", "blocked")


@pytest.mark.parametrize(
    "case", [f"test_{op}linear_{kind}" for op in ("quantize", "dequantize") for kind in STORED[:5]]
)
def test_weights_as_the_node_tests_have_them(case: str) -> None:
    """The cases that are refused because an input is of 4 bits or less: in a model that holds it, as weights are."""
    check_stored(case)


def test_blocks_of_weights() -> None:
    check_stored("test_dequantizelinear_blocked")


def check_stored(name: str) -> None:
    """A model that adds the values of a case, dequantized, to its input."""
    case = next((c for c in node_cases() if c.name == name), None)
    if case is None:
        pytest.skip(f"onnx {onnx.__version__} has no {name}")
    (values, (expected,)), (node,) = case.data_sets[0], case.model.graph.node
    held = [v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(np.asarray(v)) for v in values]
    for tensor, wanted in zip(held, node.input, strict=True):
        tensor.name = wanted
    nodes = [node]
    if node.op_type == "QuantizeLinear":
        nodes.append(onnx.NodeProto())
        nodes[1].CopyFrom(node)
        nodes[1].op_type, nodes[1].output[0], nodes[1].input[0] = "DequantizeLinear", "real", node.output[0]
        expected = real_values(expected, held[1:], node)
    x = helper.make_tensor_value_info("offset", onnx.TensorProto.FLOAT, expected.shape)
    y = helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, expected.shape)
    nodes.append(helper.make_node("Add", ["offset", nodes[-1].output[0]], ["sum"]))
    graph = helper.make_graph(nodes, "stored", [x], [y], held)
    model = helper.make_model(graph, opset_imports=case.model.opset_import, ir_version=case.model.ir_version)
    found = run(load_onnx(model.SerializeToString()), {"offset": np.zeros(expected.shape, np.float32)})
    np.testing.assert_array_equal(found["sum"], expected)


def real_values(
    codes: onnx.TensorProto | np.ndarray, held: Sequence[onnx.TensorProto], node: onnx.NodeProto
) -> np.ndarray:
    """What quantized values stand for."""
    integers = numpy_helper.to_array(codes) if isinstance(codes, onnx.TensorProto) else np.asarray(codes)
    scale, zero = (numpy_helper.to_array(t).astype(np.float32) for t in held)
    shape = [1] * integers.ndim
    if scale.size > 1:
        shape[next((a.i for a in node.attribute if a.name == "axis"), 1)] = scale.size
    return (integers.astype(np.float32) - zero.reshape(shape)) * scale.reshape(shape)


def test_a_wrong_result_would_fail() -> None:
    """The comparison compares: a case whose expected output is changed fails."""
    case = next(c for c in node_cases() if c.name == "test_relu")
    inputs, (output,) = case.data_sets[0]
    wrong = dataclasses.replace(case, data_sets=[(inputs, [output + 1])])
    assert [run_case(c, "Relu").status for c in (case, wrong)] == ["passed", "failed"]
