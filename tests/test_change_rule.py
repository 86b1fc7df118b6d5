"""Another rounding rule for an int8 graph: what it means stays, and the result is legal where the rule says more."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import get_target
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Op, Softmax
from rlx_edge.passes.change_rule import change_rule
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import dequantize_f32

IN = QuantParams.per_tensor(0.0625, 3)
OTHER = QuantParams.per_tensor(float(np.float32(1 / 255)), -128)
"""What ONNX Runtime's quantizer chooses for results between 0 and 1."""


def one_op(op: Op) -> Graph:
    builder = GraphBuilder("one")
    x = builder.input("x", TensorType((4, 16), DType.I8, IN))
    return builder.build([builder.add(op, [x], "y", OTHER, ("y",))])


@pytest.mark.parametrize("rule", [Requant.TFLM, Requant.TFLITE_REF])
@pytest.mark.parametrize(
    "op",
    [Softmax(1, requant=Requant.ONNX), Activation(ActivationFn.SIGMOID, requant=Requant.ONNX)],
    ids=["softmax", "sigmoid"],
)
def test_fixed_output_parameters(op: Op, rule: Requant) -> None:
    """Ours may have other output parameters than the rule's kernels: names and parameters stay, values nearly."""
    before = one_op(op)
    after = change_rule(before, rule)
    assert [(n.name, n.type.quant, n.sources) for n in after.output_nodes] == [("y", OTHER, ("y",))]
    make_plan(after, get_target("portable"))
    x = np.arange(-32, 32, dtype=np.int8).reshape(4, 16)
    found, expected = (dequantize_f32(run(graph, {"x": x})["y"], OTHER) for graph in (after, before))
    np.testing.assert_allclose(found, expected, atol=1.5 / 255)


def test_there_and_back() -> None:
    graph = one_op(Activation(ActivationFn.GELU, requant=Requant.ONNX))
    x = np.arange(-32, 32, dtype=np.int8).reshape(4, 16)
    again = change_rule(change_rule(graph, Requant.RLX), Requant.ONNX)
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], run(again, {"x": x})["y"])


def test_every_op_that_cannot_is_named() -> None:
    with pytest.raises(UnsupportedError, match="single") as caught:
        change_rule(one_op(Softmax(1, requant=Requant.ONNX)), Requant.SINGLE)
    assert "'y'" in caught.value.problems[0]
