"""Average pooling over the whole image becomes a mean, with an output scale of its own."""

from __future__ import annotations

import numpy as np
import pytest
from models import ModelMaker as Int8Maker
from onnx_models import random_array

from rlx_edge.data import Data
from rlx_edge.ir import DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import Layout, Pool, Reduce, ReduceOp
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.pool_to_mean import pool_to_mean
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run

IMAGE = (1, 5, 7, 3)


def pooled(op: Pool, shape: Shape = IMAGE) -> Graph:
    builder = GraphBuilder("pooled")
    x = builder.input("x", TensorType(shape, DType.F32))
    return builder.build([builder.add(op, [x], "y", sources=("pool",))])


def mean(kernel: Shape, padding: Shape = (0, 0), layout: Layout = Layout.NHWC, counted: bool = False) -> Pool:
    return Pool(ReduceOp.MEAN, kernel, (1, 1), padding, layout, counted)


@pytest.mark.parametrize(
    ("op", "axes"),
    [
        (mean((5, 7)), (1, 2)),
        (mean((7, 3), layout=Layout.NCHW), (2, 3)),
        (mean((7, 9), (1, 1)), (1, 2)),  # Padding that does not count changes nothing.
        (mean((6, 7), (1, 0, 0, 0)), (1, 2)),
    ],
)
def test_one_window_over_the_whole_image_is_a_mean(op: Pool, axes: Shape) -> None:
    before = pooled(op)
    after = pool_to_mean(before)
    (y,) = after.output_nodes
    assert y.op == Reduce(ReduceOp.MEAN, axes, keep_dim=True)
    assert (y.name, y.sources, y.type) == ("y", ("pool",), before.output_nodes[0].type)
    x = {"x": random_array(IMAGE, 1)}
    np.testing.assert_array_max_ulp(run(after, x)["y"], run(before, x)["y"], maxulp=1)


@pytest.mark.parametrize(
    "op",
    [
        mean((4, 7)),
        mean((7, 9), (1, 1), counted=True),
        Pool(ReduceOp.MAX, (5, 7), (1, 1), (0, 0), Layout.NHWC),
        Pool(ReduceOp.MEAN, (3, 7), (3, 1), (0, 0), Layout.NHWC),  # One window, but not over all rows.
    ],
)
def test_any_other_pooling_stays(op: Pool) -> None:
    assert pool_to_mean(pooled(op)).output_nodes[0].op == op


def test_int8_pooling_stays_what_it_is() -> None:
    maker = Int8Maker("int8", 1)
    x = maker.input((1, 4, 4, 2))
    graph = maker.builder.build([maker.pool(x, 4)])
    assert pool_to_mean(graph) is graph


def test_the_mean_gets_a_scale_of_its_own_on_int8() -> None:
    graph = pooled(mean((5, 7)))
    values = np.concatenate([random_array((1, *IMAGE[1:]), seed) for seed in range(8)])
    int8 = quantize(graph, calibrate(graph, Data({"x": values})))
    x, y = int8.inputs[0], int8.output_nodes[0]
    assert isinstance(y.op, Reduce) and x.type.quant is not None and y.type.quant is not None
    assert y.type.quant.scale < x.type.quant.scale / 2
    assert prepare(prepare(graph)).nodes[-1].op == prepare(graph).nodes[-1].op
