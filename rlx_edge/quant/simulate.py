"""The quantized model in float arithmetic: every stored tensor and every weight at the values that int8 can hold.

It differs from the int8 model by the rounding of its integer arithmetic only, runs as fast as the float model, and
lets single layers stay float or take other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy

import numpy as np

from rlx_edge.ir import Array, Graph, Node, QuantParams
from rlx_edge.ir.ops import MOVES, Concat, Input, Leaf
from rlx_edge.passes.fuse import Fusion, fused_away
from rlx_edge.passes.rebuild import channel_axis
from rlx_edge.quant.assign import Assignment, float_bias, float_weights
from rlx_edge.quant.schemes import QuantizedWeights
from rlx_edge.reference.fast import evaluate


def fake_quantize(values: Array, quant: QuantParams) -> Array:
    """The float32 values nearest to `values` that int8 at these parameters (of a whole tensor) can hold."""
    scale, zero = np.float32(quant.scale), np.float32(quant.zero_point)
    codes = np.rint(values / scale)
    np.clip(codes, np.float32(-128) - zero, np.float32(127) - zero, out=codes)
    return np.asarray(np.multiply(codes, scale, out=codes), np.float32)


def real_weights(layer: QuantizedWeights) -> Array:
    """The float32 weights that a layer's int8 weights stand for."""
    scales, _ = layer.weight_params.broadcast(layer.weights.ndim)
    return (layer.weights * scales).astype(np.float32)


def real_bias(layer: QuantizedWeights) -> Array:
    """The float64 bias [C] that a layer's int32 bias stands for."""
    return np.asarray(layer.bias * np.array(layer.bias_params.scales))


class Simulation:
    """A quantized model that computes in float32.

    `keep_float` names stored tensors that stay as they are computed: of a layer, its weights and bias too.
    """

    def __init__(self, assignment: Assignment, keep_float: Set[str] = frozenset()) -> None:
        self.assignment = assignment
        self._graph = assignment.graph
        self._float = {node.id for node in self._graph.nodes if node.name in keep_float}
        self._inside = fused_away(self._graph, dict(assignment.fusions))
        self._layers = {id: self._layer(id) for id in assignment.layers}
        read = {i for node in self._graph.nodes if self.stored(node) for i in self.operands(node)}
        self.constants = {i: self._constant(self._graph.nodes[i]) for i in read if self._holds_constant(i)}

    def with_layer(self, id: int, layer: QuantizedWeights) -> Simulation:
        """The same with other integers for one layer."""
        other = copy(self)
        other.assignment = self.assignment.with_layers({id: layer})
        other._layers = dict(self._layers)
        other._layers[id] = other._layer(id)
        return other

    def _layer(self, id: int) -> tuple[Array, Array]:
        fusion = self.assignment.fusions[id]
        if id in self._float:
            return float_weights(self._graph, fusion), float_bias(self._graph, fusion).astype(np.float32)
        layer = self.assignment.layers[id]
        return real_weights(layer), real_bias(layer).astype(np.float32)

    def _holds_constant(self, id: int) -> bool:
        return self._graph.constant(self._graph.nodes[id]) is not None

    def _constant(self, node: Node) -> Array:
        values = self._graph.constant(node)
        assert values is not None
        return values if node.id in self._float else fake_quantize(values, self.assignment.params[node.id])

    def operands(self, node: Node) -> tuple[int, ...]:
        """The ids of the computed tensors and constants that a stored tensor is computed from; no weights, no bias."""
        fusion = self.assignment.fusions.get(node.id)
        if fusion is None:
            return node.inputs
        return fusion.anchor.inputs[:1] if node.id in self._layers else fusion.anchor.inputs

    def stored(self, node: Node) -> bool:
        """Whether the int8 model holds this tensor: an input, or what a fusion or a single op computes."""
        return node.id not in self._inside and (isinstance(node.op, Input) or not isinstance(node.op, Leaf))

    def accumulate(self, graph: Graph, fusion: Fusion, x: Array) -> Array:
        """A layer's result before its bounds and its rounding; `graph` has the batch size of x."""
        weights, bias = self._layers[fusion.last.id]
        anchor = graph.nodes[fusion.anchor.id]
        shape = [1] * len(anchor.type.shape)
        shape[channel_axis(anchor)] = -1
        sums = evaluate(graph, anchor, [x, weights])
        return np.asarray(sums + bias.reshape(shape), np.float32)

    def finish(self, node: Node, values: Array) -> Array:
        """What the int8 model stores of a computed value: bounded, then rounded to the node's parameters."""
        fusion = self.assignment.fusions.get(node.id)
        if fusion is not None and (np.isfinite(fusion.low) or np.isfinite(fusion.high)):
            values = np.clip(values, np.float32(fusion.low), np.float32(fusion.high))
        if node.id in self._float or isinstance(node.op, MOVES):
            return values
        return fake_quantize(values, self.assignment.params[node.id])

    def compute(self, graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
        """A stored tensor that is no input from the values of its `operands`."""
        fusion = self.assignment.fusions.get(node.id)
        if node.id in self._layers:
            assert fusion is not None
            return self.finish(node, self.accumulate(graph, fusion, operands[0]))
        if isinstance(node.op, Concat) and node.id not in self._float:  # Its operands are requantized first.
            operands = [fake_quantize(x, self.assignment.params[node.id]) for x in operands]
        anchor = graph.nodes[node.id if fusion is None else fusion.anchor.id]
        return self.finish(node, evaluate(graph, anchor, operands))

    def observe(self, graph: Graph, inputs: Mapping[str, Array], callback: Callable[[Node, Array], None]) -> None:
        """Call `callback(node, value)` for every stored tensor as it is computed; memory is freed early.

        `graph` is the assignment's, or the same with another batch size; `inputs` are real values.
        """
        wanted = [node for node in graph.nodes if self.stored(node)]
        last_use = {operand: node.id for node in wanted for operand in self.operands(node)}
        values: dict[int, Array] = dict(self.constants)
        for node in wanted:
            operands = self.operands(node)
            if isinstance(node.op, Input):
                values[node.id] = self.finish(node, inputs[node.name])
            else:
                values[node.id] = self.compute(graph, node, [values[i] for i in operands])
            callback(node, values[node.id])
            for operand in {*operands, node.id}:
                if last_use.get(operand, node.id) <= node.id:
                    del values[operand]


def simulate(
    assignment: Assignment,
    graph: Graph,
    inputs: Mapping[str, Array],
    callback: Callable[[Node, Array], None],
    keep_float: Set[str] = frozenset(),
) -> None:
    """`Simulation.observe` in one call, for a single batch."""
    Simulation(assignment, keep_float).observe(graph, inputs, callback)
