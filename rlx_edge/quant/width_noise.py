"""What each layer with fewer bits does to the output, all others having 8: measured, layer by layer and width by width.

Errors of different layers are nearly independent, so that their powers at the output add up; a choice of bits for all
layers is judged by that sum first, and the chosen ones are measured as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Softmax
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.assign import Assignment, assign, float_bias, float_weights, weight_axis
from rlx_edge.quant.batches import Batch, batches
from rlx_edge.quant.calibrate import Calibration
from rlx_edge.quant.layerwise import Walk
from rlx_edge.quant.quantize import layer_methods
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.schemes import QuantizedWeights, quantize_weights
from rlx_edge.quant.simulate import Simulation
from rlx_edge.quant.widths import LayerRule

FULL = 8
SAMPLES = 64
"""Samples on which noise is measured, evenly spread over the data."""

Forms = Mapping[int, Mapping[int, QuantizedWeights]]
"""Layer (by node id) -> bits -> the layer with so many."""


@dataclass(frozen=True, eq=False)
class WidthNoise:
    """A model with 8 bits, other forms of its layers, and the mean squares at the output, before a final softmax.

    signal: of the float model. base: of the error with 8 bits everywhere. noise: layer -> bits -> of the error with
    that layer in that form alone.
    """

    assignment: Assignment
    forms: Forms
    signal: float
    base: float
    noise: Mapping[int, Mapping[int, float]]

    @property
    def layers(self) -> tuple[Node, ...]:
        return tuple(self.assignment.graph.nodes[id] for id in sorted(self.forms))

    def with_bits(self, bits: int) -> Assignment:
        """Every layer in its form of so many bits."""
        return self.assignment.with_layers({id: forms[bits] for id, forms in self.forms.items()})

    def added(self, id: int, bits: int) -> float:
        """What a layer's form adds to the error of the model with 8 bits; 0 where it happens to lessen it."""
        return 0.0 if bits == FULL else max(0.0, self.noise[id][bits] - self.base)


def measure_noise(
    graph: Graph,
    calibration: Calibration,
    data: Data,
    recipe: Recipe,
    widths: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> WidthNoise:
    """The forms of every layer with each of `widths` and with 8 bits, and their noise on SAMPLES of the data.

    `recipe` says how layers are rounded; its own `weights` are left out of account.
    """
    assignment, forms = make_forms(assign(prepare(graph), calibration.ranges), data, recipe, widths)
    variants = [(id, bits) for id in sorted(forms) for bits in widths]
    output = judged(assignment.graph)
    signal, base, sums = 0.0, 0.0, dict.fromkeys(variants, 0.0)
    chunks = list(batches(spread(data, SAMPLES), assignment.graph))
    reference = Simulation(assignment, frozenset(node.name for node in assignment.graph.nodes))
    simulation = Simulation(assignment)
    for number, batch in enumerate(chunks):
        wanted = values_of(reference, batch)[output]
        values = values_of(simulation, batch)
        signal += float(np.sum(np.square(wanted, dtype=np.float64)))
        base += _squares(wanted, values[output])
        for place, (id, bits) in enumerate(variants):
            found = changed(simulation.with_layer(id, forms[id][bits]), batch, values, id)
            sums[id, bits] += _squares(wanted, found.get(output, values[output]))
            if progress is not None:
                progress(number * len(variants) + place + 1, len(chunks) * len(variants))
    noise = {id: {bits: sums[id, bits] for bits in widths} for id in forms}
    return WidthNoise(assignment, forms, signal, base, noise)


def make_forms(
    assignment: Assignment, data: Data, recipe: Recipe, widths: Sequence[int]
) -> tuple[Assignment, dict[int, dict[int, QuantizedWeights]]]:
    """The model with 8 bits as the recipe makes it, and the other forms of each layer, on the same inputs."""
    walk = Walk(assignment, data)
    forms: dict[int, dict[int, QuantizedWeights]] = {}
    for node in walk.nodes:
        if node.id in assignment.layers:
            forms[node.id] = {}
            for bits in (*widths, FULL):
                walk.set_layer(node, nearest(assignment, node.id, bits))
                walk.choose(node, layer_methods(recipe, {node.id: LayerRule("*", bits)}))
                forms[node.id][bits] = walk.assignment.layers[node.id]
        walk.step(node)
    return walk.assignment, forms


def nearest(assignment: Assignment, id: int, bits: int) -> QuantizedWeights:
    """A layer rounded to nearest at so many bits: where methods begin."""
    graph, fusion = assignment.graph, assignment.fusions[id]
    x_scale = assignment.params[fusion.anchor.inputs[0]].scale
    return quantize_weights(float_weights(graph, fusion), weight_axis(fusion), float_bias(graph, fusion), x_scale, bits)


def judged(graph: Graph) -> int:
    """The tensor at which noise is measured: the first output, before a final softmax."""
    node = graph.nodes[graph.outputs[0]]
    return node.inputs[0] if isinstance(node.op, Softmax) else node.id


def values_of(simulation: Simulation, batch: Batch) -> dict[int, Array]:
    """Every stored tensor of a batch."""
    values = dict(simulation.constants)
    simulation.observe(batch.graphs[0], batch.inputs, lambda node, value: values.update({node.id: value}))
    return values


def changed(simulation: Simulation, batch: Batch, base: Mapping[int, Array], start: int) -> dict[int, Array]:
    """The tensors that a layer and what depends on it give, where `base` was computed with another form of it."""
    found: dict[int, Array] = {}
    for node in batch.graphs[0].nodes[start:]:
        if not simulation.stored(node):
            continue
        operands = simulation.operands(node)
        if node.id == start or any(i in found for i in operands):
            found[node.id] = simulation.compute(batch.graphs[0], node, [found.get(i, base[i]) for i in operands])
    return found


def spread(data: Data, most: int) -> Data:
    """At most so many samples, evenly spread."""
    if len(data) <= most:
        return data
    picked = np.linspace(0, len(data) - 1, most).round().astype(int)
    return Data({name: values[picked] for name, values in data.inputs.items()})


def _squares(a: Array, b: Array) -> float:
    return float(np.sum(np.square(a.astype(np.float64) - b)))
