"""Means and softmax as kernel calls."""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.cgen import kernels
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.ir import FrozenExp, FrozenScale, FrozenSoftmax, Graph, Node, Requant, Shape
from rlx_edge.ir.ops import Reduce, Softmax
from rlx_edge.reference.integer import quant_of


def mean(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Reduce) and isinstance(op.frozen, FrozenScale)
    rows, reduce_0, keep_1, reduce_1, keep_2 = alternate(x.type.shape, op.axes)
    params = dict(reduce_0=reduce_0, keep_1=keep_1, reduce_1=reduce_1, keep_2=keep_2)
    params |= dict(x_zp=quant_of(x.type).zero_point, out_zp=quant_of(node.type).zero_point)
    params |= dict(multiplier=op.frozen.multipliers[0], shift=op.frozen.shifts[0])
    source = View(x.id, reduce_0 * keep_1 * reduce_1 * keep_2)
    kernel = kernels.MEAN_ONNX if op.requant is Requant.ONNX else kernels.MEAN
    return (Call(kernel, params, (source,), View(node.id, keep_1 * keep_2), rows),)


def alternate(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int, int, int]:
    """A shape of at most four axes as [keep][reduce][keep][reduce][keep], neighbors of a kind joined.

    [keep][reduce][keep] ends with what is kept: kernels take neighbors of the last axis together.
    """
    reduced = {axis % len(shape) for axis in axes}
    sizes: list[int] = [1]
    reducing = False
    for axis, size in enumerate(shape):
        if (axis in reduced) != reducing:
            reducing = not reducing
            sizes.append(1)
        sizes[-1] *= size
    if len(sizes) == 3:
        sizes[2:2] = [1, 1]
    sizes += [1] * (5 - len(sizes))
    rows, reduce_0, keep_1, reduce_1, keep_2 = sizes
    return rows, reduce_0, keep_1, reduce_1, keep_2


def softmax(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, Softmax)
    width, rows = x.type.shape[-1], math.prod(x.type.shape[:-1])
    if isinstance(op.frozen, FrozenExp):
        params = dict(width=width, mantissa=op.frozen.mantissa, shift=op.frozen.shift)
        params |= dict(out_zp=quant_of(node.type).zero_point)
        powers = {"powers": Constant("powers", np.array(op.frozen.powers, np.int32))}
        return (Call(kernels.SOFTMAX_ONNX, params, (View(x.id, width),), View(node.id, width), rows, powers),)
    assert isinstance(op.frozen, FrozenSoftmax)
    params = dict(width=width, multiplier=op.frozen.multiplier)
    params |= dict(left_shift=op.frozen.left_shift, diff_min=op.frozen.diff_min)
    return (Call(kernels.SOFTMAX, params, (View(x.id, width),), View(node.id, width), rows),)
