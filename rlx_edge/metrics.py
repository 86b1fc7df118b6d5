"""Metrics: from real outputs and labels to one number, our own and those of a user's file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from rlx_edge.errors import DataError, EdgeError
from rlx_edge.ir import Array
from rlx_edge.user_code import described, load_module, short

MetricFunction = Callable[[Array, Array], float]
"""From real outputs [samples, ...] and labels [samples, ...] to a number."""

RESERVED = ("n", "schema")
"""Keys that `evaluate --json` has beside the metric's name."""


def top1(outputs: Array, labels: Array) -> float:
    """Share of samples whose largest output is the label's. Raises DataError unless labels are class numbers."""
    scores = outputs.reshape(len(outputs), -1)
    if not np.issubdtype(labels.dtype, np.integer) or labels.reshape(len(labels), -1).shape[1] != 1:
        raise DataError(f"top1 needs one class number a sample; the labels are {labels.dtype}{list(labels.shape)}")
    classes = labels.reshape(-1)
    outside = (classes < 0) | (classes >= scores.shape[1])
    if outside.any():
        first = int(np.argmax(outside))
        raise DataError(
            f"labels from {classes.min()} to {classes.max()}, but the model has {scores.shape[1]} classes, 0 to "
            f"{scores.shape[1] - 1}; labels outside: {int(outside.sum())}, the first is {classes[first]} of "
            f"sample {first}"
        )
    return float((scores.argmax(axis=1) == classes).mean())


def mse(outputs: Array, labels: Array) -> float:
    """Mean squared error. Raises DataError unless labels are real numbers, as many as the outputs."""
    if labels.dtype.kind not in "biuf":
        raise DataError(f"mse needs real numbers as labels; they are {labels.dtype}")
    if outputs.size != labels.size:
        raise DataError(f"mse needs labels like the outputs {list(outputs.shape)}; they are {list(labels.shape)}")
    return float(np.mean((outputs.reshape(-1).astype(np.float64) - labels.reshape(-1)) ** 2))


def auc(scores: Array, labels: Array) -> float:
    """Area under the ROC curve: the probability that a sample of label 1 scores above one of label 0, ties half.

    From the sum of ranks (Mann and Whitney, 1947), where equal scores share the average of their ranks. Raises
    DataError unless there is one score and one label, 0 or 1, a sample, and both labels occur.
    """
    if scores.size != len(scores):
        raise DataError(f"auc needs one score a sample; given was {list(scores.shape[1:])}")
    if labels.dtype.kind not in "biuf" or labels.size != len(labels) or not np.isin(labels, (0, 1)).all():
        found = np.unique(labels)[:4].tolist() if labels.dtype.kind in "biuf" else str(labels.dtype)
        raise DataError(
            f"auc needs one label a sample, 0 (normal) or 1 (anomaly); given were {list(labels.shape)} with {found}"
        )
    positive = labels.reshape(-1) == 1
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not (n_positive and n_negative):
        raise DataError(f"auc needs samples of both labels; all {len(labels)} are {int(n_positive > 0)}")
    _, place, counts = np.unique(scores.reshape(-1), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[place.reshape(-1)]
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def anomaly_scores(outputs: Array, inputs: Array | None) -> Array:
    """One score [samples] for `auc`: the output where it is one number, or an autoencoder's error.

    The error is the mean squared difference of an output of the input's size to the input. Raises DataError for
    any other output.
    """
    count = len(outputs)
    if outputs.size == count:
        return outputs.reshape(count)
    if inputs is not None and inputs.size == outputs.size:
        difference = outputs.reshape(count, -1).astype(np.float64) - inputs.reshape(count, -1)
        return np.asarray(np.mean(difference * difference, axis=1))
    size = "several inputs" if inputs is None else f"inputs {list(inputs.shape[1:])}"
    raise DataError(
        f"auc needs an output of one number a sample, or one like the input (an autoencoder, whose score is its mean "
        f"squared error); the model has {size} and an output {list(outputs.shape[1:])}"
    )


METRICS: Mapping[str, MetricFunction] = {"top1": top1, "auc": auc, "mse": mse}


def find_metric(text: str) -> tuple[str, MetricFunction]:
    """The name and function of a metric: one of ours, or FILE.py:fn, a function fn(outputs, labels) -> float.

    The file runs as Python code: name only files that you trust. Raises EdgeError for a metric that does not exist.
    """
    if text in METRICS:
        return text, METRICS[text]
    file, colon, name = text.rpartition(":")
    if not (colon and file.endswith(".py") and name.isidentifier()):
        raise EdgeError(f"no metric {text!r}; there are {', '.join(METRICS)}, and FILE.py:fn for a function of yours")
    if name in RESERVED:
        raise EdgeError(f"{text}: give the function another name: {name!r} is a key of the JSON result already")
    function = getattr(load_module(Path(file), "--metric FILE.py:fn"), name, None)
    if not callable(function):
        raise EdgeError(f"{file}: has no function {name!r}; a metric is `def {name}(outputs, labels) -> float`")
    return name, _checked(text, function)


def _checked(text: str, function: Callable[..., object]) -> MetricFunction:
    def call(outputs: Array, labels: Array) -> float:
        try:
            with redirect_stdout(sys.stderr):  # Standard output is for the result.
                number = _number(function(outputs, labels))
        except (Exception, SystemExit) as error:
            shapes = f"outputs {outputs.dtype}{list(outputs.shape)} and labels {labels.dtype}{list(labels.shape)}"
            raise EdgeError(f"{text}: {described(error)} on {shapes}") from error
        if isinstance(number, str):
            raise EdgeError(f"{text}: gave {number}, not a finite number")
        return number

    return call


def _number(value: object) -> float | str:
    """What a function gave as a number; as text, cut short, where it is no finite one."""
    found = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    if isinstance(found, int | float) and abs(found) <= sys.float_info.max:
        return float(found)
    return short(value)
