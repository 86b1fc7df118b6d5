"""Which parameters each tensor of the int8 graph gets, and which integers each layer.

Most tensors get parameters from their own range. Ops that only move or select elements keep their operand's; softmax
has fixed ones; what only a concatenation reads is computed at the concatenation's parameters straight away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.errors import ModelError
from rlx_edge.ir import Array, Graph, Node, QuantParams
from rlx_edge.ir.ops import (
    MOVES,
    Activation,
    ActivationFn,
    Binary,
    Clamp,
    Concat,
    Conv,
    Input,
    MatMul,
    Op,
    Pad,
    Pool,
    Reduce,
    Softmax,
    Trilu,
)
from rlx_edge.passes.fuse import Fusion, find_fusions, fused_away
from rlx_edge.passes.rebuild import only_user
from rlx_edge.quant.masks import masked_ranges
from rlx_edge.quant.observers import Range
from rlx_edge.quant.schemes import (
    SOFTMAX_OUTPUT,
    QuantizedWeights,
    activation_params,
    constant_params,
    quantize_weights,
)
from rlx_edge.quant.widths import PER_TENSOR, LayerRule, rules_of

OWN_RANGE: tuple[type[Op], ...] = (Input, Conv, MatMul, Binary, Activation, Clamp, Reduce, Concat)
"""Ops whose output gets parameters of its own."""

OPERANDS: tuple[type[Op], ...] = (Pool, Trilu, *MOVES)
"""Ops whose output keeps the operand's parameters: each output value is, or lies among, operand values and 0."""


FIXED_OUTPUTS: Mapping[ActivationFn, QuantParams] = {
    ActivationFn.SIGMOID: QuantParams.per_tensor(1 / 256, -128),
    ActivationFn.TANH: QuantParams.per_tensor(1 / 128, 0),
}
"""Functions whose int8 kernel in TensorFlow Lite takes these parameters only."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """A prepared float graph with everything that its int8 form stores, before any of it is built.

    `params` holds the parameters of every stored tensor, `layers` the weights and bias of every convolution and dense
    layer; both by node id, a layer by the last node of its fusion. The methods of quant/ take one and return another.
    """

    graph: Graph
    fusions: Mapping[int, Fusion]
    params: Mapping[int, QuantParams]
    layers: Mapping[int, QuantizedWeights]

    def with_layers(self, layers: Mapping[int, QuantizedWeights]) -> Assignment:
        """The same with other weights or biases for some layers."""
        return replace(self, layers={**self.layers, **layers})


def assign(graph: Graph, ranges: Mapping[str, Range], rules: Sequence[LayerRule] = ()) -> Assignment:
    """Parameters from the ranges, weights (of 8 bits, or as rules say) and biases rounded to nearest.

    `graph` is prepared and can be quantized. Raises ModelError when the calibration lacks a tensor: it was made on
    another graph; and EdgeError for a rule that matches no layer.
    """
    fusions = find_fusions(graph)
    params = assign_params(graph, fusions, ranges)
    layers = {}
    for id, rule in rules_of(fusions, rules).items():
        fusion = fusions[id]
        x_scale = params[fusion.anchor.inputs[0]].scale
        weights, bias = float_weights(graph, fusion), float_bias(graph, fusion)
        layers[id] = quantize_weights(weights, weight_axis(fusion), bias, x_scale, rule.bits, rule.scales == PER_TENSOR)
    return Assignment(graph, fusions, params, layers)


def weight_axis(fusion: Fusion) -> int:
    """The axis of the output channels in the weights of a convolution [C_out, kH, kW, C/groups] or dense [K, N]."""
    return 0 if isinstance(fusion.anchor.op, Conv) else 1


def float_weights(graph: Graph, fusion: Fusion) -> Array:
    """The float32 weights of a convolution or dense layer."""
    values = graph.constant(graph.nodes[fusion.anchor.inputs[1]])
    assert values is not None
    return values


def float_bias(graph: Graph, fusion: Fusion) -> Array:
    """The bias [C] float64 of a convolution or dense layer; zeros where it has none."""
    if fusion.bias is not None:
        return fusion.bias
    return np.zeros(float_weights(graph, fusion).shape[weight_axis(fusion)])


def assign_params(graph: Graph, fusions: Mapping[int, Fusion], ranges: Mapping[str, Range]) -> dict[int, QuantParams]:
    """Parameters by node id, for every tensor that the int8 graph stores, and for constant operands.

    Raises ModelError when the calibration lacks a tensor: it was made on another graph.
    """
    inside = fused_away(graph, dict(fusions))
    source = _range_sources(graph)
    masked = masked_ranges(graph, ranges)
    ranges = {**ranges, **masked}
    params: dict[int, QuantParams] = {}
    for node in graph.nodes:
        if node.id in inside:
            continue
        values = graph.constant(node)
        if values is not None:
            params[node.id] = activation_params(masked[node.name]) if node.name in masked else constant_params(values)
        elif (fixed := fixed_params(node)) is not None:
            params[node.id] = fixed
        elif isinstance(node.op, OPERANDS) or keeps_params(node):
            params[node.id] = params[node.inputs[0]]
        elif isinstance(node.op, Concat) and len({params[i] for i in node.inputs}) == 1:
            params[node.id] = params[node.inputs[0]]  # Parts of one tensor, mostly, that are joined again.
        else:
            params[node.id] = activation_params(_range(graph.nodes[source.get(node.id, node.id)], ranges))
    return params


def fixed_params(node: Node) -> QuantParams | None:
    """The parameters that TensorFlow Lite fixes for a function with bounded results, or None."""
    if isinstance(node.op, Softmax):
        return SOFTMAX_OUTPUT
    return FIXED_OUTPUTS.get(node.op.fn) if isinstance(node.op, Activation) else None


def keeps_params(node: Node) -> bool:
    """Whether padding with this value needs no parameters of its own: 0 is always a code."""
    return isinstance(node.op, Pad) and node.op.value == 0.0


def _range_sources(graph: Graph) -> dict[int, int]:
    """Tensor -> the concatenation whose range it takes, because nothing else reads it."""
    found: dict[int, int] = {}
    for node in reversed(graph.nodes):
        if isinstance(node.op, Concat):
            for operand in graph.operands(node):
                if isinstance(operand.op, OWN_RANGE) and only_user(graph, operand) is node:
                    found[operand.id] = found.get(node.id, node.id)
    return found


def _range(node: Node, ranges: Mapping[str, Range]) -> Range:
    if node.name not in ranges:
        raise ModelError(f"{node} has no range in the calibration: calibrate this very model")
    return ranges[node.name]
