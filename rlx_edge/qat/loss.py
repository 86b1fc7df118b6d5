"""What training minimizes, and how a module is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rlx_edge.qat.module import FloatNetwork, QatModule, judged

HIDDEN = 0.5
"""The weight of the layers' own errors beside that of the outputs."""

SMALLEST_VARIANCE = 1e-6
"""Added to variances: a tensor that does not vary cannot be followed more closely."""


@dataclass(frozen=True)
class Found:
    """The losses of a batch, and what measures are made of: the first judged output of both models, flat."""

    loss: Tensor
    outputs: Tensor
    wanted: Tensor


class Loss:
    """The squared error of every judged output and of every layer's result before bounds and rounding, each as a share
    of its variance in the float model; and the cross-entropy with labels, where these are given."""

    def __init__(self, module: QatModule, teacher: FloatNetwork, distill: bool) -> None:
        self.module, self.teacher, self.distill = module, teacher, distill
        self.wanted = judged(module.graph)
        self.variances: dict[str, Tensor] = {}

    def measure_variances(self, inputs: Sequence[Tensor]) -> None:
        """Take the variances from the float model's results on these samples."""
        outputs, taps = self._run(self.teacher, inputs)
        named = {str(i): value for i, value in enumerate(outputs)} | taps
        self.variances = {name: value.var() + SMALLEST_VARIANCE for name, value in named.items()}

    def __call__(self, inputs: Sequence[Tensor], labels: Tensor | None) -> Found:
        """On a batch. Gradients reach the module's parameters."""
        exact, exact_taps = self._run(self.teacher, inputs)
        made: dict[str, Tensor] = {}
        outputs = self.module.run(inputs, self.wanted, made)
        first, wanted = outputs[0].flatten(1), exact[0].flatten(1)
        loss = first.new_zeros(())
        if self.distill:
            for i, (found, float_output) in enumerate(zip(outputs, exact, strict=True)):
                loss = loss + self._error(str(i), found, float_output) / len(outputs)
            for name, value in made.items():
                loss = loss + HIDDEN * self._error(name, value, exact_taps[name]) / len(made)
        if labels is not None:
            loss = loss + F.cross_entropy(first, labels)
        return Found(loss, first.detach(), wanted)

    def _run(self, teacher: FloatNetwork, inputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        taps: dict[str, Tensor] = {}
        with torch.no_grad():
            return teacher.run(inputs, self.wanted, taps), taps

    def _error(self, name: str, found: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(found, wanted) / self.variances[name]
