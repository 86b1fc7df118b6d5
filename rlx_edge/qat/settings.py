"""The choices of one training, and what happened in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx_edge.errors import EdgeError

STEPS = 1500
"""Steps of the optimizer that a training makes unless told how many epochs: beyond, little is gained."""


FEW = 1000
MIX = 0.5


@dataclass(frozen=True)
class Settings:
    """`epochs` None: as many as make STEPS steps. `learning_rate` is in quantization steps of a weight per step of the
    optimizer, at the start; it falls to 0 along a cosine. `held_out`: the share of samples that is not trained on, by
    which the best epoch is chosen. `patience`: epochs without a better one after which training ends, None for two
    thirds of all, as the loss is noisy until the rate is low. `distill`: follow the float model; `labels`: minimize the
    cross-entropy; both: the sum of the two losses. `mix`: the share of samples that become random averages of two, for
    which the float model has an answer, too; None: MIX below FEW samples, else 0. With labels nothing is mixed.

    Raises EdgeError for a choice that makes no sense.
    """

    epochs: int | None = None
    batch: int = 32
    learning_rate: float = 0.01
    held_out: float = 0.1
    patience: int | None = None
    seed: int = 0
    distill: bool = True
    labels: bool = False
    mix: float | None = None

    def __post_init__(self) -> None:
        problems = (
            (self.epochs is not None and self.epochs < 1, f"{self.epochs} epochs: 1 or more are needed"),
            (self.batch < 1, f"a batch of {self.batch}: 1 or more samples are needed"),
            (
                not (math.isfinite(self.learning_rate) and self.learning_rate > 0),
                f"a learning rate of {self.learning_rate:g}: a positive number is needed",
            ),
            (not 0 < self.held_out < 1, f"a held-out share of {self.held_out:g}: a number between 0 and 1 is needed"),
            (self.patience is not None and self.patience < 1, f"a patience of {self.patience}: 1 or more is needed"),
            (self.mix is not None and not 0 <= self.mix <= 1, f"a mixed share of {self.mix}: 0 to 1 are possible"),
            (self.seed < 0, f"a seed of {self.seed}: 0 or more is needed"),
            (not (self.distill or self.labels), "nothing to train by: distill, or give labels"),
        )
        for wrong, said in problems:
            if wrong:
                raise EdgeError(said)

    def held_out_for(self, samples: int) -> int:
        """How many of so many samples, two or more, are held out."""
        return min(max(1, round(samples * self.held_out)), samples - 1)

    def epochs_for(self, samples: int) -> int:
        """How many epochs training on so many samples has."""
        return self.epochs or math.ceil(STEPS / math.ceil(samples / self.batch))

    def mix_for(self, samples: int) -> float:
        """The share of samples that is mixed where so many are trained on."""
        if self.labels:
            return 0.0
        return self.mix if self.mix is not None else MIX if samples < FEW else 0.0

    def patience_of(self, epochs: int) -> int:
        return self.patience or max(3, math.ceil(2 * epochs / 3))


@dataclass(frozen=True)
class Epoch:
    """What an epoch gave, on the samples held out: the loss, how much of the float model's outputs is kept
    (SQNR in dB before a softmax, and share of samples with the same top-1), and top-1 where it is trained by labels.

    `loss` is the mean over the samples trained on while they were; NaN before the first epoch. `agreement` is None
    where the first output holds no scores of classes: a single number, or as many as an input has (an autoencoder's).
    """

    epoch: int
    loss: float
    held_out_loss: float
    sqnr_db: float
    agreement: float | None
    top1: float | None
