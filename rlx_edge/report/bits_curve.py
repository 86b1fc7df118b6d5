"""What `quantize --weights auto` measured, to decide by: tables, JSON, and a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from rlx_edge.device.device_text import printable
from rlx_edge.ir.graph import brief
from rlx_edge.mixed_precision import Limits, Mixed, Point
from rlx_edge.report.explain_tables import decibels
from rlx_edge.report.plots import INK, check_plot, save_figure
from rlx_edge.report.tables import short, table

FRONT, MEASURED, CHOSEN = "#1f5fa8", "#9dc3e6", "#c55a11"

NAMES_WIDTH = 32
"""Layers with other bits than most are named where that fits; else they have numbers, those in the table of layers."""


def curve_table(mixed: Mixed, limits: Limits) -> Table:
    """A row a point that was measured as a whole, by rising flash."""
    front, samples = mixed.front, mixed.points[mixed.chosen].measured.samples
    rows = [
        (
            "chosen" if index == mixed.chosen else "best" if point in front else "",
            point.measured.flash,
            point.measured.instructions,
            decibels(point.measured.sqnr_db),
            "" if point.measured.loss is None else f"{point.measured.lost} ({point.measured.loss:.2f})",
            mix_text(point),
        )
        for index, point in enumerate(mixed.points)
    ]
    columns = ("", "flash", "instructions", "dB", f"lost of {samples} (points)", "bits of weights")
    title = f"measured as a whole, for {limits.target}; best: no other is as small and more accurate"
    return table(title, columns, rows)


def widths_table(mixed: Mixed) -> Table:
    """A row a layer: the output's SQNR and the layer's flash, with each width of this layer alone."""
    widths = sorted({layer.bits for layer in mixed.layers}, reverse=True)
    found = {(layer.name, layer.bits): layer for layer in mixed.layers}
    rows = [
        (
            short(name),
            number,
            *(decibels(found[name, bits].sqnr_db) for bits in widths),
            *(found[name, bits].flash for bits in widths),
            bits_chosen,
        )
        for number, (name, bits_chosen) in enumerate(mixed.points[mixed.chosen].bits.items(), 1)
    ]
    columns = ("layer", "no.", *(f"dB, {bits}" for bits in widths), *(f"bytes, {bits}" for bits in widths), "chosen")
    return table("output SQNR with fewer bits in one layer alone, and its bytes", columns, rows)


def notes(mixed: Mixed) -> Iterator[str]:
    """What a reader of the tables would ask, a line each."""
    fewer = [(a, b) for a in mixed.layers for b in mixed.layers if a.name == b.name and a.bits < b.bits]
    if any(a.flash > b.flash for a, b in fewer):
        yield (
            "fewer bits take more bytes where the kernel chosen walks lists of the weights that are not 0, which is "
            "faster; generate --optimize size takes packed weights"
        )


def warnings(mixed: Mixed, limits: Limits) -> Iterator[str]:
    """Whether a limit is finer than the data can tell."""
    samples = mixed.points[mixed.chosen].measured.samples
    if limits.max_loss is not None and 0 < limits.max_loss < 100 / samples:
        yield (
            f"--max-loss {limits.max_loss:g} is less than one of the {samples} samples, {100 / samples:.2f} points: "
            "none may be lost"
        )


def about(mixed: Mixed, limits: Limits) -> str:
    """A line that says what was chosen."""
    found = mixed.points[mixed.chosen].measured
    lost = "" if found.loss is None else f", {found.lost} of {found.samples} samples lost"
    return (
        f"chosen by rlx-edge quantize --weights auto: {found.flash:,} bytes on {limits.target}, "
        f"{decibels(found.sqnr_db)} dB{lost}"
    )


def mix_text(point: Point) -> str:
    """Such as `4; 8: stem, head`: the bits of most layers, and which others have which."""
    counts = Counter(point.bits.values())
    most = max(counts, key=lambda bits: (counts[bits], bits))
    others = {bits: [name for name in point.bits if point.bits[name] == bits] for bits in sorted(counts, reverse=True)}
    del others[most]
    named = _joined(most, others, lambda names: ", ".join(printable(brief(name)) for name in names))
    if len(named) <= NAMES_WIDTH:
        return named
    numbers = {name: number for number, name in enumerate(point.bits, 1)}
    return _joined(most, others, lambda names: "no. " + ", ".join(ranges([numbers[name] for name in names])))


def _joined(most: int, others: Mapping[int, Sequence[str]], text: Callable[[Sequence[str]], str]) -> str:
    return "; ".join([f"all {most}" if not others else str(most), *(f"{b}: {text(n)}" for b, n in others.items())])


def ranges(numbers: Iterable[int]) -> list[str]:
    """1, 2, 3, 5 as `1-3`, `5`; the numbers rise."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


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
    points = [_facts(point) | {"on_front": point in mixed.front} for point in mixed.points]
    return {"target": limits.target, "layers": layers, "chosen": mixed.chosen, "points": points}


def _facts(point: Point) -> dict[str, Any]:
    found = point.measured
    return {
        "bits": dict(point.bits),
        "summed_sqnr_db": None if math.isinf(point.sqnr_db) else point.sqnr_db,
        "measured": {
            "flash_bytes": found.flash,
            "instructions": found.instructions,
            "output_sqnr_db": None if math.isinf(found.sqnr_db) else found.sqnr_db,
            "points_lost": found.loss,
            "points_of": found.loss_of,
            "samples_lost": found.lost,
            "samples": found.samples,
        },
    }


def plot_curve(mixed: Mixed, limits: Limits, path: Path) -> None:
    """Draw measured SQNR against flash, as .svg, .png or .pdf. Raises what `check_plot` raises."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    best, chosen = mixed.front, mixed.points[mixed.chosen]
    axes.step(*_places(best), where="post", color=FRONT, linewidth=1, label="best measured", zorder=2)
    over = [p for p in mixed.points if limits.max_loss is not None and (p.measured.loss or 0.0) > limits.max_loss]
    axes.scatter(*_places(mixed.points), color=MEASURED, s=18, label="measured", zorder=3)
    axes.scatter(*_places(mixed.reference.values()), color=FRONT, marker="s", s=26, label="the same bits", zorder=4)
    axes.scatter(*_places([chosen]), color=CHOSEN, s=40, label="chosen", zorder=5)
    if over:
        text = f"loses more than {limits.max_loss:g} points"
        axes.scatter(*_places(over), color=INK, marker="x", s=26, linewidth=0.8, label=text, zorder=6)
    for point in {id(p): p for p in (*best, *mixed.reference.values(), chosen)}.values():
        place = (point.measured.flash / 1000, _finite(point.measured.sqnr_db))
        text = mix_text(point).replace("$", r"\$")
        axes.annotate(text, place, (4, -9), textcoords="offset points", fontsize=6.5, color=INK)
    if limits.flash_budget is not None:
        axes.axvline(limits.flash_budget / 1000, color=INK, linewidth=0.8, linestyle="--", label="flash budget")
    axes.set_xlabel(f"flash for {limits.target}, thousands of bytes (start-up and link left out)")
    axes.set_ylabel("output SQNR, dB")
    axes.margins(x=0.15, y=0.1)
    axes.grid(linewidth=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    save_figure(figure, path)


def _places(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    found = [point.measured for point in points]
    return [m.flash / 1000 for m in found], [_finite(m.sqnr_db) for m in found]


def _finite(db: float) -> float:
    return min(db, 150.0)
