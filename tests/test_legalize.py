"""What a target refuses, and that it says everything at once; memory plans never overlap what lives together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from models import ModelMaker, random_model, tiny_model

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import PORTABLE_OPS, TARGETS, get_target
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import (
    Binary,
    BinaryOp,
    Layout,
    MatMul,
    Pool,
    ReduceOp,
    Reshape,
    Softmax,
)
from rlx_edge.passes.freeze import freeze

PORTABLE = TARGETS["portable"]
QUANT = QuantParams.per_tensor(0.1, 0)


def refusals(graph: Graph) -> list[str]:
    with pytest.raises(UnsupportedError) as caught:
        legalize(freeze(graph), PORTABLE)
    return list(caught.value.problems)


def test_all_violations_are_told_at_once() -> None:
    builder = GraphBuilder("many")
    x = builder.input("x", TensorType((1, 2, 6, 6), DType.I8, QUANT))
    pooled = builder.add(Pool(ReduceOp.MEAN, (2, 2), (2, 2), (0, 0), requant=Requant.TFLM), [x], "nchw", QUANT)
    soft = builder.add(Softmax(1, requant=Requant.TFLM), [pooled], "axis", QuantParams.per_tensor(1 / 256, -128))
    summed = builder.add(Pool(ReduceOp.SUM, (1, 1), (1, 1), (0, 0), Layout.NHWC), [x], "sum", QUANT)
    found = refusals(builder.build([soft, summed]))
    assert [text.split(":")[0] for text in found] == [
        "node 1 Pool 'nchw'",
        "node 2 Softmax 'axis'",
        "node 3 Pool 'sum'",
        "node 3 Pool 'sum'",
    ]
    assert "layout NCHW" in found[0]
    assert "only the last axis" in found[1]
    assert "rounding rule 'rlx'" in found[2]
    assert "pooling by Sum" in found[3]


def test_numbers_beyond_int32_never_reach_a_kernel() -> None:
    builder = GraphBuilder("far")
    x = builder.input("x", TensorType((1, 4, 4, 2), DType.I8, QUANT))
    pool = Pool(ReduceOp.MEAN, (4, 4), (2**33, 1), (0, 0), Layout.NHWC, requant=Requant.TFLM)
    (problem,) = refusals(builder.build([builder.add(pool, [x], "pooled", QUANT)]))
    assert "stride (8589934592, 1) is beyond int32" in problem


def test_a_float_model_is_told_to_quantize() -> None:
    builder = GraphBuilder("float")
    x = builder.input("x", TensorType((1, 4), DType.F32))
    y = builder.add(Binary(BinaryOp.ADD), [x, x], "sum")
    (problem,) = refusals(builder.build([y]))
    assert problem.endswith("operands of f32, not i8; quantize the model first")


def test_an_op_that_no_kernel_serves() -> None:
    builder = GraphBuilder("product")
    x = builder.input("x", TensorType((1, 4), DType.I8, QUANT))
    w = builder.input("w", TensorType((4, 2), DType.I8, QUANT))
    y = builder.add(MatMul(), [x, w], "product", QUANT)
    (problem,) = refusals(builder.build([y]))
    assert "the op is not one of the target's" in problem
    assert "QConv2d" in problem


def test_an_accumulator_that_could_overflow_is_refused() -> None:
    maker = ModelMaker("overflow", 0)
    y = maker.dense(maker.input((1, 8)), 2)
    graph = maker.builder.build([y])
    bias = np.array([2**31 - 1, 0], np.int32)
    (problem,) = refusals(replace(graph, params={**graph.params, "dense/b": bias}))
    assert "does not fit in int32" in problem


def test_the_proof_is_tight() -> None:
    """The bound is reached by an input: |bias'| + sum of |w| * 128."""
    maker = ModelMaker("bound", 4)
    y = maker.dense(maker.input((1, 5)), 1)
    graph = maker.builder.build([y])
    x_quant = graph.inputs[0].type.quant
    assert x_quant is not None
    x_zp = x_quant.zero_point
    weights = graph.params["dense/w"].astype(np.int64)[:, 0]
    folded = int(graph.params["dense/b"][0]) - x_zp * int(weights.sum())
    (proof,) = make_plan(graph, PORTABLE).proofs
    assert f"<= {abs(folded) + 128 * int(np.abs(weights).sum())}," in proof


def test_outputs_must_be_computed() -> None:
    builder = GraphBuilder("idle")
    x = builder.input("x", TensorType((1, 4), DType.I8, QUANT))
    (problem,) = refusals(builder.build([x]))
    assert "nothing computes it" in problem


def test_unknown_targets_name_those_that_exist() -> None:
    with pytest.raises(EdgeError, match="no target 'm4'; there are portable, cortex-m0"):
        get_target("m4")


def test_every_supported_op_has_a_lowering() -> None:
    from rlx_edge.cgen.lower import LOWER

    assert set(LOWER) == set(PORTABLE_OPS)


@pytest.mark.parametrize("seed", range(60))
def test_tensors_that_live_together_do_not_overlap(seed: int) -> None:
    """Lifetimes are worked out here anew: from the step that makes a tensor to the last that reads it. Within the step
    that makes one and reads the other for the last time they may share bytes: tests/test_memory.py simulates that."""
    plan = make_plan(random_model(seed), PORTABLE)
    graph = plan.graph
    last = {tensor.node: -1 if tensor.step is None else tensor.step for tensor in plan.tensors}
    for index, step in enumerate(plan.steps):
        for operand in graph.nodes[step.node].inputs:
            if operand in last:
                last[operand] = index
    last |= dict.fromkeys(graph.outputs, len(plan.steps))
    for a in plan.tensors:
        assert a.offset + a.type.bytes <= plan.arena_bytes
        for b in plan.tensors:
            if a.node < b.node and _overlap(a.offset, a.type.bytes, b.offset, b.type.bytes):
                first_b = -1 if b.step is None else b.step
                in_turn = last[a.node] <= first_b if first_b >= 0 else False
                assert in_turn or _same_bytes(graph, a.node, b.node), f"{a.name} and {b.name}"


def _overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size


def _same_bytes(graph: Graph, a: int, b: int) -> bool:
    """Whether both are one tensor by way of reshapes."""
    ends = []
    for node in (a, b):
        while isinstance(graph.nodes[node].op, Reshape):
            node = graph.nodes[node].inputs[0]
        ends.append(node)
    return ends[0] == ends[1]


def test_a_residual_add_works_in_place() -> None:
    plan = make_plan(tiny_model(), PORTABLE)
    offsets = {tensor.name: tensor.offset for tensor in plan.tensors}
    assert offsets["residual"] in (offsets["conv"], offsets["depthwise"])
