"""Which epoch of a training is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_edge.qat.settings import Epoch

FEW_HELD_OUT = 100
"""Samples held out that figures mean little below."""

SLACK = {"agreement": 0.02}
"""How much less than at the start is chance. The agreement counts samples, and one of fifty flips without a cause; the
SQNR beside it does not, and may not fall at all."""

ROUNDING = 1e-9
"""0.9 - 0.02 is more than 0.88 in floating point."""


def asked_for(epoch: Epoch) -> Iterator[tuple[str, float]]:
    """What a training is for, by name: top-1 with labels; without, to be like the float model."""
    if epoch.top1 is not None:
        yield "top-1", epoch.top1
        return
    if epoch.agreement is not None:
        yield "agreement", epoch.agreement
    yield "output SQNR", epoch.sqnr_db


def worse(epoch: Epoch, start: Epoch) -> list[str]:
    """The names of what was asked for and is less than at the start, by more than its slack."""
    both = zip(asked_for(epoch), asked_for(start), strict=True)
    return [name for (name, now), (_, then) in both if not now >= then - SLACK.get(name, 0.0) - ROUNDING]


def best_of(history: Sequence[Epoch]) -> Epoch:
    """The epoch with the least loss on the samples held out, among those that are nowhere worse than the start."""
    return min((epoch for epoch in history if not worse(epoch, history[0])), key=lambda epoch: epoch.held_out_loss)


def least_loss_of(history: Sequence[Epoch]) -> Epoch:
    """The epoch with the least loss of all, whether it may be kept or not."""
    return min(history, key=lambda epoch: epoch.held_out_loss)


def few_held_out(samples: int) -> tuple[str, ...]:
    """A warning where so few samples are held out that chance decides; differences: a standard deviation of a top-1
    of 90%, and at least one sample."""
    if samples >= FEW_HELD_OUT:
        return ()
    points = max(30 / samples**0.5, 100 / samples)
    counted = "1 held-out sample" if samples == 1 else f"{samples} held-out samples"
    return (f"{counted}: differences below {points:.0f} points mean little; more data or --held-out bring more",)
