"""Walk through a model layer by layer, the quantized values beside the float ones.

Each layer sees inputs that carry the errors of all layers before it, as they are chosen by then; what a method decides
for a layer counts for all later ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Input
from rlx_edge.passes.fuse import Fusion
from rlx_edge.quant.assign import Assignment
from rlx_edge.quant.batches import Batch, batches
from rlx_edge.quant.schemes import QuantizedWeights
from rlx_edge.quant.simulate import Simulation

MEMORY_BYTES = 96 << 20
"""What the tensors in use may take, float and quantized together; of more samples an even choice is taken."""

Progress = Callable[[int, int], None]
"""Called with the layers done and the layers in all."""


class LayerInputs:
    """What one layer reads on every batch, and what the float model's layer makes of it."""

    def __init__(self, walk: Walk, node: Node) -> None:
        self._walk, self.node = walk, node
        self.fusion: Fusion = walk.assignment.fusions[node.id]
        self.layer: QuantizedWeights = walk.assignment.layers[node.id]
        (self._operand,) = walk.simulation.operands(node)

    @property
    def graph(self) -> Graph:
        """The prepared graph for one sample."""
        return self._walk.assignment.graph

    @property
    def graphs(self) -> list[Graph]:
        """The prepared graph, made for the size of each batch."""
        return [batch.graphs[0] for batch in self._walk.chunks]

    @property
    def quantized(self) -> list[Array]:
        """The operand's values in the quantized model."""
        return self._walk.quantized[self._operand]

    @property
    def exact(self) -> list[Array]:
        """The operand's values in the float model."""
        return self._walk.exact[self._operand]

    @property
    def operand_scale(self) -> float:
        """The step of the operand's codes."""
        return self._walk.assignment.params[self._operand].scale

    def mean_error(self) -> Array:
        """The mean per output channel [C] of float minus quantized, before bounds and rounding."""
        walk, total, count = self._walk, np.zeros(()), 0
        for graph, exact, found in zip(self.graphs, self.exact, self.quantized, strict=True):
            wanted = walk.reference.accumulate(graph, self.fusion, exact)
            error = wanted - walk.simulation.accumulate(graph, self.fusion, found)
            rows = error.reshape(-1, error.shape[-1])
            total, count = total + rows.sum(axis=0, dtype=np.float64), count + len(rows)
        return np.asarray(total / count)


Method = Callable[[LayerInputs], QuantizedWeights]
"""Chooses a layer's integers anew."""


class Walk:
    """The state of a walk: values by node id, a list of one array a batch. Memory is freed early."""

    def __init__(self, assignment: Assignment, data: Data) -> None:
        self.chunks: list[Batch] = list(batches(_choose(assignment.graph, data), assignment.graph))
        self.simulation = Simulation(assignment)
        everything = frozenset(node.name for node in assignment.graph.nodes)
        self.reference = Simulation(assignment, everything)
        self.nodes = [node for node in assignment.graph.nodes if self.simulation.stored(node)]
        self.quantized = {id: [value] * len(self.chunks) for id, value in self.simulation.constants.items()}
        self.exact = {id: [value] * len(self.chunks) for id, value in self.reference.constants.items()}
        self._last_use = {operand: node.id for node in self.nodes for operand in self.simulation.operands(node)}

    @property
    def assignment(self) -> Assignment:
        """The integers as they are chosen by now."""
        return self.simulation.assignment

    def set_layer(self, node: Node, layer: QuantizedWeights) -> None:
        """Give a layer these integers, from which methods go on."""
        self.simulation = self.simulation.with_layer(node.id, layer)

    def choose(self, node: Node, methods: list[Method]) -> None:
        """Apply the methods to a layer, one after another."""
        for method in methods:
            self.set_layer(node, method(LayerInputs(self, node)))

    def step(self, node: Node) -> None:
        """Compute a node in both models, and forget what no later node reads."""
        for simulation, values in ((self.simulation, self.quantized), (self.reference, self.exact)):
            operands = [values[i] for i in simulation.operands(node)]
            values[node.id] = [
                simulation.finish(node, chunk.inputs[node.name])
                if isinstance(node.op, Input)
                else simulation.compute(chunk.graphs[0], chunk.graphs[0].nodes[node.id], [x[i] for x in operands])
                for i, chunk in enumerate(self.chunks)
            ]
            for operand in {*simulation.operands(node), node.id}:
                if self._last_use.get(operand, node.id) <= node.id:
                    del values[operand]


def improve(assignment: Assignment, data: Data, methods: list[Method], progress: Progress | None = None) -> Assignment:
    """The assignment with every layer's integers chosen anew by `methods` in turn, first layer first."""
    walk = Walk(assignment, data)
    layers = [node.id for node in walk.nodes if node.id in assignment.layers]
    for node in walk.nodes:
        if node.id in assignment.layers:
            walk.choose(node, methods)
        walk.step(node)
        if progress is not None and node.id in assignment.layers:
            progress(layers.index(node.id) + 1, len(layers))
    return walk.assignment


def _choose(graph: Graph, data: Data) -> Data:
    """As many samples, evenly spread, as MEMORY_BYTES hold."""
    most = max(1, MEMORY_BYTES // (2 * live_bytes(graph)))
    if len(data) <= most:
        return data
    picked = np.linspace(0, len(data) - 1, most).round().astype(int)
    return Data({name: values[picked] for name, values in data.inputs.items()})


def live_bytes(graph: Graph) -> int:
    """The most that the tensors of one sample take at any time, with the working copy of the one just computed."""
    last_use = {operand: node.id for node in graph.nodes for operand in node.inputs}
    live: dict[int, int] = {}
    most = 0
    for node in graph.nodes:
        if graph.constant(node) is None:
            live[node.id] = node.type.bytes
        most = max(most, sum(live.values()) + node.type.bytes)
        for operand in {*node.inputs, node.id}:
            if last_use.get(operand, node.id) <= node.id:
                live.pop(operand, None)
    return most
