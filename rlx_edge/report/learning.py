"""The learning curve of a training, drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlx_edge.qat.best import best_of, least_loss_of
from rlx_edge.qat.settings import Epoch
from rlx_edge.report.plots import ACCUMULATED, ALONE, GAIN, INK, check_plot, save_figure
from rlx_edge.report.tables import counted

LEGEND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.8, "fontsize": 8}


def plot_learning(history: Sequence[Epoch], held_out: int, path: Path | str) -> None:
    """Draw a training by epoch, as .svg, .png or .pdf: the losses; the output's SQNR; agreement and top-1.

    The start is epoch 0; what it had is drawn through as a dashed line, and the epoch that was kept as an upright one.
    `held_out` samples were measured. Raises what `check_plot` raises.
    """
    path = Path(path)
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    epochs, start, best = [epoch.epoch for epoch in history], history[0], best_of(history)
    shares = {"agreement": [e.agreement for e in history], "top-1": [e.top1 for e in history]}
    shares = {name: values for name, values in shares.items() if None not in values}
    figure = Figure(figsize=(7, 7 if shares else 5), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(3 if shares else 2, 1, sharex=True, height_ratios=(2, 1, 1) if shares else (2, 1))
    _draw_losses(rows[0], history)
    _draw(rows[1], epochs, [epoch.sqnr_db for epoch in history], ACCUMULATED, "output SQNR")
    rows[1].set_ylabel("output SQNR, dB")
    for (name, values), color in zip(shares.items(), (ACCUMULATED, ALONE), strict=False):
        _draw(rows[2], epochs, [math.nan if value is None else 100 * value for value in values], color, name)
        rows[2].set_ylabel("held-out samples, %")
        rows[2].set_ylim(top=101)
        rows[2].legend(**LEGEND)
    for axes in rows:
        axes.axvline(best.epoch, color=GAIN, linewidth=1.2)
        axes.grid(linewidth=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1].set_xlabel("epoch (0: the start, as quantized; dashed: what it had)")
    rows[-1].xaxis.get_major_locator().set_params(integer=True)
    kept = "the start was kept" if best is start else f"epoch {best.epoch}, which was kept, has {best.sqnr_db:.1f} dB"
    title = f"training with rounding, measured on {counted(held_out, 'held-out sample')}\n"
    figure.suptitle(f"{title}{start.sqnr_db:.1f} dB at the start; {kept}", fontsize=10, color=INK)
    save_figure(figure, path)


def _draw_losses(axes: Any, history: Sequence[Epoch]) -> None:
    epochs, best, least = [epoch.epoch for epoch in history], best_of(history), least_loss_of(history)
    axes.plot(epochs, [epoch.loss for epoch in history], ".-", color=ALONE, label="samples trained on, meanwhile")
    _draw(axes, epochs, [epoch.held_out_loss for epoch in history], ACCUMULATED, "samples held out")
    axes.plot([best.epoch], [best.held_out_loss], "o", color=GAIN, label=f"kept: epoch {best.epoch}")
    if least is not best:
        label = f"not kept: epoch {least.epoch} is worse than the start in what was asked for"
        axes.plot([least.epoch], [least.held_out_loss], "x", color=GAIN, label=label)
    axes.set_yscale("log")
    for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatter(lambda value, _: f"{value:.3g}")
    axes.tick_params(axis="y", which="both", labelsize=8)
    axes.set_ylabel("loss (log scale)")
    axes.legend(**LEGEND)


def _draw(axes: Any, epochs: Sequence[int], values: Sequence[float], color: str, label: str) -> None:
    """A curve, and through the whole figure what it began with. Of equal ones, the first shows beside the second."""
    axes.plot(epochs, values, ".-", color=color, label=label, linewidth=1 if color == ALONE else 2)
    axes.axhline(values[0], color=color, linewidth=0.8, linestyle="--")
