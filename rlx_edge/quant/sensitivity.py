"""What a model gains if one layer alone stays float.

Such a layer reads its int8 inputs as real values and computes with its float weights; the next int8 layer rounds what
it gives to the parameters of the tensor between them. An output of the model stays as it is computed. The layer has its
own bias: where bias correction made the int8 one cancel errors of earlier layers too, a float layer may be worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Leaf
from rlx_edge.quant.batches import Batch
from rlx_edge.quant.isolated import real
from rlx_edge.quant.quality import Sums
from rlx_edge.reference import fast
from rlx_edge.reference.fast_integer import evaluate, observe
from rlx_edge.reference.fixedpoint import quantize_f32


@dataclass(frozen=True)
class Pairing:
    """The tensors that a prepared float graph and its int8 graph share, as (float, int8) nodes.

    `layers` are to be kept float in turn, `judged` are compared (from `limits` on, by name, values are masks), `first`
    is the first output.
    """

    layers: tuple[tuple[Node, Node], ...]
    judged: tuple[tuple[Node, Node], ...]
    first: tuple[Node, Node]
    names: frozenset[str]
    limits: Mapping[str, float]


@dataclass
class Variant:
    """The judged tensors of the model with one layer float (or none), and its first output [samples, classes]."""

    sums: Sums
    outputs: list[Array]


def run_variants(
    batch: Batch, expected: Mapping[str, Array], codes: Mapping[str, Array], pairing: Pairing, variants: list[Variant]
) -> None:
    """Add a batch to the variants: the first with no layer float, then one a layer, in order.

    `expected` holds the float model's values by name, `codes` the int8 model's inputs.
    """
    base: dict[int, Array] = {}
    _, int8 = batch.graphs
    observe(int8, codes, lambda node, value: base.update({node.id: value}))
    _judge(batch, expected, base, {}, pairing, variants[0])
    for (float_layer, layer), variant in zip(pairing.layers, variants[1:], strict=True):
        unrounded = _float_value(batch, float_layer, base, pairing.names)
        changed = {layer.id: _rounded(layer, unrounded)}
        _propagate(int8, base, changed, layer.id)
        _judge(batch, expected, {**base, **changed}, {layer.id: unrounded}, pairing, variant)


def _rounded(node: Node, values: Array) -> Array:
    return values if node.type.quant is None else quantize_f32(values, node.type.quant)


def _float_value(batch: Batch, wanted: Node, base: Mapping[int, Array], names: frozenset[str]) -> Array:
    """A float node's value from the nearest tensors before it that the int8 graph holds, as real values."""
    graph, int8 = batch.graphs
    held = {node.name: node for node in int8.nodes if node.name in names}
    values: dict[int, Array] = {}

    def value(node: Node) -> Array:
        if node.id not in values:
            constant = graph.constant(node)
            if constant is not None:
                values[node.id] = constant
            elif node.name in held and node.id != wanted.id:
                values[node.id] = real(held[node.name], base[held[node.name].id])
            else:
                values[node.id] = fast.evaluate(graph, node, [value(operand) for operand in graph.operands(node)])
        return values[node.id]

    return value(graph.nodes[wanted.id])


def _propagate(graph: Graph, base: Mapping[int, Array], changed: dict[int, Array], start: int) -> None:
    """Compute anew what follows from a changed tensor, into `changed`."""
    if np.array_equal(changed[start], base[start]):
        return
    for node in graph.nodes[start + 1 :]:
        if isinstance(node.op, Leaf) or changed.keys().isdisjoint(node.inputs):
            continue
        value = evaluate(graph, node, [changed.get(i, base[i]) for i in node.inputs])
        if not np.array_equal(value, base[node.id]):
            changed[node.id] = value


def _judge(
    batch: Batch,
    expected: Mapping[str, Array],
    values: Mapping[int, Array],
    unrounded: Mapping[int, Array],
    pairing: Pairing,
    variant: Variant,
) -> None:
    def read(node: Node) -> Array:
        return unrounded[node.id] if node.id in unrounded else real(node, values[node.id])

    for a, b in pairing.judged:
        variant.sums.add(expected[a.name], read(b), pairing.limits[b.name])
    variant.outputs.append(read(pairing.first[1]).reshape(batch.count, -1))
