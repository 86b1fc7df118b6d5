"""Remove channels that no output of the graph needs, and the weights that made and read them.

What stays holds, in each channel that it keeps, the very codes that it held before; `Node.channels` says which channels
of the source's tensor these are. Inputs and outputs stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rlx_edge.ir import Array, Channels, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Input, Leaf, Op, QConv2d, Reshape
from rlx_edge.passes.int8_layers import Layer, layer_of, of_outputs, quant_of_outputs
from rlx_edge.passes.live_channels import live_channels
from rlx_edge.passes.rebuild import Ids, builder_like, finish
from rlx_edge.passes.remove_dead import remove_dead


def remove_dead_channels(graph: Graph) -> Graph:
    """The same function, to the last bit, without channels that nobody downstream uses. Images must be NHWC."""
    graph = remove_dead(graph)
    live = live_channels(graph)
    if all(kept.all() for kept in live.values()):
        return graph
    cut = _Cut(graph, {i: np.flatnonzero(kept) for i, kept in live.items()})
    for node in graph.nodes:
        if not isinstance(node.op, Leaf) or isinstance(node.op, Input):
            cut.node(node)
    return finish(cut.builder, [cut.tensor(i) for i in graph.outputs], graph)


@dataclass
class _Cut:
    """The graph in the making. `kept` are the channels that stay, by old node id."""

    graph: Graph
    kept: dict[int, Array]
    builder: GraphBuilder = field(init=False)
    ids: Ids = field(default_factory=Ids)

    def __post_init__(self) -> None:
        self.builder = builder_like(self.graph)

    def tensor(self, node_id: int) -> int:
        """The new id of an operand; a constant is made, with its kept channels, when it is first asked for."""
        if node_id not in self.ids:
            node = self.graph.nodes[node_id]
            kept, values = self.kept.get(node_id), self.graph.constant(node)
            assert values is not None
            if kept is None or values.ndim == 0 or len(kept) == values.shape[-1]:
                self.ids[node_id] = self.builder.copy(node, [], self.graph)
            else:
                part = np.ascontiguousarray(values[..., kept])
                self.ids[node_id] = self.builder.param(node.name, part, node.type.quant, node.sources, node.type.dtype)
        return self.ids[node_id]

    def node(self, node: Node) -> None:
        layer = layer_of(self.graph, node)
        if self._is_whole(node):
            operands = [self.tensor(i) for i in node.inputs]
            self.ids[node.id] = self.builder.copy(node, operands, self.graph)
        elif layer is not None:
            self._layer(layer)
        else:
            self._append(node, self._smaller_op(node), [self.tensor(i) for i in node.inputs])

    def _is_whole(self, node: Node) -> bool:
        tensors = (self.graph.nodes[i] for i in (node.id, *node.inputs) if i in self.kept)
        return all(len(self.kept[t.id]) == (t.type.shape[-1] if t.type.shape else 1) for t in tensors)

    def _append(self, node: Node, op: Op, operands: list[int]) -> None:
        kept = self.kept[node.id]
        channels, count = node.channels, node.type.shape[-1] if node.type.shape else 1
        if len(kept) < count:
            channels = (channels or Channels(tuple(range(count)), count)).of_these(tuple(map(int, kept)))
        self.ids[node.id] = self.builder.add(op, operands, node.name, node.type.quant, node.sources, channels)

    def _smaller_op(self, node: Node) -> Op:
        """Only a reshape names the size of its last axis."""
        if not isinstance(node.op, Reshape):
            return node.op
        return Reshape((*node.type.shape[:-1], len(self.kept[node.id])))

    def _layer(self, layer: Layer) -> None:
        node, (x, w, bias) = layer.node, self.graph.operands(layer.node)
        out, read = self.kept[node.id], self.kept[x.id]
        weights, biases = self.graph.constant(w), self.graph.constant(bias)
        assert weights is not None and biases is not None
        op = of_outputs(layer.op, out)
        if not isinstance(op, QConv2d):
            weights = weights[read][:, out]
        elif op.groups == 1:
            weights = weights[out][..., read]
        else:
            weights = weights[out]
            op = replace(op, groups=len(read) * op.groups // x.type.shape[-1])
        quant = quant_of_outputs(w.type.quant, out)
        operands = [
            self.tensor(x.id),
            self.builder.param(w.name, np.ascontiguousarray(weights), quant, w.sources, w.type.dtype),
            self.builder.param(bias.name, biases[out], quant_of_outputs(bias.type.quant, out), bias.sources),
        ]
        self._append(node, op, operands)
