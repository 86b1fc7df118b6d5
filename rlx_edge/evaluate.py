"""How good a model is on labeled data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.data import Data
from rlx_edge.engines import Progress, predict
from rlx_edge.errors import DataError
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.metrics import anomaly_scores, auc, find_metric, mse, top1
from rlx_edge.reference.fixedpoint import dequantize_f32

__all__ = ["Evaluation", "auc", "evaluate", "mse", "top1"]


@dataclass(frozen=True)
class Evaluation:
    """A metric's value over n samples."""

    metric: str
    value: float
    n: int


def evaluate(
    graph: Graph, data: Data, metric: str = "top1", engine: str | None = None, progress: Progress | None = None
) -> Evaluation:
    """A metric of the first output over all samples, in real values.

    `metric` is top1, auc, mse, or FILE.py:fn for a function `fn(outputs, labels) -> float` of the user's, whose name
    the result takes. For auc, an output of one number is the score of a sample; of an autoencoder, whose output has
    the input's size, the score is the mean squared difference of the two. Raises DataError when the data have no
    labels, do not fit the metric or give NaN, EdgeError for a metric that does not exist or that fails.
    """
    name, function = find_metric(metric)
    if data.labels is None:
        raise DataError("the data file has no labels: store them as `y`, or name their array with --labels")
    first = graph.output_nodes[0]
    with np.errstate(over="ignore", invalid="ignore"):  # Told below, in one line.
        outputs = _real(first, predict(graph, data, engine, progress)[first.name])
    if len(outputs) != len(data.labels):
        raise DataError(f"{len(data.labels)} labels for the outputs of {len(outputs)} samples")
    bad = ~np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1)
    if bad.any():
        raise DataError(
            f"{graph.name!r} gives NaN or infinity for {int(bad.sum())} of {len(data)} samples, the first is "
            f"{int(np.argmax(bad))}: no metric can be made of that"
        )
    if function is auc:
        only = graph.inputs[0] if len(graph.inputs) == 1 else None
        outputs = anomaly_scores(outputs, None if only is None else _real(only, data.inputs[only.name]))
    return Evaluation(name, function(outputs, data.labels), len(data))


def _real(node: Node, values: Array) -> Array:
    return values if node.type.quant is None else dequantize_f32(values, node.type.quant)
