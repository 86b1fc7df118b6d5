"""Integer convolutions and matrix products as passes over channels see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rlx_edge.ir import Array, FrozenScale, Graph, GraphBuilder, Node, QuantParams
from rlx_edge.ir.ops import Layout, QConv2d, QMatMul
from rlx_edge.passes.rebuild import Ids, rebuild
from rlx_edge.passes.window_taps import taps_on_pixels

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Layer:
    """A QConv2d (NHWC) or QMatMul with constant weights whose integers are frozen.

    `weights` is int64 [C_out, taps, C_in / groups], the zero point taken off; `bias` int64 [C_out]. `always` and `ever`
    are bool [taps]: whether a tap reads a pixel, not padding, at all / at some output positions.
    """

    node: Node
    op: QConv2d | QMatMul
    weights: Array
    bias: Array
    groups: int
    always: Array
    ever: Array

    @property
    def group_of_output(self) -> Array:
        """By output channel, int64 [C_out]."""
        return np.arange(len(self.bias)) // (len(self.bias) // self.groups)

    def by_output(self, values: Array) -> Array:
        """What each output channel sees of values [C_in] of the input's channels: [C_out, C_in / groups]."""
        return np.asarray(values.reshape(self.groups, -1)[self.group_of_output])


def layer_of(graph: Graph, node: Node) -> Layer | None:
    """The node as a Layer, or None for one that is none."""
    op = node.op
    if not isinstance(op, QConv2d | QMatMul) or not isinstance(op.frozen, FrozenScale):
        return None
    w, bias = (graph.constant(operand) for operand in graph.operands(node)[1:])
    if w is None or bias is None:
        return None
    wide = w.astype(np.int64) - op.w_zp
    if isinstance(op, QMatMul):
        one = np.ones(1, bool)
        return Layer(node, op, np.ascontiguousarray(wide.T)[:, None, :], bias.astype(np.int64), 1, one, one)
    if op.layout is not Layout.NHWC:
        return None
    always, ever = taps_on_pixels(graph, node)
    taps = wide.reshape(wide.shape[0], -1, wide.shape[3])
    return Layer(node, op, taps, bias.astype(np.int64), op.groups, always.reshape(-1), ever.reshape(-1))


@dataclass(frozen=True, eq=False)
class Change:
    """What takes the place of a layer's op, weights and bias; arrays as the graph holds them."""

    op: QConv2d | QMatMul
    weights: Array
    bias: Array


def changed_weights(graph: Graph, layer: Layer) -> Change:
    """The layer's weights and bias as the graph holds them."""
    codes = layer.weights + layer.op.w_zp
    shape = graph.operand_types(layer.node)[1].shape
    values = codes[:, 0, :].T if isinstance(layer.op, QMatMul) else codes.reshape(shape)
    return Change(layer.op, np.ascontiguousarray(values).astype(np.int8), layer.bias.astype(np.int32))


def rebuild_layers(graph: Graph, changes: dict[int, Change]) -> Graph:
    """The graph with these layers, by node id, changed. Weights keep their names, unless another layer reads them."""
    own: dict[int, Array] = {}
    for node_id, change in changes.items():
        pairs = zip(graph.nodes[node_id].inputs[1:], (change.weights, change.bias), strict=True)
        own |= {i: values for i, values in pairs if graph.users[i] == (node_id,) and i not in graph.outputs}

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        if node.id in own:
            return builder.param(node.name, own[node.id], node.type.quant, node.sources, node.type.dtype)
        change = changes.get(node.id)
        if change is None:
            return None
        operands = [ids[node.inputs[0]]]
        for i, values in zip(node.inputs[1:], (change.weights, change.bias), strict=True):
            old = graph.nodes[i]
            if i in own:
                operands.append(ids[i])
            else:
                operands.append(builder.param(old.name, values, old.type.quant, old.sources, old.type.dtype))
        return builder.add(change.op, operands, node.name, node.type.quant, node.sources)

    return rebuild(graph, rule) if changes else graph


def of_outputs(op: QConv2d | QMatMul, kept: Array) -> QConv2d | QMatMul:
    """The op with the scales of these output channels (indices) alone."""
    mult = _picked(op.mult, kept)
    if op.frozen is None:
        return replace(op, mult=mult)
    frozen = FrozenScale(_picked(op.frozen.multipliers, kept), _picked(op.frozen.shifts, kept))
    return replace(op, mult=mult, frozen=frozen)


def quant_of_outputs(quant: QuantParams | None, kept: Array) -> QuantParams | None:
    """Weights' parameters for these output channels (indices)."""
    if quant is None or quant.axis is None:
        return quant
    return QuantParams(_picked(quant.scales, kept), _picked(quant.zero_points, kept), quant.axis)


def _picked(values: tuple[T, ...], kept: Array) -> tuple[T, ...]:
    """One value for all channels stays."""
    return values if len(values) == 1 else tuple(values[i] for i in kept)
