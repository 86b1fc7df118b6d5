"""The learning curve of a training, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlx_edge.qat.settings import Epoch
from rlx_edge.report.plots import ACCUMULATED, ALONE, GAIN, INK, check_plot, save_figure


def plot_learning(history: Sequence[Epoch], best: int, path: Path | str) -> None:
    """Draw the losses of a training by epoch, and the output's SQNR below, as .svg, .png or .pdf.

    Raises what `check_plot` raises.
    """
    path = Path(path)
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    losses, sqnr = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    epochs = [epoch.epoch for epoch in history]
    losses.plot(epochs, [epoch.loss for epoch in history], color=ALONE, label="trained on, meanwhile")
    losses.plot(epochs, [epoch.held_out_loss for epoch in history], color=ACCUMULATED, label="held out")
    losses.set_yscale("log")
    losses.set_ylabel("loss")
    losses.legend(frameon=False, fontsize=8)
    sqnr.plot(epochs, [epoch.sqnr_db for epoch in history], color=ACCUMULATED)
    sqnr.set_ylabel("output SQNR, dB")
    sqnr.set_xlabel("epoch (0: as quantized)")
    for axes in (losses, sqnr):
        axes.axvline(best, color=GAIN, linewidth=0.8)
        axes.grid(linewidth=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"training with int8 rounding; epoch {best} was kept", fontsize=10, color=INK)
    save_figure(figure, path)
