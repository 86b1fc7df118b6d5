"""Which channels of each tensor an output needs.

A channel is an entry of a tensor's last axis (images are NHWC). Sets only grow until nothing changes: a layer asks for
the input channels for which a needed output channel has weights; ops that work channel by channel tie the channels of
their operands and result together, for a kernel reads all channels of its input. What is not known here needs all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx_edge.ir import Array, Graph, Node, Requant
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Dequantize,
    Input,
    Layout,
    Leaf,
    Pad,
    Pool,
    Quantize,
    Reduce,
    Reshape,
    Transpose,
)
from rlx_edge.passes.int8_layers import Layer, layer_of

FLOAT32_PRODUCTS = (Requant.TFLITE_REF, Requant.TFLITE_UINT8)
"""Rules that compute one scale for all channels otherwise than one a channel: these keep two channels at least."""


def live_channels(graph: Graph) -> dict[int, Array]:
    """By node id, bool [last axis]: the channels to keep, at least one a tensor. Weights and biases are left out.

    Every node must be needed by an output (`remove_dead`).
    """
    search = _Search(graph)
    search.spread()
    while search.keep_something():
        search.spread()
    return search.live


@dataclass
class _Search:
    graph: Graph
    live: dict[int, Array] = field(default_factory=dict)
    layers: dict[int, Layer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            layer = layer_of(self.graph, node)
            if layer is not None:
                self.layers[node.id] = layer
        weights = {i for layer in self.layers.values() for i in layer.node.inputs[1:]}
        others = {i for node in self.graph.nodes if node.id not in self.layers for i in node.inputs}
        for node in self.graph.nodes:
            whole = node.id in self.graph.outputs or isinstance(node.op, Input)
            if node.id not in weights or node.id in others or whole:
                self.live[node.id] = np.full(_channels(node), whole)

    def spread(self) -> None:
        count = -1
        while count != (count := sum(int(live.sum()) for live in self.live.values())):
            for node in reversed(self.graph.nodes):
                if not isinstance(node.op, Leaf):
                    self._visit(node)

    def keep_something(self) -> bool:
        """Mark a channel of the first tensor that has too few, if there is one."""
        for node in self.graph.nodes:
            live = self.live.get(node.id)
            if live is not None and live.sum() < min(self._fewest(node), len(live)):
                live[np.argmin(live)] = True
                return True
        return False

    def _fewest(self, node: Node) -> int:
        layer = self.layers.get(node.id)
        return 2 if layer is not None and len(layer.op.mult) > 1 and layer.op.requant in FLOAT32_PRODUCTS else 1

    # ---- One node ----------------------------------------------------------------------------------------------------

    def _visit(self, node: Node) -> None:
        out, x = self.live[node.id], self.live.get(node.inputs[0])
        layer = self.layers.get(node.id)
        if layer is not None and x is not None:
            if layer.groups == 1:
                x |= (layer.weights[out] != 0).any(axis=(0, 1))
            else:
                _tie_blocks(layer.groups, out, x)
        elif x is None or not self._tie(node, out, x):
            for tensor in (node.id, *node.inputs):
                self.live[tensor][:] = True

    def _tie(self, node: Node, out: Array, x: Array) -> bool:
        """Make operands and result keep the same channels; False for an op of which that is not known."""
        op, rank = node.op, len(node.type.shape)
        if any(type.quant and type.quant.axis is not None for type in (*self.graph.operand_types(node), node.type)):
            return False
        if isinstance(op, Binary):
            return _tie_all([out, *(self.live[i] for i in node.inputs if len(self.live[i]) > 1 or len(out) == 1)])
        if isinstance(op, Concat):
            return self._tie_concat(node, op, out)
        if isinstance(op, Reshape):
            return _tie_repeats(out, x)
        if isinstance(op, Activation | Clamp):
            tied = True
        elif isinstance(op, Quantize | Dequantize):
            tied = op.axis is None
        elif isinstance(op, Pool):
            tied = op.layout is Layout.NHWC
        elif isinstance(op, Pad):
            tied = rank > 0 and op.pads[-1] == (0, 0)
        elif isinstance(op, Transpose):
            tied = op.perm[-1:] == (rank - 1,)
        elif isinstance(op, Reduce):
            tied = _keeps_last(op, len(self.graph.nodes[node.inputs[0]].type.shape))
        else:
            tied = False
        return tied and _tie_all([out, x])

    def _tie_concat(self, node: Node, op: Concat, out: Array) -> bool:
        rank = len(node.type.shape)
        if op.axis % rank != rank - 1:
            return _tie_all([out, *(self.live[i] for i in node.inputs)])
        start = 0
        for i in node.inputs:
            part = out[start : start + len(self.live[i])]
            start += len(part)
            _tie_all([part, self.live[i]])
        return True


def _channels(node: Node) -> int:
    return node.type.shape[-1] if node.type.shape else 1


def _keeps_last(op: Reduce, rank: int) -> bool:
    return all(axis % rank != rank - 1 for axis in op.axes)


def _tie_all(sets: Sequence[Array]) -> bool:
    """All the same size: a channel that one of them keeps, all keep."""
    joined = np.any(sets, axis=0)
    for live in sets:
        live |= joined
    return True


def _tie_blocks(groups: int, *sets: Array) -> None:
    """Channels go in `groups` blocks, kept as wholes."""
    joined = np.any([live.reshape(groups, -1).any(axis=1) for live in sets], axis=0)
    for live in sets:
        live |= np.repeat(joined, len(live) // groups)


def _tie_repeats(a: Array, b: Array) -> bool:
    """The longer runs through the shorter's channels again and again, as where an image is flattened."""
    short, long = sorted((a, b), key=len)
    if len(long) % len(short):
        return False
    joined = short | long.reshape(-1, len(short)).any(axis=0)
    short |= joined
    long |= np.tile(joined, len(long) // len(short))
    return True
