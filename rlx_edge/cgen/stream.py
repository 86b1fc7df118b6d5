"""Depth-first stages: layers that follow each other run row by row, so that tensors between them are a few rows each.

A stage makes the rows of its last tensor one after the other; before each, the rows of the layers before it that it
needs and that are not there yet. Every row is made once. A tensor within the stage lives in a ring of rows, as many as
are needed at the same time. The rows that a layer needs are read off its kernel's order (order.py), so that any kernel
that declares one can take part: forks and joins, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlx_edge.cgen import kernels
from rlx_edge.cgen.order import OUTPUT
from rlx_edge.cgen.plan import Call, Line, Step, View, no_work
from rlx_edge.ir import Graph

Rows = tuple[tuple[int, int], ...]
"""For each row of a layer, the rows [first, end) of an operand that it needs."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A call whose rows can be made one by one, the tensor that it makes, and what each row needs.

    rows: of each computed operand, by tensor; None where its rows are not those of the view, so that the operand can
    only come from outside of the stage. firsts: of each computed operand the first byte that each row reads.
    """

    tensor: int
    call: Call
    rows: Mapping[int, Rows | None]
    firsts: Mapping[int, tuple[int, ...]]


def layers_of(graph: Graph, step: Step) -> tuple[Layer, ...] | None:
    """A step's layers: one, or two where a mean over a whole image can be taken row by row. None when its rows cannot
    be made one by one: several images, several calls, or a kernel that does not say what its rows read."""
    if len(step.calls) != 1 or step.lines:
        return None
    (call,) = step.calls
    if call.output.offset or call.rows * call.output.pitch != graph.nodes[step.node].type.bytes:
        return None
    found = [_layer(part, tensor) for part, tensor in parts_of(graph, step.node, call)]
    return None if None in found else tuple(layer for layer in found if layer is not None)


def parts_of(graph: Graph, node: int, call: Call) -> list[tuple[Call, int]]:
    """The calls that do a call's work, and the tensors that they make. A running sum has a number of its own."""
    p = call.params
    whole = call.kernel is kernels.AVG_POOL and (p["k_h"], p["k_w"]) == (p["in_h"], p["in_w"])
    if not whole or p["pad_top"] or p["pad_left"] or call.rows * p["out_w"] > 1 or p["in_h"] == 1:
        return [(call, node)]
    sums = View(len(graph.nodes) + node, 4 * p["channels"])
    adding = replace(
        call, kernel=kernels.POOL_SUM, inputs=(*call.inputs, sums), output=sums, rows=p["in_h"], work=no_work, scratch=0
    )
    return [
        (adding, len(graph.nodes) + node),
        (replace(call, kernel=kernels.POOL_MEAN, inputs=(sums,), work=no_work), node),
    ]


