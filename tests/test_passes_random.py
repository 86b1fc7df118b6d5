"""Every pass keeps the meaning of random graphs: to the last bit where it moves, else within roundings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from double import check_within_rounding
from hypothesis import given
from random_graphs import float_graphs

from rlx_edge.ir import Array, Graph, to_text
from rlx_edge.ir.ops import Conv, Layout, Leaf, Pool
from rlx_edge.passes.activation_rules import recognize_activations
from rlx_edge.passes.clamp_early import clamp_early
from rlx_edge.passes.clean_shapes import clean_shapes
from rlx_edge.passes.fold_batchnorm import fold_batchnorm
from rlx_edge.passes.fold_constants import fold_constants
from rlx_edge.passes.fold_pad import fold_pad
from rlx_edge.passes.fold_scale_ahead import fold_scale_ahead
from rlx_edge.passes.merge_clamps import merge_clamps
from rlx_edge.passes.norm_rules import recognize_norms
from rlx_edge.passes.pipeline import clean, prepare
from rlx_edge.passes.pool_to_mean import pool_to_mean
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.passes.scale_to_depthwise import scale_to_depthwise
from rlx_edge.passes.share_common import share_common
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.reference import run

EXACT = (remove_dead, fold_constants, clean_shapes, share_common, merge_clamps, clamp_early, to_nhwc, fold_pad, clean)
ROUNDED = (
    fold_batchnorm,
    fold_scale_ahead,
    pool_to_mean,
    scale_to_depthwise,
    recognize_activations,
    recognize_norms,
    prepare,
)


def random_inputs(graph: Graph) -> Mapping[str, Array]:
    rng = np.random.default_rng(7)
    return {node.name: (2 * rng.standard_normal(node.type.shape)).astype(np.float32) for node in graph.inputs}


def check_interface(before: Graph, after: Graph) -> None:
    """Inputs and outputs keep names and types; what stays keeps its sources."""
    for old, new in ((before.inputs, after.inputs), (before.output_nodes, after.output_nodes)):
        assert [(n.name, n.type, n.sources) for n in new if n.sources] == [
            (n.name, n.type, n.sources) for n in old if n.sources
        ] or {n.name for n in new} == {n.name for n in old}
    known = {name for node in before.nodes for name in node.sources}
    assert {name for node in after.nodes for name in node.sources} <= known


@given(before=float_graphs())
def test_passes_that_move_or_drop_keep_every_bit(before: Graph) -> None:
    inputs = random_inputs(before)
    expected = run(before, inputs)
    for step in EXACT:
        after = step(before)
        check_interface(before, after)
        found = run(after, inputs)
        assert list(found) == list(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{step.__name__}: {name}")


@given(before=float_graphs())
def test_passes_that_fold_round_as_float32_does(before: Graph) -> None:
    for step in ROUNDED:
        after = step(before)
        check_interface(before, after)
        check_within_rounding(before, after, random_inputs(before))


@given(before=float_graphs())
def test_prepared_graphs_are_nhwc_and_stay_as_they_are(before: Graph) -> None:
    graph = prepare(before)
    assert all(n.op.layout is Layout.NHWC for n in graph.nodes if isinstance(n.op, Conv | Pool))
    assert to_text(prepare(graph)) == to_text(graph)
    assert to_text(prepare(before)) == to_text(graph)


@given(before=float_graphs())
def test_prepared_graphs_have_no_more_to_compute(before: Graph) -> None:
    computed = [sum(not isinstance(n.op, Leaf) for n in graph.nodes) for graph in (before, prepare(before))]
    assert computed[1] <= computed[0] + 3  # A transpose at either end, and one for an output in between.
