"""Train a module by the loss of `loss.py`. The same settings, data and threads give the same bits, also resumed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlx_edge.data import Data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.ir import Array, Graph
from rlx_edge.qat.best import best_of, least_loss_of
from rlx_edge.qat.loss import Loss
from rlx_edge.qat.module import FloatNetwork, QatModule
from rlx_edge.qat.settings import Epoch, Settings

MEASURED = 256
"""Samples at once where nothing is trained, and those that variances are taken from."""

DIVERGED = 1e3
"""Times the loss at the start: from here on training is lost."""

BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class State:
    """All that training goes on from: the module's and the optimizer's, and the best module so far."""

    module: dict[str, Any]
    optimizer: dict[str, Any]
    best: dict[str, Any]
    history: tuple[Epoch, ...]


class Training:
    """Epochs of a module on data; `state` and `restore` carry it over to another process."""

    def __init__(self, module: QatModule, data: Data, settings: Settings, device: str = "cpu") -> None:
        self.settings, self.data, self.device = settings, data, torch.device(device)
        self.labels = class_labels(data, module.graph) if settings.labels else None
        self.kept, self.trained_on = split(len(data), settings)
        self.epochs = settings.epochs_for(len(self.trained_on))
        classes = module.graph.output_nodes[0].type.elements
        self.scores_classes = classes > 1 and classes not in [node.type.elements for node in module.graph.inputs]
        self.module, teacher = module.to(self.device), FloatNetwork(module.assignment).to(self.device)
        self.loss = Loss(self.module, teacher, settings.distill)
        self.loss.measure_variances(self._inputs(self.trained_on[:MEASURED]))
        self.optimizer = torch.optim.Adam(list(module.parameter_groups(settings.learning_rate)), betas=BETAS)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.history: list[Epoch] = [self._measured(0, math.nan)]
        self.best = copy.deepcopy(module.state_dict())

    @property
    def best_epoch(self) -> Epoch:
        """The one that would be kept if training ended now: see `best.py`."""
        return best_of(self.history)

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or the last ones were no better and had no smaller loss."""
        last = self.history[-1].epoch
        gained = max(self.best_epoch.epoch, least_loss_of(self.history).epoch)
        return last >= self.epochs or last - gained >= self.settings.patience_of(self.epochs)

    def run(self, after_epoch: Callable[[Training], None] | None = None) -> None:
        """Train to the end, and leave the module with the best epoch's parameters. Raises EdgeError on divergence."""
        while not self.done:
            self.epoch()
            if after_epoch is not None:
                after_epoch(self)
        self.module.load_state_dict(self.best)
        self.module.eval()

    def epoch(self) -> None:
        """One pass over the samples that are trained on, in an order that seed and epoch give."""
        number = self.history[-1].epoch + 1
        rng = np.random.default_rng((self.settings.seed, number))
        order = rng.permutation(self.trained_on)
        mix = self.settings.mix_for(len(order))
        batches = list(self._batches(order, self.settings.batch))
        total = 0.0
        for i, rows in enumerate(batches):
            done = (number - 1 + i / len(batches)) / self.epochs
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * done))
            self.optimizer.zero_grad()
            found = self.loss(mixed(self._inputs(rows), mix, rng), self._labels(rows))
            found.loss.backward()
            self.optimizer.step()
            self.module.settle(self.settings.learning_rate)
            total += float(found.loss.detach()) * len(rows)
        self.history.append(self._measured(number, total / len(order)))
        self._check_progress()
        if self.best_epoch.epoch == number:
            self.best = copy.deepcopy(self.module.state_dict())

    def state(self) -> State:
        return State(self.module.state_dict(), self.optimizer.state_dict(), self.best, tuple(self.history))

    def restore(self, state: State) -> None:
        """Go on from there. The module must be the one that the state is of."""
        self.module.load_state_dict(state.module)
        self.optimizer.load_state_dict(state.optimizer)
        self.best, self.history = state.best, list(state.history)

    def _check_progress(self) -> None:
        last, first = self.history[-1], self.history[0]
        if not math.isfinite(last.loss + last.held_out_loss) or last.held_out_loss > DIVERGED * (
            first.held_out_loss + 1e-3
        ):
            raise EdgeError(
                f"training diverged in epoch {last.epoch}: the loss on the samples held out went from "
                f"{first.held_out_loss:.3g} to {last.held_out_loss:.3g}; lower the learning rate, "
                f"{self.settings.learning_rate:g}, to a tenth"
            )

    def _measured(self, number: int, loss: float) -> Epoch:
        total, same, right, signal, noise = 0.0, 0, 0, 0.0, 0.0
        for rows in self._batches(self.kept, MEASURED):
            labels = self._labels(rows)
            with torch.no_grad():
                found = self.loss(self._inputs(rows), labels)
            top = found.outputs.argmax(1)
            total += float(found.loss) * len(rows)
            same += int((top == found.wanted.argmax(1)).sum())
            right += 0 if labels is None else int((top == labels).sum())
            signal += float((found.wanted.double() ** 2).sum())
            noise += float(((found.wanted - found.outputs).double() ** 2).sum())
        count = len(self.kept)
        agreement = same / count if self.scores_classes else None
        top1 = None if self.labels is None else right / count
        return Epoch(number, loss, total / count, decibels(signal, noise), agreement, top1)

    def _batches(self, rows: Array, most: int) -> Iterator[Array]:
        for start in range(0, len(rows), most):
            yield rows[start : start + most]

    def _inputs(self, rows: Array) -> Sequence[Tensor]:
        arrays = (np.ascontiguousarray(self.data.inputs[node.name][rows]) for node in self.module.graph.inputs)
        return [torch.from_numpy(values).to(self.device) for values in arrays]

    def _labels(self, rows: Array) -> Tensor | None:
        return None if self.labels is None else torch.from_numpy(self.labels[rows]).to(self.device)


