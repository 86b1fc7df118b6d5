"""A training while it runs: a line on standard error for some of the epochs, each as soon as it is over."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rlx_edge.qat.best import worse
from rlx_edge.qat.settings import Epoch
from rlx_edge.report.console import note

if TYPE_CHECKING:
    from rlx_edge.qat.train import Training

LINES = 20
"""Lines that a short training prints at most, evenly spread over its epochs."""

SILENCE_S = 5.0
"""A long one prints a line after the first epoch that ends so long after the last line."""


class Lines:
    """Called before the first epoch and after each one. `begun`: it was, so a checkpoint of this training exists."""

    def __init__(self) -> None:
        self.begun = False
        self._first = 0
        self._started = self._ended = self._said = 0.0

    def __call__(self, training: Training) -> None:
        last, epochs, now = training.history[-1], training.epochs, time.monotonic()
        if not self.begun:
            self.begun, self._first = True, last.epoch
            self._started = self._said = now
            note(f"epoch {last.epoch} of {epochs}, the {'start' if last.epoch == 0 else 'last saved'}: {figures(last)}")
        elif last.epoch % max(1, epochs // LINES) == 0 or last.epoch == epochs or now - self._said >= SILENCE_S:
            self._said = now
            each = (now - self._started) / (last.epoch - self._first)
            note(
                f"epoch {last.epoch} of {epochs}: loss {last.loss:.4g}, {figures(last)}{_kept(training)}; "
                f"{now - self._ended:.1f} s, at most {duration(each * (epochs - last.epoch))} left"
            )
        self._ended = now


def _kept(training: Training) -> str:
    last, best, start = training.history[-1], training.best_epoch, training.history[0]
    if last is best:
        return " (best)"
    why = "worse than the start; " if worse(last, start) else ""
    return f" ({why}best: {'the start' if best is start else f'epoch {best.epoch}'})"


def figures(epoch: Epoch) -> str:
    """On the samples held out."""
    shares = (("agreement", epoch.agreement), ("top-1", epoch.top1))
    named = [f"{name} {share:.1%}" for name, share in shares if share is not None]
    return ", ".join((f"held out {epoch.held_out_loss:.4g}", f"{epoch.sqnr_db:.1f} dB", *named))


def duration(seconds: float) -> str:
    """As `8 s`, `3:05 min` or `1:05 h`."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"
