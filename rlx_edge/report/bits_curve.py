"""The curve of `quantize --weights auto`: a table, JSON, and a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from rlx_edge.mixed_precision import Limits, Mixed, Point
from rlx_edge.report.explain_tables import decibels
from rlx_edge.report.plots import INK, check_plot, save_figure
from rlx_edge.report.tables import short, table

CURVE, MEASURED, CHOSEN = "#1f5fa8", "#9dc3e6", "#c55a11"


def curve_table(mixed: Mixed, limits: Limits) -> Table:
    """A row a point, by rising flash; what was measured as a whole beside what the sums over layers say."""
    rows = []
    for index, point in enumerate(mixed.points):
        found = point.measured
        rows.append(
            (
                "chosen" if index == mixed.chosen else "",
                f"{point.flash if found is None else found.flash:,}",
                f"{point.instructions if found is None else found.instructions:,}",
                decibels(point.sqnr_db),
                "" if found is None else decibels(found.sqnr_db),
                "" if found is None or found.loss is None else f"{found.loss:.2f}",
                summary(point),
            )
        )
    columns = ("", "flash", "instructions", "dB, summed", "dB", "points lost", "layers with 8 / 4 / 2 bits")
    return table(f"bits of weights: predicted for {limits.target}, start-up and link left out", columns, rows)


def widths_table(mixed: Mixed) -> Table:
    """A row a layer: the output's SQNR and the layer's flash, with each width of this layer alone."""
    widths = sorted({layer.bits for layer in mixed.layers}, reverse=True)
    found = {(layer.name, layer.bits): layer for layer in mixed.layers}
    chosen = mixed.points[mixed.chosen].bits
    rows = [
        (
            short(name),
            *(decibels(found[name, bits].sqnr_db) for bits in widths),
            *(f"{found[name, bits].flash:,}" for bits in widths),
            str(chosen[name]),
        )
        for name in dict.fromkeys(layer.name for layer in mixed.layers)
    ]
    columns = ("layer", *(f"dB, {bits}" for bits in widths), *(f"bytes, {bits}" for bits in widths), "chosen")
    return table("output SQNR and flash with fewer bits in one layer alone", columns, rows)


def summary(point: Point) -> str:
    """How many layers have how many bits."""
    counts = Counter(point.bits.values())
    return " / ".join(str(counts[bits]) for bits in (8, 4, 2))


def curve_facts(mixed: Mixed, limits: Limits) -> dict[str, Any]:
    """For --json."""
    layers = [
        {
            "name": layer.name,
            "bits": layer.bits,
            "flash_bytes": layer.flash,
            "instructions": layer.instructions,
            "output_sqnr_db": None if math.isinf(layer.sqnr_db) else layer.sqnr_db,
        }
        for layer in mixed.layers
    ]
    points = [_facts(point) for point in mixed.points]
    return {"target": limits.target, "layers": layers, "chosen": mixed.chosen, "points": points}


def _facts(point: Point) -> Mapping[str, Any]:
    found = point.measured
    facts: dict[str, Any] = {
        "bits": dict(point.bits),
        "flash_bytes": point.flash,
        "instructions": point.instructions,
        "summed_sqnr_db": None if math.isinf(point.sqnr_db) else point.sqnr_db,
    }
    if found is not None:
        facts["measured"] = {
            "flash_bytes": found.flash,
            "instructions": found.instructions,
            "output_sqnr_db": None if math.isinf(found.sqnr_db) else found.sqnr_db,
            "points_lost": found.loss,
            "points_of": found.loss_of,
        }
    return facts


def plot_curve(mixed: Mixed, limits: Limits, path: Path) -> None:
    """Draw SQNR against flash, as .svg, .png or .pdf. Raises what `check_plot` raises."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(
        [p.flash / 1000 for p in mixed.points],
        [p.sqnr_db for p in mixed.points],
        color=CURVE,
        marker=".",
        label="sums over layers",
    )
    found = [p.measured for p in mixed.points if p.measured is not None]
    axes.scatter(
        [m.flash / 1000 for m in found],
        [m.sqnr_db for m in found],
        color=MEASURED,
        zorder=3,
        label="measured as a whole",
    )
    best = mixed.points[mixed.chosen].measured
    assert best is not None
    axes.scatter([best.flash / 1000], [best.sqnr_db], color=CHOSEN, zorder=4, label="chosen")
    if limits.flash_budget is not None:
        axes.axvline(limits.flash_budget / 1000, color=INK, linewidth=0.8, linestyle="--", label="flash budget")
    axes.set_xlabel(f"flash predicted for {limits.target}, thousands of bytes")
    axes.set_ylabel("output SQNR, dB")
    axes.grid(linewidth=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
