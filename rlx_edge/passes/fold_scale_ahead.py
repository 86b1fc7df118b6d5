"""Work scales and offsets of a tensor into the convolutions and matrix multiplies that read it.

What `fold_batchnorm` cannot work into the layer before (there is none, or an activation is in between) goes into the
layers after it: (x * s + o) * w = x * (s * w) + o * w. A convolution takes an offset only without padding, because the
padding is 0 after the offset, not before. A matrix multiply takes one constant per element, through a flatten too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, Shape
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, Layout, MatMul, Reshape
from rlx_edge.passes.affine import step_of
from rlx_edge.passes.rebuild import Ids, channel_axis, is_anchor, only_user, rebuild, vector_along


@dataclass(frozen=True)
class _Ahead:
    """What a layer reads is `start * scale + offset`, float64 [C_in], perhaps behind a reshape to `flat`."""

    start: int
    scale: Array
    offset: Array
    length: int = 0
    flat: Shape | None = None


def fold_scale_ahead(graph: Graph) -> Graph:
    """The same function with scales and offsets worked into the layers that read them, where all of them can."""
    found = {node.id: chain for node in graph.nodes if (chain := _chain_before(graph, node)) is not None}
    if not found:
        return graph

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        return None if node.id not in found else _fold(graph, node, found[node.id], builder, ids)

    return rebuild(graph, rule)


def _chain_before(graph: Graph, anchor: Node) -> _Ahead | None:
    if not isinstance(anchor.op, Conv | MatMul) or not is_anchor(graph, anchor) or anchor.type.dtype is not DType.F32:
        return None
    x = graph.nodes[anchor.inputs[0]]
    if graph.constant(x) is not None or len(graph.operand_types(anchor)[1].shape) != (2 if _dense(anchor) else 4):
        return None
    size = x.type.shape[_axis(anchor, x.type.shape)]
    chain = _Ahead(x.id, np.ones(size), np.zeros(size))
    reader, best = anchor, chain
    while only_user(graph, x := graph.nodes[chain.start]) is reader:
        longer = _longer(graph, anchor, chain, x)
        if longer is None:
            break
        best = longer if longer.length > chain.length else best  # A reshape at the chain's start stays where it is.
        chain, reader = longer, x
    return best if best.length > 0 else None


def _longer(graph: Graph, anchor: Node, chain: _Ahead, x: Node) -> _Ahead | None:
    """The chain with the node that computes its start taken in."""
    if isinstance(x.op, Reshape):
        source = graph.nodes[x.inputs[0]]
        flattens = _dense(anchor) and chain.flat is None and len(x.type.shape) == 2
        same_rows = source.type.shape[:1] == x.type.shape[:1] and len(source.type.shape) > 1
        return replace(chain, start=source.id, flat=x.type.shape) if flattens and same_rows else None
    found = step_of(graph, x)
    if found is None or graph.nodes[found[2]].type.shape != x.type.shape:
        return None
    source = graph.nodes[found[2]]
    if is_anchor(graph, source) and only_user(graph, source) is x:
        return None  # The bias of the layer before.
    scale, offset = (_along(values, anchor, x.type.shape, chain.flat is not None) for values in found[:2])
    if scale is None or offset is None or not (np.isfinite(scale).all() and np.isfinite(offset).all()):
        return None
    if isinstance(anchor.op, Conv) and any(anchor.op.padding) and offset.any():
        return None
    moved = chain.offset + chain.scale * offset
    return replace(chain, start=source.id, scale=chain.scale * scale, offset=moved, length=chain.length + 1)


def _dense(anchor: Node) -> bool:
    return isinstance(anchor.op, MatMul)


def _axis(anchor: Node, shape: Shape) -> int:
    """The axis of the input channels in a layer's operand."""
    return len(shape) - 1 if _dense(anchor) else channel_axis(anchor)


def _along(values: Array, anchor: Node, shape: Shape, flattened: bool) -> Array | None:
    """A constant as one value an input channel of the layer; before a flatten, one an element of a row."""
    if not flattened:
        return vector_along(values, shape, _axis(anchor, shape))
    if values.ndim > len(shape) or (values.ndim == len(shape) and values.shape[0] != 1):
        return None
    row = values[0] if values.ndim == len(shape) else values
    return np.broadcast_to(row, shape[1:]).reshape(-1)


def _fold(graph: Graph, anchor: Node, chain: _Ahead, builder: GraphBuilder, ids: Ids) -> int:
    held = graph.nodes[anchor.inputs[1]]
    weights = graph.constant(held)
    assert weights is not None
    wide = weights.astype(np.float64)
    scale, offset = (_beside_weights(values, anchor, weights.shape) for values in (chain.scale, chain.offset))
    w = builder.param(f"{held.name}.folded", (wide * scale).astype(np.float32))
    x = ids[chain.start]
    if chain.flat is not None:
        x = builder.add(Reshape(chain.flat), [x], f"{anchor.name}.rows")
    if not chain.offset.any():
        return builder.add(anchor.op, [x, w], anchor.name, sources=anchor.sources)
    product = builder.add(anchor.op, [x, w], f"{anchor.name}.product")
    summed = (wide * offset).sum(axis=_summed_axes(anchor))
    shape = [1] * len(anchor.type.shape)
    shape[channel_axis(anchor)] = -1
    bias = builder.param(f"{anchor.name}.bias", summed.astype(np.float32).reshape(shape))
    return builder.add(Binary(BinaryOp.ADD), [product, bias], anchor.name, sources=anchor.sources)


def _summed_axes(anchor: Node) -> tuple[int, ...]:
    """All axes of the weights but that of the output channels."""
    return (0,) if _dense(anchor) else (1, 2, 3)


def _beside_weights(values: Array, anchor: Node, shape: Shape) -> Array:
    """Values [C_in], shaped so that they broadcast against the weights: each group of a convolution has its own."""
    if isinstance(anchor.op, MatMul):
        return values.reshape(-1, 1)
    assert isinstance(anchor.op, Conv)
    groups = np.repeat(values.reshape(anchor.op.groups, -1), shape[0] // anchor.op.groups, axis=0)
    return groups.reshape((shape[0], -1, 1, 1) if anchor.op.layout is Layout.NCHW else (shape[0], 1, 1, -1))
