"""Figures, drawn with matplotlib: an extra, as nothing else needs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlx_edge.cgen.memory import placed
from rlx_edge.cgen.plan import Plan
from rlx_edge.device.device_text import printable
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.files import check_place, replacing
from rlx_edge.ir.graph import brief
from rlx_edge.quant.explain import Explanation

SUFFIXES = (".svg", ".png", ".pdf")
EXACT_DB = 80.0
"""Where a layer without any error is drawn."""

ARENA = {"tensor": "#1f5fa8", "rows of a tensor": "#9dc3e6", "scratch memory": "#c55a11"}
INK, ACCUMULATED, ALONE, GAIN = "#333333", "#1f5fa8", "#9dc3e6", "#c55a11"


def check_plot(path: Path) -> None:
    """What would fail at the end, checked before long work.

    Raises ToolError where matplotlib is not installed, and EdgeError for another suffix or a folder that is not there.
    """
    if path.suffix not in SUFFIXES:
        raise EdgeError(f"{path}: figures are written as {', '.join(SUFFIXES)}; give it such an ending")
    check_place(path)
    if find_spec("matplotlib") is None:
        raise ToolError(f"{path}: figures need matplotlib: pip install 'rlx-edge[plots]'")


def plot_quality(explanation: Explanation, path: Path | str) -> None:
    """Draw each layer's SQNR, accumulated and alone, as .svg, .png or .pdf; beside the gain if it stays float,
    where that was measured.

    Raises what `check_plot` raises, and EdgeError for a model without layers.
    """
    path = Path(path)
    check_plot(path)
    if not explanation.layers:
        raise EdgeError(f"{path}: the model has no layers to draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layers = explanation.layers
    gains = {s.name: s.gain_db for s in explanation.sensitivity}
    figure = Figure(figsize=(10, 1.6 + 0.28 * len(layers)), layout="constrained")
    FigureCanvasAgg(figure)
    shown = 2 if explanation.sensitivity else 1
    left, *others = figure.subplots(1, shown, sharey=True, squeeze=False, width_ratios=(2, 1)[:shown])[0]
    places = range(len(layers))
    _bars(
        left, [(p + 0.2, _finite(x.sqnr_db)) for p, x in zip(places, layers, strict=True)], ACCUMULATED, "accumulated"
    )
    _bars(left, [(p - 0.2, _finite(x.isolated_db)) for p, x in zip(places, layers, strict=True)], ALONE, "alone")
    left.set_yticks(list(places), [label(x.name) for x in layers], fontsize=7, color=INK)
    left.invert_yaxis()
    left.set_xlabel("SQNR against float, dB")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / len(layers)), ncols=2, frameon=False, fontsize=8)
    for right in others:
        _bars(right, [(p, gains.get(x.name, 0.0)) for p, x in zip(places, layers, strict=True)], GAIN, "", height=0.6)
        right.set_xlabel(f"output SQNR if float, dB more\n({explanation.sensitivity_samples} samples)")
        right.axvline(0, color=INK, linewidth=0.8)
    for axes in (left, *others):
        axes.grid(axis="x", linewidth=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"int8 beside float over {explanation.samples} samples", fontsize=10, color=INK)
    save_figure(figure, path)


def plot_arena(plan: Plan, path: Path | str) -> None:
    """Draw what lies where in the arena while each step runs, as .svg, .png or .pdf.

    Memory of a step that two buffers share (an output that overwrites its input) is drawn darker. Raises what
    `check_plot` raises, and EdgeError for a model without steps.
    """
    path = Path(path)
    check_plot(path)
    if not plan.steps:
        raise EdgeError(f"{path}: the model has no steps to draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    figure = Figure(figsize=(max(6, 1.5 + 0.45 * len(plan.steps)), 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for at, buffer in placed(plan.graph, plan.steps, plan.offsets, plan.scratch_offsets):
        kind = "scratch memory" if not buffer.nodes else "rows of a tensor" if buffer.line else "tensor"
        first, end = max(buffer.first, 0), min(buffer.last + 1, len(plan.steps))
        box = Rectangle((first, at), max(end - first, 0.1), buffer.bytes, facecolor=ARENA[kind], edgecolor=INK)
        box.set(linewidth=0.4, alpha=0.75)
        axes.add_patch(box)
    axes.set_xlim(0, len(plan.steps))
    axes.set_ylim(0, max(plan.arena_bytes, 1))
    names = [label(plan.graph.nodes[step.node].name) for step in plan.steps]
    axes.set_xticks([i + 0.5 for i in range(len(names))], names, rotation=90, fontsize=7, color=INK)
    axes.set_ylabel("bytes from the arena's start")
    axes.legend(handles=[Patch(color=color, label=kind) for kind, color in ARENA.items()], frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"arena, step by step: {plan.arena_bytes:,} bytes (darker: memory that two share)", fontsize=10, color=INK
    )
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """The same file for the same figure: without the date and random names."""
    from matplotlib import rc_context

    with replacing(path) as file, rc_context({"svg.hashsalt": "rlx-edge"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)


def _bars(axes: Any, points: Sequence[tuple[float, float]], color: str, label: str, height: float = 0.4) -> None:
    axes.barh([p for p, _ in points], [v for _, v in points], height=height, color=color, label=label or None)


def _finite(db: float) -> float:
    """A length that can be drawn."""
    if math.isnan(db):
        return 0.0
    return min(max(db, 0.0), EXACT_DB)


def label(name: str) -> str:
    """A layer's name, as tables have it."""
    return printable(brief(name)).replace("$", r"\$")
