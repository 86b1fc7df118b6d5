"""How good a model is on labeled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.data import Data
from rlx_edge.engines import Progress, predict
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.ir import Array, Graph
from rlx_edge.reference.fixedpoint import dequantize_f32

Metric = Callable[[Array, Array], float]
"""From real outputs [samples, ...] and labels [samples, ...] to a number."""


@dataclass(frozen=True)
class Evaluation:
    """A metric's value over n samples."""

    metric: str
    value: float
    n: int


def top1(outputs: Array, labels: Array) -> float:
    """Share of samples whose largest output is the label's. Raises DataError unless labels are class numbers."""
    scores = outputs.reshape(len(outputs), -1)
    if not np.issubdtype(labels.dtype, np.integer) or labels.reshape(len(labels), -1).shape[1] != 1:
        raise DataError(f"top1 needs one class number a sample; the labels are {labels.dtype}{list(labels.shape)}")
    classes = labels.reshape(-1)
    if classes.min() < 0 or classes.max() >= scores.shape[1]:
        raise DataError(f"labels from {classes.min()} to {classes.max()}, but the model has {scores.shape[1]} classes")
    return float((scores.argmax(axis=1) == classes).mean())


def mse(outputs: Array, labels: Array) -> float:
    """Mean squared error. Raises DataError unless labels are real numbers, as many as the outputs."""
    if labels.dtype.kind not in "biuf":
        raise DataError(f"mse needs real numbers as labels; they are {labels.dtype}")
    if outputs.size != labels.size:
        raise DataError(f"mse needs labels like the outputs {list(outputs.shape)}; they are {list(labels.shape)}")
    return float(np.mean((outputs.reshape(-1).astype(np.float64) - labels.reshape(-1)) ** 2))


METRICS: Mapping[str, Metric] = {"top1": top1, "mse": mse}


def evaluate(
    graph: Graph, data: Data, metric: str = "top1", engine: str | None = None, progress: Progress | None = None
) -> Evaluation:
    """A metric of the first output over all samples. Raises DataError when the data have no labels."""
    if metric not in METRICS:
        raise EdgeError(f"no metric {metric!r}; there are {', '.join(METRICS)}")
    if data.labels is None:
        raise DataError("the data file has no labels: store them as `y`, or name their array with --labels")
    first = graph.output_nodes[0]
    outputs = predict(graph, data, engine, progress)[first.name]
    if len(outputs) != len(data.labels):
        raise DataError(f"{len(data.labels)} labels for the outputs of {len(outputs)} samples")
    if first.type.quant is not None:
        outputs = dequantize_f32(outputs, first.type.quant)
    return Evaluation(metric, METRICS[metric](outputs, data.labels), len(data))