def _layer(call: Call, tensor: int) -> Layer | None:
    order = call.kernel.order
    if order is None:
        return None
    call = call.by_rows or call
    operands = {k: view for k, view in enumerate(call.inputs) if isinstance(view.base, int)}
    rows: dict[int, list[tuple[int, int]]] = {k: [] for k in operands}
    firsts: dict[int, list[int]] = {k: [] for k in operands}
    for y in range(call.rows):
        made = order(replace(call, first_row=y, rows=y + 1))
        written = made.operands == OUTPUT
        pitch = call.output.pitch
        if not written.any() or made.firsts[written].min() < y * pitch or made.ends[written].max() > (y + 1) * pitch:
            return None  # the kernel makes more than the row that it is asked for
        for k, view in operands.items():
            read = made.operands == k
            first, end = (int(made.firsts[read].min()), int(made.ends[read].max())) if read.any() else (0, 0)
            step = max(view.pitch, 1)
            rows[k].append((first // step, -(-end // step)))
            firsts[k].append(first + view.offset if end else -1)
    by_tensor: dict[int, Rows | None] = {}
    first_bytes: dict[int, tuple[int, ...]] = {}
    for k, view in operands.items():
        assert isinstance(view.base, int)
        first_bytes[view.base] = tuple(firsts[k])
        usable = view.pitch > 0 and view.offset == 0 and view.base not in by_tensor
        by_tensor[view.base] = tuple(rows[k]) if usable else None
    return Layer(tensor, call, by_tensor, first_bytes)


@dataclass(frozen=True, eq=False)
class Stage:
    """Layers and the sequence in which their rows are made: an index into `layers` for each row.

    lines: the memory of the tensors within. peak: the most bytes that live at a time, of lines, of the output and of
    those operands from outside that die here, if every byte could be used again at once; scratch memory included.
    """

    layers: tuple[Layer, ...]
    sequence: tuple[int, ...]
    lines: Mapping[int, Line]
    peak: int

    def step(self) -> Step:
        """The stage as one step of the plan."""
        calls = [self._with_rings(layer.call) for layer in self.layers]
        made = [0] * len(calls)
        rows = []
        for index in self.sequence:
            call, y = calls[index], made[index]
            made[index] += 1
            rows.append(replace(call, first_row=y, rows=y + 1))
        return Step(self.layers[-1].tensor, tuple(rows), "stage", lines=self.lines)

    def _with_rings(self, call: Call) -> Call:
        def ringed(view: View) -> View:
            line = self.lines.get(view.base) if isinstance(view.base, int) else None
            return view if line is None else replace(view, ring=line.rows)

        return replace(call, inputs=tuple(map(ringed, call.inputs)), output=ringed(call.output))


def make_stage(layers: Sequence[Layer], outside: Mapping[int, int]) -> Stage | None:
    """A stage of layers in the order of their steps; the last makes the output. None when some layer needs rows of
    another that cannot come one by one, or nobody needs any row of a layer (all windows lie in the padding).

    outside: bytes of the operands that come from outside and die in the stage, by tensor.
    """
    makers = {layer.tensor: i for i, layer in enumerate(layers)}
    for layer in layers:
        for tensor, rows in layer.rows.items():
            inside = makers.get(tensor)
            if inside is not None and (rows is None or _pitch(layer, tensor) != layers[inside].call.output.pitch):
                return None
    found = []
    for deep_first in (True, False):
        sequence = _sequence(layers, makers, deep_first)
        if set(sequence) != set(range(len(layers))):
            return None
        lines, peak = _memory(layers, makers, sequence, outside)
        found.append(Stage(tuple(layers), tuple(sequence), lines, peak + max(layer.call.scratch for layer in layers)))
        if all(len(layer.rows) < 2 for layer in layers):
            break
    return min(found, key=lambda stage: (stage.peak, sum(line.bytes for line in stage.lines.values())))


def _pitch(layer: Layer, tensor: int) -> int:
    return next(view.pitch for view in layer.call.inputs if view.base == tensor)


def _sequence(layers: Sequence[Layer], makers: Mapping[int, int], deep_first: bool) -> list[int]:
    """Which layer makes its next row, until the last has made all of its rows. Where branches join, the rows of the
    longest one are made first, or those of the shortest."""
    needs: list[list[tuple[int, Rows]]] = []
    depth: list[int] = []
    for layer in layers:
        operands = [(makers[tensor], rows) for tensor, rows in layer.rows.items() if tensor in makers and rows]
        before = {operand: depth[operand] if operand < len(depth) else 0 for operand, _ in operands}
        operands.sort(key=lambda item: before[item[0]], reverse=deep_first)
        needs.append(operands)
        depth.append(1 + max(before.values(), default=0))
    made = [0] * len(layers)
    sequence: list[int] = []

    def make(layer: int, end: int) -> None:
        while made[layer] < end:
            for operand, rows in needs[layer]:
                make(operand, rows[made[layer]][1])
            sequence.append(layer)
            made[layer] += 1

    make(len(layers) - 1, layers[-1].call.rows)
    return sequence


def _memory(
    layers: Sequence[Layer], makers: Mapping[int, int], sequence: Sequence[int], outside: Mapping[int, int]
) -> tuple[dict[int, Line], int]:
    """The rings, and the most bytes that live at a time."""
    written: list[list[int]] = [[] for _ in layers]
    last_read: list[dict[int, int]] = [{} for _ in layers]
    change = [0] * (len(sequence) + 2)
    first_needed = {tensor: [size] * (len(sequence) + 1) for tensor, size in outside.items()}
    for time, index in enumerate(sequence):
        layer, row = layers[index], len(written[index])
        written[index].append(time)
        for tensor, rows in layer.rows.items():
            if tensor in makers and rows is not None:
                last_read[makers[tensor]].update(dict.fromkeys(range(*rows[row]), time))
            elif tensor in outside and layer.firsts[tensor][row] >= 0:
                first_needed[tensor][time] = layer.firsts[tensor][row]
    lines = {}
    for index, layer in enumerate(layers):
        pitch, inside = layer.call.output.pitch, index < len(layers) - 1
        for row, time in enumerate(written[index]):
            change[time] += pitch
            change[last_read[index].get(row, time) + 1 if inside else len(sequence) + 1] -= pitch
        if inside:
            lines[layer.tensor] = Line(_ring(written[index], last_read[index]), pitch, layer.call.rows)
    peak = live = 0
    needed = {tensor: _suffix_minimum(firsts) for tensor, firsts in first_needed.items()}
    for time in range(len(sequence)):
        live += change[time]
        peak = max(peak, live + sum(size - needed[tensor][time] for tensor, size in outside.items()))
    return lines, peak


def _ring(written: Sequence[int], last_read: Mapping[int, int]) -> int:
    """The rows that must be held: when a row is written, all from the oldest one that is read later."""
    oldest, held = 0, 1
    for row, time in enumerate(written):
        while oldest < row and last_read.get(oldest, -1) <= time:
            oldest += 1
        held = max(held, row - oldest + 1)
    return held


def _suffix_minimum(values: Sequence[int]) -> list[int]:
    least, found = values[-1], []
    for value in reversed(values):
        least = min(least, value)
        found.append(least)
    return found[::-1]
