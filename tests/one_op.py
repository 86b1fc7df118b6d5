"""One op in a graph of its own, as the reference runs it; and how many random examples cheap tests take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import settings

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.passes.decompose import decompose
from rlx_edge.passes.unfuse import unfuse
from rlx_edge.reference import run

FEW = settings(max_examples=max(settings().max_examples // 5, 1))
"""For ops that have an oracle of whole arrays."""


def compute(op: Op, *operands: Array, out: TensorType | None = None) -> Array:
    """The op's value. `out`: what is declared of it, for kinds that need that."""
    builder = GraphBuilder("one")
    values = {f"x{i}": value for i, value in enumerate(operands)}
    inputs = [builder.input(name, TensorType(v.shape, DType.of(v))) for name, v in values.items()]
    node = builder.add(op, inputs, "y", type=out)
    graph = builder.build([node])
    result = run(graph, values)["y"]
    assert (result.shape, result.dtype) == (builder[node].type.shape, builder[node].type.dtype.numpy)
    check_parts(graph, values, result)
    return result


def check_parts(graph: Graph, values: Mapping[str, Array], result: Array) -> None:
    """Whatever passes make of the op gives the same bits, but for the payload of NaN."""
    made = decompose(unfuse(graph))
    if made is not graph:
        found = run(made, values)["y"]
        assert (found.shape, found.dtype) == (result.shape, result.dtype)
        np.testing.assert_array_equal(found, result)
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(result))
