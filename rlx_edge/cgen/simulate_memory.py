"""Executes the memory accesses of a plan on addresses: every byte knows which byte of which tensor it holds.

Independent of how the planner came to its offsets: it only follows the order of each call (order.py) and finds reads of
bytes that hold something else by then, writes beyond a tensor or into scratch memory in use, and tensors that are not
whole when their step ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from rlx_edge.cgen.order import OUTPUT
from rlx_edge.cgen.overlap import call_accesses
from rlx_edge.cgen.plan import Call, Step, View
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph

NOBODY, SCRATCH = -1, -2


class UnsafePlanError(EdgeError):
    """A plan in which a step reads, keeps or writes the wrong byte."""


class Simulator:
    """An arena whose bytes have owners. offsets: of all tensors and line buffers, by node; scratch: by step."""

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[Step],
        offsets: Mapping[int, int],
        arena_bytes: int,
        scratch_offsets: Mapping[int, int],
    ) -> None:
        self.graph, self.steps, self.offsets, self.scratch_offsets = graph, steps, offsets, scratch_offsets
        self.owner = np.full(arena_bytes, NOBODY, np.int64)
        self.byte = np.zeros(arena_bytes, np.int64)
        self.sizes = {node.id: node.type.bytes for node in graph.nodes}
        self.roots = {node.id: node.id for node in graph.nodes}
        self.names = {node.id: node.name for node in graph.nodes}
        self.step = "the start"

    def run(self) -> None:
        """All steps from inputs that are in place. Raises UnsafePlanError naming step, tensor and byte."""
        for node in self.graph.inputs:
            self._write(View(node.id, 1), 0, node.type.bytes)
        for index, step in enumerate(self.steps):
            node = self.graph.nodes[step.node]
            self.step = f"step {index} ({node.name})"
            if not step.calls:
                self.roots[step.node] = self.roots[node.inputs[0]]
            for tensor, line in step.lines.items():
                self.sizes[tensor] = line.of * line.pitch
                self.roots[tensor] = tensor
                self.names.setdefault(tensor, f"the running sum {tensor}")
            for call in step.calls:
                self._call(call, self.scratch_offsets.get(index, 0))
            self._whole(step.node)
        self.step = "the end"
        for output in self.graph.outputs:
            self._whole(output)

    def _call(self, call: Call, scratch: int) -> None:
        self._within(scratch, scratch + call.scratch, "scratch memory")
        self.owner[scratch : scratch + call.scratch] = SCRATCH
        made = call_accesses(call, self.sizes)
        for operand, first, end in zip(made.operands.tolist(), made.firsts.tolist(), made.ends.tolist(), strict=True):
            view = call.output if operand == OUTPUT else call.inputs[operand]
            if isinstance(view.base, int):
                for part in _rows(view, first, end):
                    (self._write if operand == OUTPUT else self._read)(view, *part)
        if (self.owner[scratch : scratch + call.scratch] != SCRATCH).any():
            raise UnsafePlanError(f"{self.step} writes its output into its scratch memory at {scratch}")

    def _whole(self, node: int) -> None:
        self._read(View(node, 1), 0, self.graph.nodes[node].type.bytes)

    def _write(self, view: View, first: int, end: int) -> None:
        assert isinstance(view.base, int)
        at, byte, count = self._place(view, first, end)
        self.owner[at : at + count] = self.roots[view.base]
        self.byte[at : at + count] = np.arange(byte, byte + count)

    def _read(self, view: View, first: int, end: int) -> None:
        assert isinstance(view.base, int)
        at, byte, count = self._place(view, first, end)
        good = self.owner[at : at + count] == self.roots[view.base]
        good &= self.byte[at : at + count] == np.arange(byte, byte + count)
        if not good.all():
            wrong = int(np.argmin(good))
            name = self.names[view.base]
            raise UnsafePlanError(
                f"{self.step} needs byte {byte + wrong} of {name} at {at + wrong}, which holds {self._held(at + wrong)}"
            )

    def _place(self, view: View, first: int, end: int) -> tuple[int, int, int]:
        """Address, number of the first byte in the tensor, and count, of bytes within a row of the view (or of a view
        that is no ring, before whose row 0 a kernel with negative strides may go)."""
        assert isinstance(view.base, int)
        name = self.names[view.base]
        byte = view.offset + first
        if (first if view.ring else byte) < 0 or view.offset + end > self.sizes[view.base]:
            raise UnsafePlanError(f"{self.step} goes to bytes {byte} to {view.offset + end} of {name}, outside of it")
        row = first // view.pitch if view.ring else 0
        turned = (row % view.ring - row) * view.pitch if view.ring else 0
        at = self.offsets[view.base] + byte + turned
        self._within(at, at + end - first, name)
        return at, byte, end - first

    def _within(self, first: int, end: int, name: str) -> None:
        if first < 0 or end > len(self.owner):
            raise UnsafePlanError(f"{self.step} goes outside of the arena with {name}: {first} to {end}")

    def _held(self, at: int) -> str:
        owner = int(self.owner[at])
        if owner in (NOBODY, SCRATCH):
            return "nothing" if owner == NOBODY else "scratch memory"
        return f"byte {self.byte[at]} of {self.names[owner]}"


def _rows(view: View, first: int, end: int) -> list[tuple[int, int]]:
    """The range, for a ring cut at the ends of rows."""
    if not view.ring:
        return [(first, end)]
    cuts = [first, *range((first // view.pitch + 1) * view.pitch, end, view.pitch), end]
    return list(pairwise(cuts))
