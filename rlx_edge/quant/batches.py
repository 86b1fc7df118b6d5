"""Run a graph on many samples, several at once where the model allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, Graph, Node, with_batch
from rlx_edge.ir.batch import sample_shape
from rlx_edge.ir.ops import Input, Leaf

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


def batches(data: Data, *graphs: Graph, most: int = BATCH) -> Iterator[Batch]:
    """Batches of the data, `most` samples each, with the graphs made for their size. All graphs have the same inputs.

    A model that may mix what a batch holds runs on one sample at a time. Raises DataError for samples that do not fit.
    """
    _check(data, graphs[0])
    most = min(most, len(data))
    first = _with_batch(graphs, most)
    if first is None:
        shapes = {node.name: node.type.shape for node in graphs[0].inputs}
        for one in data.batches(1):
            yield Batch(graphs, {name: one[name].reshape(shape) for name, shape in shapes.items()}, 1)
        return
    made = {most: first}
    for start in range(0, len(data), most):
        count = min(most, len(data) - start)
        if count not in made:
            made[count] = tuple(with_batch(graph, count) for graph in graphs)
        yield Batch(made[count], data.batch(start, start + count), count)


QUICK_BYTES = 1 << 22
"""What the largest tensor of a batch may take: larger ones leave the caches before the next op reads them."""


def quick_batch(*graphs: Graph) -> int:
    """How many samples a batch should have, 1 to BATCH, so that tensors of float32 stay in the caches."""
    largest = max(node.type.elements for graph in graphs for node in graph.nodes if not _constant(node))
    return max(1, min(BATCH, QUICK_BYTES // (4 * max(1, largest))))


def samples_within(limit_bytes: int, *graphs: Graph) -> int:
    """How many samples a batch may have, 1 to BATCH, so that all tensors of all graphs fit, each as float32 twice."""
    elements = sum(node.type.elements for graph in graphs for node in graph.nodes if not _constant(node))
    return max(1, min(BATCH, limit_bytes // (8 * max(1, elements))))


def _constant(node: Node) -> bool:
    return isinstance(node.op, Leaf) and not isinstance(node.op, Input)


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


def _with_batch(graphs: tuple[Graph, ...], count: int) -> tuple[Graph, ...] | None:
    """The graphs for `count` samples; None where one may mix them, which shows for one count as for any other."""
    try:
        return tuple(with_batch(graph, count) for graph in graphs)
    except ModelError:
        return None
