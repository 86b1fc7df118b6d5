"""Where the taps of a convolution's window fall: on pixels always, at times, or never."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Layout, QConv2d
from rlx_edge.ir.ops.conv import pad_sides


def taps_on_pixels(graph: Graph, node: Node) -> tuple[Array, Array]:
    """(always, ever), both bool [kH, kW]: whether a tap reads a pixel, not padding, at all / at some output positions.

    The node is an NHWC convolution.
    """
    op = node.op
    assert isinstance(op, QConv2d) and op.layout is Layout.NHWC
    x = graph.nodes[node.inputs[0]].type.shape
    top, left, _, _ = pad_sides(op.padding)
    rows, columns = (
        _inside(x[axis], node.type.shape[axis], op.kernel_size[axis - 1], op.stride[axis - 1], step, before)
        for axis, step, before in ((1, op.dilation[0], top), (2, op.dilation[1], left))
    )
    always = np.outer(rows.all(axis=0), columns.all(axis=0))
    ever = np.outer(rows.any(axis=0), columns.any(axis=0))
    return always, ever


def _inside(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> Array:
    """bool [out, kernel] along one axis."""
    place = np.arange(out)[:, None] * stride - before + np.arange(kernel) * dilation
    return np.asarray((place >= 0) & (place < size))
