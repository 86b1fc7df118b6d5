"""Turn average pooling over the whole image into a mean over its axes.

Pooling keeps its operand's scale (TensorFlow Lite's rule), a mean has a scale of its own: the average of an image has a
much narrower range than its pixels, so the mean is the more exact of the two on int8.
"""

from __future__ import annotations

from rlx_edge.ir import DType, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Layout, Pool, Reduce, ReduceOp
from rlx_edge.ir.ops.conv import image_dims, pad_sides
from rlx_edge.passes.rebuild import Ids, rebuild


def pool_to_mean(graph: Graph) -> Graph:
    """The same function with every float Pool(Mean) of one window over the whole image as Reduce(Mean).

    Integer graphs stay as they are: their pooling has its own rounding.
    """
    return rebuild(graph, _mean) if any(_is_global(graph, node) for node in graph.nodes) else graph


def _mean(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
    if not _is_global(graph, node):
        return None
    assert isinstance(node.op, Pool)
    axes = (2, 3) if node.op.layout is Layout.NCHW else (1, 2)
    return builder.add(
        Reduce(ReduceOp.MEAN, axes, keep_dim=True), [ids[node.inputs[0]]], node.name, sources=node.sources
    )


def _is_global(graph: Graph, node: Node) -> bool:
    """Whether the only window holds every pixel, and nothing else that counts in its mean."""
    op = node.op
    if not isinstance(op, Pool) or op.kind is not ReduceOp.MEAN or node.type.dtype is not DType.F32:
        return False
    sides = pad_sides(op.padding)
    if any(sides) and op.count_include_pad:
        return False
    _, *size, _ = image_dims(graph.operand_types(node)[0].shape, op.layout)
    _, *windows, _ = image_dims(node.type.shape, op.layout)
    return windows == [1, 1] and all(k >= n + before for k, n, before in zip(op.kernel_size, size, sides, strict=False))
