"""A training as a table, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rlx_edge.qat.settings import Epoch
from rlx_edge.quant.quality import Quality
from rlx_edge.report.tables import quality_text, table

ROWS = 12
"""Epochs that the table shows at most: evenly spread ones, and the best."""


def show(history: Sequence[Epoch], best: int, qualities: Sequence[Quality], out: Console) -> None:
    """The learning curve, and the int8 models before and after, both on the samples held out."""
    out.print(epochs_table(history, best))
    for name, found in zip(("before", "after"), qualities, strict=True):
        out.print(f"{name}: {quality_text(found)}", markup=False, soft_wrap=True)


def epochs_table(history: Sequence[Epoch], best: int) -> Table:
    """Loss and quality by epoch."""
    last = history[-1].epoch
    shown = {round(i * last / (ROWS - 1)) for i in range(ROWS)} | {best}
    top1 = history[0].top1 is not None
    columns = ("epoch", "loss", "held out", "dB", "agreement", *(("top-1",) if top1 else ()), "")
    rows = [
        (
            epoch.epoch,
            "" if math.isnan(epoch.loss) else f"{epoch.loss:.4g}",
            f"{epoch.held_out_loss:.4g}",
            f"{epoch.sqnr_db:.1f}",
            f"{epoch.agreement:.1%}",
            *((f"{epoch.top1:.1%}",) if epoch.top1 is not None else ()),
            "kept" if epoch.epoch == best else "",
        )
        for epoch in history
        if epoch.epoch in shown
    ]
    return table("training: each epoch on the samples held out", columns, rows)
