"""Where tensors lie in the arena: lifetimes, in-place outputs, then the largest first at the lowest free place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlx_edge.cgen.plan import Step
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Input, Reshape

ALIGNMENT = 16


@dataclass
class Buffer:
    """Memory shared by tensors that follow each other in the same place; alive in the steps [first, last]."""

    bytes: int
    first: int
    last: int
    offset: int = 0


@dataclass(frozen=True)
class Layout:
    """Byte offset of every node's tensor, and the size of the arena."""

    offsets: dict[int, int]
    arena_bytes: int
    scratch_offsets: dict[int, int] = field(default_factory=dict)


def plan_memory(graph: Graph, steps: Sequence[Step]) -> Layout:
    """Assign offsets so that no two tensors that live at the same time overlap.

    A tensor lives from the step that computes it (an input: from before the first step) to its last use (an output:
    to the end). Reshapes share their operand's memory; so do outputs of in-place kernels whose operand dies there.
    """
    last_use = _last_uses(graph, steps)
    buffers: dict[int, Buffer] = {}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            buffers[node.id] = Buffer(_aligned(node.type.bytes), -1, last_use[node.id])
    for index, step in enumerate(steps):
        node = graph.nodes[step.node]
        shared = _shared_operand(graph, node, step, index, buffers)
        if shared is None:
            buffers[node.id] = Buffer(_aligned(node.type.bytes), index, last_use[node.id])
        else:
            buffers[node.id] = shared
            shared.last = max(shared.last, last_use[node.id])
    scratch = {
        index: Buffer(_aligned(size), index, index)
        for index, step in enumerate(steps)
        if (size := max((call.scratch for call in step.calls), default=0))
    }
    arena = _place([*{id(buffer): buffer for buffer in buffers.values()}.values(), *scratch.values()])
    offsets = {node: buffer.offset for node, buffer in buffers.items()}
    return Layout(offsets, max(arena, ALIGNMENT), {index: buffer.offset for index, buffer in scratch.items()})


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _last_uses(graph: Graph, steps: Sequence[Step]) -> dict[int, int]:
    """The last step that needs each tensor. One that nobody reads is needed where it is computed."""
    last = {node.id: -1 for node in graph.nodes if isinstance(node.op, Input)}
    for index, step in enumerate(steps):
        last[step.node] = index
        for operand in graph.nodes[step.node].inputs:
            if operand in last:
                last[operand] = index
    for output in graph.outputs:
        last[output] = len(steps)
    return last


def _shared_operand(graph: Graph, node: Node, step: Step, index: int, buffers: Mapping[int, Buffer]) -> Buffer | None:
    """The operand's buffer that the output takes over, if any."""
    if isinstance(node.op, Reshape):
        return buffers[node.inputs[0]]
    if not all(call.kernel.in_place for call in step.calls):
        return None
    for operand in dict.fromkeys(node.inputs):
        same_size = graph.nodes[operand].type.elements == node.type.elements
        if operand in buffers and same_size and buffers[operand].last == index:
            return buffers[operand]
    return None


def _place(buffers: list[Buffer]) -> int:
    """Set every buffer's offset; the bytes that all need together."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.bytes, b.first)):
        offset = 0
        for other in sorted(placed, key=lambda b: b.offset):
            alive_together = other.first <= buffer.last and buffer.first <= other.last
            if alive_together and offset < other.offset + other.bytes and other.offset < offset + buffer.bytes:
                offset = other.offset + other.bytes
        buffer.offset = offset
        placed.append(buffer)
    return max((b.offset + b.bytes for b in buffers), default=0)
