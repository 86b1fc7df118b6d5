"""Depth-first stages as pieces of C text: the layers, and which of them makes its next row."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen.plan import Call, Step
from rlx_edge.ir import Array, Graph

FRAME_BYTES = 56


def layers_of(step: Step) -> list[Call]:
    """A call of each layer, in the order of their first rows. The calls of a layer share their views."""
    return list({id(call.inputs): call for call in reversed(step.calls)}.values())[::-1]


def stack_of(step: Step) -> int:
    """Bytes of the stack that a step of several calls takes on top of what one call takes, on any core and under any
    optimization level: its frame; in a stage with a counter of 4 bytes a layer."""
    return FRAME_BYTES * (len(step.calls) > 1) + 4 * len(layers_of(step)) * bool(step.lines)


def row_order(step: Step) -> Array:
    """uint8 [rows]: the layer, as an index into `layers_of`, that makes its next row."""
    numbers = {id(call.inputs): i for i, call in enumerate(layers_of(step))}
    return np.array([numbers[id(call.inputs)] for call in step.calls], np.uint8)


def nodes_of(graph: Graph, step: Step) -> list[int]:
    """The nodes that a stage computes."""
    made = dict.fromkeys(call.output.base for call in step.calls)
    return [tensor for tensor in made if isinstance(tensor, int) and tensor < len(graph.nodes)]


def stage_lines(graph: Graph, step: Step) -> list[str]:
    """What the comment says of a stage: the operands from outside, and each tensor within."""
    inside = {call.output.base for call in step.calls}
    views = [view.base for call in step.calls for view in call.inputs]
    outside = [base for base in dict.fromkeys(views) if isinstance(base, int) and base not in inside]
    lines = [f"{graph.nodes[node].name}: {graph.nodes[node].type}" for node in outside]
    for tensor, line in step.lines.items():
        what = f"{graph.nodes[tensor].name}: {graph.nodes[tensor].type}" if tensor < len(graph.nodes) else "running sum"
        lines.append(f"- {what}, {line.rows} of its {line.of} rows at a time")
    return lines
