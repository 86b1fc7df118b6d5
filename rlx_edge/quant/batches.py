"""Run a graph on many samples, several at once where the model allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, Graph, Node, with_batch
from rlx_edge.ir.batch import sample_shape

BATCH = 32
"""Samples at once: enough to hide numpy's cost per call, little memory."""


@dataclass(frozen=True, eq=False)
class Batch:
    """`count` samples as the graphs, which are made for that many, take them."""

    graphs: tuple[Graph, ...]
    inputs: Mapping[str, Array]
    count: int

    def samples(self, node: Node, values: Array) -> Array:
        """An output's values as [count, *sample shape]; `node` is that of the graph for one sample."""
        return values.reshape(self.count, *sample_shape(node.type.shape))


def batches(data: Data, *graphs: Graph) -> Iterator[Batch]:
    """Batches of the data, each with the graphs made for its size. All graphs have the same inputs.

    A model that may mix what a batch holds runs on one sample at a time. Raises DataError for samples that do not fit.
    """
    _check(data, graphs[0])
    if not _can_batch(graphs):
        shapes = {node.name: node.type.shape for node in graphs[0].inputs}
        for one in data.batches(1):
            yield Batch(graphs, {name: one[name].reshape(shape) for name, shape in shapes.items()}, 1)
        return
    made: dict[int, tuple[Graph, ...]] = {}
    for start in range(0, len(data), BATCH):
        count = min(BATCH, len(data) - start)
        if count not in made:
            made[count] = tuple(with_batch(graph, count) for graph in graphs)
        yield Batch(made[count], data.batch(start, start + count), count)


def _check(data: Data, graph: Graph) -> None:
    if len(data) == 0:
        raise DataError(f"no samples for {graph.name!r}")
    for node in graph.inputs:
        values, wanted = data.inputs.get(node.name), sample_shape(node.type.shape)
        if values is None:
            raise DataError(f"no values for the input {node.name!r}; given: {', '.join(data.inputs) or 'nothing'}")
        if values.shape != (len(data), *wanted):
            raise DataError(
                f"the input {node.name!r} takes samples of shape {list(wanted)}, {len(data)} of them as the first "
                f"input has; given was {list(values.shape)}"
            )


def _can_batch(graphs: tuple[Graph, ...]) -> bool:
    """Whether every graph keeps samples apart, which `with_batch` shows for one size as for any other."""
    try:
        for graph in graphs:
            with_batch(graph, 2)
    except ModelError:
        return False
    return True
