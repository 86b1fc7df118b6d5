"""The same model for another batch size, so that numpy can run many samples at once."""

from __future__ import annotations

from dataclasses import replace

from rlx_edge.errors import ModelError
from rlx_edge.ir.graph import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Concat, Input, Leaf, Op, Pad, Reduce, Reshape, Softmax, Transpose


def with_batch(graph: Graph, batch: int) -> Graph:
    """The graph with every input's first axis, which must be 1, made `batch`.

    Raises ModelError for a model that mixes samples (an op that works across the first axis).
    """
    builder = GraphBuilder(graph.name)
    builder.metadata.update(graph.metadata)
    ids: dict[int, int] = {}
    batched: set[int] = set()
    for node in graph.nodes:
        inputs = [ids[i] for i in node.inputs]
        if isinstance(node.op, Input):
            if not node.type.shape or node.type.shape[0] != 1:
                raise ModelError(f"input {node.name!r} {node.type}: its first axis is not a batch of 1")
            ids[node.id] = builder.input(
                node.name, replace(node.type, shape=(batch, *node.type.shape[1:])), node.sources
            )
            batched.add(node.id)
        elif isinstance(node.op, Leaf):
            ids[node.id] = builder.copy(node, inputs, graph)
        else:
            across = batched.intersection(node.inputs)
            op = _batched_op(node, batch) if across else node.op
            ids[node.id] = builder.add(op, inputs, node.name, node.type.quant, node.sources)
            if across:
                batched.add(node.id)
    return builder.build([ids[i] for i in graph.outputs])


def _batched_op(node: Node, batch: int) -> Op:
    op, rank = node.op, len(node.type.shape)
    mixes = (
        (isinstance(op, Reduce) and (0 in op.axes or -rank in op.axes or not op.axes))
        or (isinstance(op, Concat | Softmax) and op.axis in (0, -rank))
        or (isinstance(op, Transpose) and op.perm[0] != 0)
        or (isinstance(op, Pad) and op.pads[0] != (0, 0))
        or (isinstance(op, Reshape) and node.type.shape[:1] != (1,))
    )
    if mixes:
        raise ModelError(f"{node} works across samples, so this model cannot run in batches")
    return replace(op, new_shape=(batch, *node.type.shape[1:])) if isinstance(op, Reshape) else op
