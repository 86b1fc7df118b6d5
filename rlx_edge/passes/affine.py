"""Chains of Mul, Div, Add and Sub by one constant a channel, taken together as x * scale + offset."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, DType, Graph, Node
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


def step_of(graph: Graph, step: Node) -> tuple[Array, Array, int] | None:
    """(scale, offset, id of the operand x) of a node that is x * scale + offset with constants, float64.

    Add, Sub, Mul and Div by a constant; the constants have the shapes that the file gives them.
    """
    if not isinstance(step.op, Binary) or step.type.dtype is not DType.F32:
        return None
    found = constant_operand(graph, step)
    if found is None:
        return None
    position, c = found[0], found[1].astype(np.float64)
    sign = 1.0 if position == 1 else -1.0  # c - x is x * -1 + c.
    one, zero = np.ones(()), np.zeros(())
    x = step.inputs[1 - position]
    if step.op.fn is BinaryOp.MUL:
        return c, zero, x
    if step.op.fn is BinaryOp.ADD:
        return one, c, x
    if step.op.fn is BinaryOp.SUB:
        return sign * one, -sign * c, x
    if step.op.fn is BinaryOp.DIV and position == 1 and bool(c.all()):
        return 1.0 / c, zero, x
    return None


def _extended(graph: Graph, chain: Affine, step: Node) -> Affine | None:
    found = step_of(graph, step)
    if found is None or step.type.shape != chain.start.type.shape:
        return None
    scale, offset = (channel_vector(values, chain.start) for values in found[:2])
    if scale is None or offset is None:
        return None
    return replace(
        chain, last=step, length=chain.length + 1, scale=chain.scale * scale, offset=chain.offset * scale + offset
    )
