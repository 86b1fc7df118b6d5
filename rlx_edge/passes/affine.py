"""Chains of Mul, Add and Sub by one constant a channel, taken together as x * scale + offset."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Binary, BinaryOp
from rlx_edge.passes.rebuild import channel_axis, channel_vector, constant_operand, only_user


@dataclass(frozen=True)
class Affine:
    """start * scale + offset, float64 [C], computed by `length` nodes up to `last`."""

    start: Node
    last: Node
    length: int
    scale: Array
    offset: Array

    @property
    def scales(self) -> bool:
        return bool(np.any(self.scale != 1.0))


def follow(graph: Graph, start: Node, first: Node | None = None) -> Affine:
    """The longest chain from a node along single readers; `first` may be one of several readers of `start`."""
    channels = start.type.shape[channel_axis(start)]
    chain = Affine(start, start, 0, np.ones(channels), np.zeros(channels))
    step = first or only_user(graph, start)
    while step is not None:
        longer = _extended(graph, chain, step)
        if longer is None:
            break
        chain, step = longer, only_user(graph, step)
    return chain


def _extended(graph: Graph, chain: Affine, step: Node) -> Affine | None:
    if not isinstance(step.op, Binary) or step.type.shape != chain.start.type.shape:
        return None
    found = constant_operand(graph, step)
    vector = None if found is None else channel_vector(found[1], chain.start)
    if found is None or vector is None:
        return None
    c = vector.astype(np.float64)
    scale, offset = chain.scale, chain.offset
    if step.op.fn is BinaryOp.MUL:
        scale, offset = scale * c, offset * c
    elif step.op.fn is BinaryOp.ADD:
        offset = offset + c
    elif found[0] == 1:
        offset = offset - c
    else:
        scale, offset = -scale, c - offset
    return replace(chain, last=step, length=chain.length + 1, scale=scale, offset=offset)
