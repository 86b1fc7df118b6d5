"""Channels that hold one code whatever the input is: worked out ahead of time, and taken into the next layer's bias.

No value of any tensor changes. A convolution or dense layer whose output channel is constant loses that channel's
weights (its bias alone gives the code then); one that reads a constant channel adds what comes of it to its bias and
loses those weights. `remove_dead_channels` then finds that nobody reads the channel.

Padding stands for the input's zero point, so a constant that is not the zero point folds only where no tap that reads
it ever falls on padding. A bias that would leave int32 stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.ir import Array, Graph
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.passes.code_ranges import Codes, accumulators, code_ranges
from rlx_edge.passes.int8_layers import Change, Layer, changed_weights, layer_of, rebuild_layers

INT32 = np.iinfo(np.int32)


def fold_constant_channels(graph: Graph) -> Graph:
    """The same graph, every tensor the same to the last bit, with weights of constant channels 0."""
    layers = [node for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul)]
    if not layers:
        return graph
    ranges = code_ranges(graph)
    changes: dict[int, Change] = {}
    for node in layers:
        layer = layer_of(graph, node)
        x = ranges.get(node.inputs[0])
        if layer is None or x is None:
            continue
        smaller = _read_fewer(_give_constants(layer, x, ranges[node.id].constant), x)
        if smaller is not layer:
            changes[node.id] = changed_weights(graph, smaller)
    return rebuild_layers(graph, changes)


def _give_constants(layer: Layer, x: Codes, constant: Array) -> Layer:
    """Output channels of one code: no weights, and as bias an accumulator that gives the code."""
    lowest, _ = accumulators(layer, x)
    chosen = constant & layer.weights.any(axis=(1, 2)) & _fits(lowest)
    if not chosen.any():
        return layer
    weights = np.where(chosen[:, None, None], 0, layer.weights)
    return replace(layer, weights=weights, bias=np.where(chosen, lowest, layer.bias))


def _read_fewer(layer: Layer, x: Codes) -> Layer:
    """Input channels of one code: their products with the weights go into the bias."""
    constant, offset = layer.by_output(x.constant), layer.by_output(x.low - layer.op.x_zp)
    used = layer.weights != 0
    safe = (offset == 0) | ~(used & (~layer.always & layer.ever)[None, :, None]).any(axis=1)
    folded = constant & safe & used.any(axis=1)
    if not folded.any():
        return layer
    products = layer.weights[:, layer.always].sum(axis=1) * offset
    bias = layer.bias + np.where(folded, products, 0).sum(axis=1)
    folded &= _fits(bias)[:, None]
    if not folded.any():
        return layer
    weights = np.where(folded[:, None, :], 0, layer.weights)
    return replace(layer, weights=weights, bias=np.where(folded.any(axis=1), bias, layer.bias))


def _fits(bias: Array) -> Array:
    return np.asarray((INT32.min <= bias) & (bias <= INT32.max))
