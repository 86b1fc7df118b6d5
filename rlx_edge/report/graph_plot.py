"""A graph as a picture: a box for each computed tensor, from top to bottom, drawn with matplotlib (an extra)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlx_edge.device.device_text import printable
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Input, Leaf
from rlx_edge.report.plots import INK, label, save_figure
from rlx_edge.report.tables import parameters_of

MOST_ROWS = 600
"""Rows of boxes that a picture has at most: image files have no room for many more."""
WIDTH, HEIGHT, GAP = 3.4, 0.62, 0.3
"""Of a box, and between two, in inches."""
MOST_LETTERS = 42
COLORS = {"input": "#e2efda", "weights": "#9dc3e6", "other": "#eef3f8", "output": "#c55a11"}

Place = tuple[int, int]
"""The row of a box, from the top, and its lane, from the left."""


def plot_graph(graph: Graph, path: Path | str) -> None:
    """Draw inputs and computed tensors as .svg, .png or .pdf, with their ops, types and parameters; outputs are framed.

    Raises EdgeError for a graph of more rows than fit a picture.
    """
    from matplotlib.figure import Figure

    path, places = Path(path), _places(graph)
    rows, lanes = (1 + max(place[i] for place in places.values()) for i in (0, 1))
    if rows > MOST_ROWS:
        raise EdgeError(f"{path}: {rows:,} rows of boxes do not fit a picture, which has {MOST_ROWS}: see --text")
    size = (lanes * (WIDTH + GAP) + 2 * GAP, rows * (HEIGHT + GAP) + 2 * GAP)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-2 * GAP, size[0] - 2 * GAP)
    axes.set_ylim(size[1] - 2 * GAP, -2 * GAP)
    axes.axis("off")
    taken = set(places.values())
    for number, place in places.items():
        for operand in dict.fromkeys(graph.nodes[number].inputs):
            if operand in places:
                _draw_edge(axes, places[operand], place, taken)
    for number, place in places.items():
        _draw_box(axes, graph, graph.nodes[number], place)
    save_figure(figure, path)


def _places(graph: Graph) -> dict[int, Place]:
    """A row below every operand; in the lane of an operand where that is free, else in the next free one."""
    found: dict[int, Place] = {}
    taken: set[Place] = set()
    for node in graph.nodes:
        if isinstance(node.op, Leaf) and not isinstance(node.op, Input) and node.id not in graph.outputs:
            continue
        above = [found[operand] for operand in node.inputs if operand in found]
        row = 1 + max((place[0] for place in above), default=-1)
        lane = min((place[1] for place in above), default=0)
        while (row, lane) in taken:
            lane += 1
        found[node.id] = (row, lane)
        taken.add((row, lane))
    return found


def _corner(place: Place) -> tuple[float, float]:
    return place[1] * (WIDTH + GAP), place[0] * (HEIGHT + GAP)


def _draw_edge(axes: Any, start: Place, end: Place, taken: Collection[Place]) -> None:
    """From the bottom of a box to the top of another; past the boxes between, where there are some, beside them."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Line

    (x0, y0), (x1, y1) = _corner(start), _corner(end)
    points = [(x0 + WIDTH / 2, y0 + HEIGHT), (x1 + WIDTH / 2, y1)]
    if any((row, start[1]) in taken for row in range(start[0] + 1, end[0])):
        side = x0 + WIDTH + GAP / 2
        points[:1] = [(x0 + WIDTH, y0 + HEIGHT / 2), (side, y0 + HEIGHT / 2), (side, y1 - GAP / 2)]
    elif end[0] - start[0] > 1:
        points.insert(1, (points[0][0], y1 - GAP))
    style: dict[str, Any] = {
        "arrowstyle": "-|>",
        "mutation_scale": 9,
        "color": INK,
        "linewidth": 0.9,
        "joinstyle": "round",
    }
    axes.add_patch(FancyArrowPatch(path=Line(points), **style, fill=False))


def _draw_box(axes: Any, graph: Graph, node: Node, place: Place) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = _corner(place)
    parameters = parameters_of(graph, node.inputs)
    kind = "input" if isinstance(node.op, Leaf) else "weights" if parameters else "other"
    output = node.id in graph.outputs
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            WIDTH,
            HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=COLORS[kind],
            edgecolor=COLORS["output"] if output else INK,
            linewidth=2.0 if output else 0.7,
        )
    )
    detail = _cut(f"{replace(node.type, quant=None)}" + (f", {parameters:,} parameters" if parameters else ""))
    lines = ((label(node.name), 8.5, "bold"), (_cut(node.op.display()), 7.5, "normal"), (detail, 7.0, "normal"))
    for index, (text, size, weight) in enumerate(lines):
        height = y + HEIGHT * (0.23 + 0.28 * index)
        axes.text(x + WIDTH / 2, height, text, fontsize=size, weight=weight, color=INK, ha="center", va="center")


def _cut(text: str) -> str:
    """A line that fits a box; nothing in it is markup, or steers anything."""
    cut = text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
    return printable(cut).replace("$", r"\$")
