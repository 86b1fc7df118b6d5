"""A training as a table, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rlx_edge.qat.best import asked_for, best_of, least_loss_of, worse
from rlx_edge.qat.settings import Epoch
from rlx_edge.quant.quality import Quality
from rlx_edge.report.tables import counted, table

ROWS = 12
"""Epochs that the table shows at most: evenly spread ones, and the best."""


def show(history: Sequence[Epoch], qualities: Sequence[Quality], out: Console) -> None:
    """The learning curve, and the int8 models before and after, both on the samples held out."""
    out.print(epochs_table(history, best_of(history).epoch))
    for name, found in zip(("before", "after"), qualities, strict=True):
        out.print(f"{name}: {quality_text(found)}", markup=False, soft_wrap=True)


def quality_text(quality: Quality) -> str:
    """With top-1 wherever the data have labels, whether these were trained by or not."""
    named = [f"output SQNR {quality.output_sqnr_db:.1f} dB"]
    if quality.agreement is not None:
        named.append(f"agreement {quality.agreement:.1%}")
    if quality.top1 is not None:
        named.append(f"top-1 {quality.top1[1]:.1%} (float {quality.top1[0]:.1%})")
    return f"{', '.join(named)} over {counted(quality.samples, 'held-out sample')}"


def verdict(history: Sequence[Epoch]) -> tuple[str, ...]:
    """What a person should know of which epoch was kept; nothing where it is the one with the least loss."""
    start, best, least = history[0], best_of(history), least_loss_of(history)
    found = []
    if least is not best:
        lost, then = worse(least, start), dict(asked_for(start))
        figures = [f"{name} {_amount(name, now)} after {_amount(name, then[name])}" for name, now in asked_for(least)]
        shown = ", ".join(text for text in figures if text.startswith(tuple(lost)))
        found.append(f"epoch {least.epoch} has the least loss, but was not kept: it is worse than the start ({shown})")
    if best is start:
        found.append("no epoch was better than the start on the samples held out: the result is as `quantize` makes it")
    return tuple(found)


def _amount(name: str, value: float) -> str:
    return f"{value:.2f} dB" if "SQNR" in name else f"{value:.1%}"


def epochs_table(history: Sequence[Epoch], best: int) -> Table:
    """Loss and quality by epoch."""
    last = history[-1].epoch
    shown = {round(i * last / (ROWS - 1)) for i in range(ROWS)} | {best}
    shares = {"agreement": history[0].agreement, "top-1": history[0].top1}
    columns = ("epoch", "loss", "held out", "SQNR, dB", *(name for name, share in shares.items() if share is not None))
    rows = [
        (
            epoch.epoch,
            "" if math.isnan(epoch.loss) else f"{epoch.loss:.4g}",
            f"{epoch.held_out_loss:.4g}",
            f"{epoch.sqnr_db:.1f}",
            *(f"{share:.1%}" for share in (epoch.agreement, epoch.top1) if share is not None),
            ", ".join(word for word, at in (("start", 0), ("kept", best)) if epoch.epoch == at),
        )
        for epoch in history
        if epoch.epoch in shown
    ]
    return table("training: each epoch on the samples held out", (*columns, ""), rows)
