"""The same model for another batch size, so that numpy can run many samples at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.errors import ModelError
from rlx_edge.ir.graph import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import (
    Activation,
    ArgMax,
    ArgMin,
    ArgSort,
    Binary,
    Cast,
    Clamp,
    Compare,
    Concat,
    Conv,
    Conv3d,
    ConvTranspose2d,
    CumProd,
    Cumsum,
    Dequantize,
    Expand,
    Gather,
    GatherElements,
    GatherNd,
    GroupNorm,
    Input,
    LayerNorm,
    MatMul,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Reverse,
    RmsNorm,
    ScatterElements,
    ShapeError,
    Slice,
    Softmax,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Where,
)
from rlx_edge.ir.tensor import Shape

_ONE_BY_ONE = (
    *(Activation, Cast, Clamp, Quantize, Dequantize, Reshape),
    *(Conv, Conv3d, ConvTranspose2d, Pool, QConv2d, QMatMul, GroupNorm),
)
"""Ops that compute each index of their first operand's first axis alone; further operands serve all of them."""

_ALONG_AN_AXIS = (Softmax, Cumsum, CumProd, ArgMax, ArgMin, ArgSort, Narrow, Slice, LayerNorm, RmsNorm)
"""The same, where their axis is another one."""

_BROADCASTING = (Binary, Compare, Where)


def sample_shape(shape: Shape) -> Shape:
    """The shape of one sample of a model's input or output: without the first axis, where that is a batch of 1."""
    return shape[1:] if shape[:1] == (1,) else shape


def with_batch(graph: Graph, batch: int) -> Graph:
    """The graph with every input's first axis, which must be 1, made `batch`.

    Sample i of the result's outputs follows from sample i of its inputs alone, as the given graph computes it: the
    first axis is the batch in every tensor that follows from an input. Raises ModelError for a model where that
    cannot be shown: an op that works across the first axis or moves it, or an output that follows from no input.
    """
    builder = GraphBuilder(graph.name)
    builder.metadata.update(graph.metadata)
    ids: dict[int, int] = {}
    batched: set[int] = set()
    for node in graph.nodes:
        inputs = [ids[i] for i in node.inputs]
        if isinstance(node.op, Input):
            if node.type.shape[:1] != (1,):
                raise ModelError(f"input {node.name!r} {node.type}: its first axis is not a batch of 1")
            ids[node.id] = builder.input(
                node.name, replace(node.type, shape=(batch, *node.type.shape[1:])), node.sources
            )
            batched.add(node.id)
        elif not batched.intersection(node.inputs):
            ids[node.id] = builder.copy(node, inputs, graph)
        else:
            ids[node.id] = _add_batched(graph, node, [i in batched for i in node.inputs], inputs, builder, batch)
            batched.add(node.id)
    if not batched.issuperset(graph.outputs):
        raise ModelError(f"{graph.name!r} has an output that follows from no input, so it cannot run in batches")
    return builder.build([ids[i] for i in graph.outputs])


def _add_batched(
    graph: Graph, node: Node, batched: Sequence[bool], inputs: Sequence[int], builder: GraphBuilder, batch: int
) -> int:
    shape = node.type.shape
    wanted = (batch, *shape[1:])
    across = ModelError(f"{node} works across samples, so this model cannot run in batches")
    if shape[:1] != (1,) or not _keeps_samples_apart(graph, node, batched):
        raise across
    op: Op = node.op
    if isinstance(op, Reshape):
        op = replace(op, new_shape=wanted)
    elif isinstance(op, Expand):
        op = replace(op, target_shape=wanted)
    try:
        added = builder.add(op, inputs, node.name, node.type.quant, node.sources)
    except ShapeError as error:
        raise across from error
    if builder[added].type.shape != wanted:
        raise across
    return added


def _keeps_samples_apart(graph: Graph, node: Node, batched: Sequence[bool]) -> bool:
    """Whether index i of the result's first axis, of size 1 in `graph`, needs only that of the batched operands."""
    op, rank = node.op, len(node.type.shape)
    ranks = [len(type.shape) for type in graph.operand_types(node)]
    only_first = not any(batched[1:])
    if isinstance(op, _ONE_BY_ONE):
        return only_first
    if isinstance(op, _ALONG_AN_AXIS):
        return only_first and op.axis not in (0, -ranks[0])
    if isinstance(op, _BROADCASTING):  # Aligns last axes: an operand of lower rank has its batch elsewhere.
        return all(r == rank for r, b in zip(ranks, batched, strict=True) if b)
    if isinstance(op, MatMul):
        if rank == 2:
            return not batched[1]
        return all(r == rank for r, b in zip(ranks, batched, strict=True) if b)
    if isinstance(op, Reduce | Reverse):
        return bool(op.axes) and 0 not in op.axes and -ranks[0] not in op.axes
    if isinstance(op, Concat):
        return all(batched) and op.axis not in (0, -rank)
    return _moves_within_samples(op, ranks, rank, batched)


def _moves_within_samples(op: Op, ranks: Sequence[int], rank: int, batched: Sequence[bool]) -> bool:
    if isinstance(op, Transpose):
        return op.perm[0] == 0
    if isinstance(op, Pad):
        return op.pads[0] == (0, 0)
    if isinstance(op, Tile):
        return op.reps[0] == 1
    if isinstance(op, Expand):
        return ranks[0] == rank
    if isinstance(op, TopK):
        return rank > 1
    if isinstance(op, Trilu):
        return rank > 2
    if isinstance(op, Gather):  # Of each sample by the same indices, or of a table by each sample's own.
        inside = op.axis not in (0, -ranks[0])
        return inside != batched[1] and batched[0] == inside
    if isinstance(op, GatherElements | ScatterElements):
        return all(batched) and op.axis not in (0, -ranks[0])
    return isinstance(op, GatherNd) and all(batched) and op.batch_dims > 0
