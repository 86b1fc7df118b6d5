"""Run a float model on data and keep the range of every tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Input, Leaf, Softmax
from rlx_edge.passes.fuse import find_fusions, fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.assign import OPERANDS, keeps_params
from rlx_edge.quant.batches import batches, quick_batch
from rlx_edge.quant.check_samples import check_samples
from rlx_edge.quant.findings import findings
from rlx_edge.quant.observers import Range, Seen
from rlx_edge.quant.observers_methods import Method, Observer, method_of
from rlx_edge.quant.observers_search import search_ranges
from rlx_edge.reference.fast import observe

Progress = Callable[[int, int], None]
"""Called with the samples done and the samples in all."""


@dataclass(frozen=True)
class Calibration:
    """Ranges by node name of the prepared graph, and what a person should know about them, a line each.

    `seen` holds, by the same names, what the data held: extremes of each channel and counts.
    """

    ranges: Mapping[str, Range]
    samples: int
    warnings: tuple[str, ...] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)


def calibrate(
    graph: Graph, data: Data, observer: str = "minmax", progress: Progress | None = None, *, search: bool = False
) -> Calibration:
    """The range of every tensor of the prepared float graph over all samples.

    `observer` names the method, one of OBSERVERS, for tensors that get parameters of their own; all others keep their
    extremes. `search` then takes, per tensor, the range among those of all methods that serves the outputs best.
    Raises EdgeError for a method that does not exist, ModelError for a graph that is not float, and DataError for
    data without samples, for an input that never varies, and for a tensor that becomes NaN or infinite, saying for
    which sample.
    """
    integer = [node for node in graph.inputs if node.type.dtype is not DType.F32]
    if integer:
        raise ModelError(f"{integer[0]} is {integer[0].type}: the model is quantized already, or not a float model")
    prepared = prepare(graph)
    odd = check_samples(prepared, data)
    method = method_of(observer)
    observers = _observe(prepared, data, replace(method, counts=method.counts or search), progress)
    ranges = {name: seen.range(observer) for name, seen in observers.items()}
    if search:
        candidates = {name: seen.candidates() for name, seen in observers.items()}
        ranges = search_ranges(prepared, data, ranges, candidates, progress)
    seen = {name: seen.seen for name, seen in observers.items()}
    return Calibration(ranges, len(data), (*odd, *findings(prepared, ranges, seen)), seen)


def _observe(graph: Graph, data: Data, method: Method, progress: Progress | None) -> dict[str, Observer]:
    """What was seen of each tensor that is given or computed, by name."""
    chosen = _own_ranges(graph)
    observers = {
        node.name: method.observer() if node.id in chosen else Observer()
        for node in graph.nodes
        if isinstance(node.op, Input) or not isinstance(node.op, Leaf)
    }
    done = 0

    def keep(node: Node, value: Array) -> None:
        if node.name in observers and not observers[node.name].update(value, done, batch.count):
            raise _NotFiniteError

    for batch in batches(data, graph, most=quick_batch(graph)):
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                observe(batch.graphs[0], batch.inputs, keep)
        except _NotFiniteError:
            raise not_finite(graph, data, done, batch.count) from None
        done += batch.count
        if progress is not None:
            progress(done, len(data))
    return observers


def _own_ranges(graph: Graph) -> set[int]:
    """The tensors that get parameters from their own range and follow from the inputs: those that a method acts on."""
    varying: set[int] = set()
    own: set[int] = set()
    for node in graph.nodes:
        if isinstance(node.op, Input) or varying.intersection(node.inputs):
            varying.add(node.id)
            if (
                node.type.dtype is DType.F32
                and not isinstance(node.op, (*OPERANDS, Softmax))
                and not keeps_params(node)
            ):
                own.add(node.id)
    return own - fused_away(graph, find_fusions(graph))


class _NotFiniteError(Exception):
    """Some value of a batch is NaN or infinite."""


def not_finite(graph: Graph, data: Data, start: int, count: int) -> DataError:
    """Which of the samples from `start` on is the first that makes a tensor NaN or infinite, and which tensor."""
    found: list[tuple[Node, bool]] = []

    def look(node: Node, value: Array) -> None:
        if not found and not np.isfinite(value).all():
            found.append((node, bool(np.isnan(value).any())))

    suspects = Data({name: values[start : start + count] for name, values in data.inputs.items()})
    for sample, one in enumerate(batches(suspects, graph, most=1), start):
        with np.errstate(over="ignore", invalid="ignore"):
            observe(one.graphs[0], one.inputs, look)
        if found:
            node, nan = found[0]
            what, why = ("NaN", "makes it") if nan else ("infinite", "overflows")
            return DataError(f"{node} is {what} for sample {sample}, whose inputs are finite: the model itself {why}")
    return DataError(f"NaN or infinity for samples {start} to {start + count - 1}, but for none of them alone")