def decibels(signal: float, noise: float) -> float:
    """Their ratio in dB: infinite without noise, and minus infinity where there is no signal or endless noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 and math.isfinite(noise) else -math.inf


def mixed(inputs: Sequence[Tensor], share: float, rng: np.random.Generator) -> Sequence[Tensor]:
    """A batch with about this share of samples replaced by an average with another one, in random proportions."""
    if share == 0.0:
        return inputs
    count = len(inputs[0])
    others = torch.from_numpy(rng.permutation(count)).to(inputs[0].device)
    own = np.where(rng.random(count) < share, rng.random(count), 1.0).astype(np.float32)
    weights = torch.from_numpy(own).to(inputs[0].device)
    return [torch.lerp(x[others], x, weights.reshape(-1, *[1] * (x.ndim - 1))) for x in inputs]


def split(count: int, settings: Settings) -> tuple[Array, Array]:
    """Which samples are held out and which are trained on, both in rising order, drawn by the seed.

    Raises DataError where there are not two of them.
    """
    if count < 2:
        raise DataError(f"{count} samples: one to train on and one to hold out are the least")
    held = settings.held_out_for(count)
    order = np.random.default_rng(settings.seed).permutation(count)
    return np.sort(order[:held]), np.sort(order[held:])


def class_labels(data: Data, graph: Graph) -> Array:
    """One class number a sample, int64. Raises DataError for missing labels and for what are no class numbers."""
    classes = graph.output_nodes[0].type.elements
    labels = data.labels
    if labels is None:
        raise DataError("the data file has no labels to train by: name their array with --labels, or leave that out")
    if labels.dtype.kind not in "iu" or labels.size != len(labels):
        raise DataError(f"training needs one class number a sample; the labels are {labels.dtype}{list(labels.shape)}")
    flat = labels.reshape(-1).astype(np.int64)
    if flat.min() < 0 or flat.max() >= classes:
        raise DataError(
            f"labels from {flat.min()} to {flat.max()}, but the model has {classes} classes, 0 to {classes - 1}"
        )
    return flat
