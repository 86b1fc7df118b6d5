"""Run a graph on many samples, several at once where the model allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, Graph, with_batch
from rlx_edge.ir.ops import ShapeError

BATCH = 32
"""Samples at once: enough to hide numpy's cost per call, little memory."""


def batches(data: Data, *graphs: Graph) -> Iterator[tuple[tuple[Graph, ...], Mapping[str, Array]]]:
    """Batches of the data, each with the graphs made for its size. All graphs have the same inputs.

    A model that cannot be made for another size runs as it is. Raises DataError where the samples do not fill it.
    """
    if not _can_batch(graphs):
        yield from ((graphs, batch) for batch in data.batches(_fixed_size(graphs[0], len(data))))
        return
    made: dict[int, tuple[Graph, ...]] = {}
    for batch in data.batches(BATCH):
        count = len(next(iter(batch.values())))
        if count not in made:
            made[count] = tuple(with_batch(graph, count) for graph in graphs)
        yield made[count], batch


def _can_batch(graphs: tuple[Graph, ...]) -> bool:
    try:
        for graph in graphs:
            with_batch(graph, 2)
    except (ModelError, ShapeError):
        return False  # An op mixes samples, or the model takes several at once.
    return True


def _fixed_size(graph: Graph, samples: int) -> int:
    """The samples that a model takes at once: the first axis of its inputs."""
    sizes = {node.type.shape[0] if node.type.shape else 1 for node in graph.inputs}
    if len(sizes) > 1:
        raise DataError(f"{graph.name!r}: the first axes of its inputs differ, so samples cannot be told apart")
    size = sizes.pop()
    if samples % size:
        raise DataError(f"{graph.name!r} takes {size} samples at once; {samples} cannot be divided among such runs")
    return size
