"""Search: the range of each tensor by what it does to the model's outputs, not to the tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Softmax
from rlx_edge.quant.assign import assign
from rlx_edge.quant.batches import Batch, batches, quick_batch
from rlx_edge.quant.observers import Range
from rlx_edge.quant.simulate import Simulation
from rlx_edge.reference.fast import observe

SAMPLES = 32
"""How many samples the outputs are compared on, evenly spaced over the data."""

Progress = Callable[[int, int], None]


def search_ranges(
    graph: Graph,
    data: Data,
    ranges: Mapping[str, Range],
    candidates: Mapping[str, tuple[Range, ...]],
    progress: Progress | None = None,
) -> dict[str, Range]:
    """The ranges with, for one tensor after the other, the candidate that leaves the least error at the outputs.

    `graph` is prepared. `candidates` holds what a tensor may get, by name; others keep their range. The outputs are
    those of the simulated int8 model beside the float model's, before a final softmax. The same data give the same
    ranges. `progress` hears of tensors done and in all.
    """
    search = _Search(graph, data)
    chosen = dict(ranges)
    open_names = [node.name for node in graph.nodes if len(candidates.get(node.name, ())) > 1]
    least = search.noise(chosen)
    for done, name in enumerate(open_names, 1):
        for candidate in candidates[name]:
            if (candidate.low, candidate.high) == (chosen[name].low, chosen[name].high):
                continue
            noise = search.noise({**chosen, name: candidate})
            if noise < least:
                chosen, least = {**chosen, name: candidate}, noise
        if progress is not None:
            progress(done, len(open_names))
    return chosen


class _Search:
    """The float model's outputs on the samples, to compare with those of a choice of ranges."""

    def __init__(self, graph: Graph, data: Data) -> None:
        self._graph = graph
        picked = np.unique(np.linspace(0, len(data) - 1, SAMPLES).round().astype(np.int64))
        subset = Data({name: values[picked] for name, values in data.inputs.items()})
        self._batches = list(batches(subset, graph, most=quick_batch(graph)))
        self._judged = {_before_softmax(graph, node).id for node in graph.output_nodes}
        self._expected = [self._outputs(batch, observe) for batch in self._batches]

    def noise(self, ranges: Mapping[str, Range]) -> float:
        """The sum over the outputs of squared errors, each output's as a share of its sum of squares."""
        simulation = Simulation(assign(self._graph, ranges))
        found = [self._outputs(batch, simulation.observe) for batch in self._batches]
        total = 0.0
        for id in sorted(self._judged):
            signal = noise = 0.0
            for expected, made in zip(self._expected, found, strict=True):
                signal += float(np.sum(expected[id] ** 2))
                noise += float(np.sum((made[id] - expected[id]) ** 2))
            total += noise / signal if signal > 0 else noise
        return total

    def _outputs(self, batch: Batch, run: Callable[..., None]) -> dict[int, Array]:
        held: dict[int, Array] = {}

        def keep(node: Node, value: Array) -> None:
            if node.id in self._judged:
                held[node.id] = value.astype(np.float64)

        run(batch.graphs[0], batch.inputs, keep)
        return held


def _before_softmax(graph: Graph, node: Node) -> Node:
    return graph.nodes[node.inputs[0]] if isinstance(node.op, Softmax) else node
