"""Run a float model on data and keep the range of every tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.data import Data
from rlx_edge.errors import DataError, ModelError
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Input, Leaf
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.batches import batches
from rlx_edge.quant.findings import findings
from rlx_edge.quant.observers import MinMax, Range
from rlx_edge.reference import observe

Progress = Callable[[int, int], None]
"""Called with the samples done and the samples in all."""


@dataclass(frozen=True)
class Calibration:
    """Ranges by node name of the prepared graph, and what a person should know about them, a line each."""

    ranges: Mapping[str, Range]
    samples: int
    warnings: tuple[str, ...] = ()


def calibrate(graph: Graph, data: Data, progress: Progress | None = None) -> Calibration:
    """The range of every tensor of the prepared float graph over all samples.

    Raises ModelError for a graph that is not float, and DataError for data without samples, for an input that never
    varies, and for a tensor that becomes NaN or infinite.
    """
    integer = [node for node in graph.inputs if node.type.dtype is not DType.F32]
    if integer:
        raise ModelError(f"{integer[0]} is {integer[0].type}: the model is quantized already, or not a float model")
    if len(data) == 0:
        raise DataError("calibration needs at least one sample")
    for name, values in data.inputs.items():
        if values.size > 1 and bool(np.all(values == values.reshape(-1)[0])):
            raise DataError(
                f"the input {name!r} is {values.reshape(-1)[0]:g} in all of the {len(data)} samples; "
                "calibrate on real, varied data"
            )
    prepared = prepare(graph)
    observers = _observe(prepared, data, progress)
    ranges = {name: observer.range for name, observer in observers.items()}
    return Calibration(ranges, len(data), tuple(findings(prepared, ranges)))


def _observe(graph: Graph, data: Data, progress: Progress | None) -> dict[str, MinMax]:
    observers: dict[str, MinMax] = {}
    done, count = 0, 0

    def keep(node: Node, value: Array) -> None:
        if isinstance(node.op, Leaf) and not isinstance(node.op, Input):
            return
        if not observers.setdefault(node.name, MinMax()).update(value):
            raise DataError(f"{node}: NaN or infinity within samples {done} to {done + count - 1}")

    for batch in batches(data, graph):
        count = batch.count
        with np.errstate(over="ignore", invalid="ignore"):
            observe(batch.graphs[0], batch.inputs, keep)
        done += count
        if progress is not None:
            progress(done, len(data))
    return observers
