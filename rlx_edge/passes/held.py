"""Tensors of a graph in the making that may be held in another order of axes than in the old graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Op, Reshape, Transpose
from rlx_edge.passes.clean_shapes import moves_nothing
from rlx_edge.passes.rebuild import builder_like

Perm = tuple[int, ...]


def inverse(perm: Perm) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def or_none(perm: Perm) -> Perm | None:
    """The permutation, or None for one that leaves every axis where it is."""
    return None if perm == tuple(range(len(perm))) else perm


@dataclass(frozen=True)
class Held:
    """A node of the new graph, and how the old tensor follows from it."""

    id: int
    perm: Perm | None = None
    """old = transpose(new, perm)."""
    order: Array | None = None
    """old[:, j] = new[:, order[j]]; only where every reader is a dense layer that can take it (or is pointwise)."""


class HeldTensors:
    """The new graph, and for each tensor of the old one how it is held there and in which other forms."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = builder_like(graph)
        self.held: dict[int, Held] = {}
        self._forms: dict[tuple[int, Perm | None], int] = {}

    def emit(self, node: Node, op: Op, operands: list[int], perm: Perm | None = None) -> Held:
        """Append what computes `node`; an output of the graph gives its name to the tensor in the old layout."""
        perm = None if perm is None else or_none(perm)
        if perm is not None and node.id in self.old.outputs:
            return Held(self.new.add(op, operands, f"{node.name}.nhwc", node.type.quant), perm)
        channels = node.channels if perm is None else None
        return Held(self.new.add(op, operands, node.name, node.type.quant, node.sources, channels), perm)

    def as_it_was(self, node: Node) -> Held:
        """Append a copy of the node, on operands in the old layout."""
        return Held(self.new.copy(node, [self.form(i, None) for i in node.inputs], self.old))

    def operand(self, node: Node) -> Held:
        """The first operand as it is held."""
        return self.held.get(node.inputs[0]) or Held(self.form(node.inputs[0], None))

    def perm(self, old_id: int) -> Perm | None:
        return self.held[old_id].perm if old_id in self.held else None

    def cheapest(self, old_ids: Sequence[int], rank: int) -> Perm | None:
        """The order of axes in which tensors can meet with the fewest elements moved. Constants move for nothing."""
        weights: dict[Perm | None, int] = {}
        for i in (i for i in old_ids if i in self.held):
            elements, perm = self.old.nodes[i].type.elements, self.perm(i)
            if len(self.old.nodes[i].type.shape) == rank:
                weights[perm] = weights.get(perm, 0) + elements
        return max(weights, key=lambda perm: (weights[perm], perm is not None)) if weights else None

    def form(self, old_id: int, perm: Perm | None) -> int:
        """The node that holds an old tensor transposed so that old = transpose(new, perm); None: as it was."""
        if self.perm(old_id) == perm and old_id in self.held:
            return self.held[old_id].id
        key = (old_id, perm)
        if key not in self._forms:
            self._forms[key] = self._make_form(self.old.nodes[old_id], perm)
        return self._forms[key]

    def broadcast_form(self, old_id: int, perm: Perm | None) -> int:
        """The same for an operand that may have fewer axes than perm."""
        old = self.old.nodes[old_id]
        missing = 0 if perm is None else len(perm) - len(old.type.shape)
        if perm is None or missing == 0:
            return self.form(old_id, perm)
        full = (1,) * missing + old.type.shape
        values = self.old.constant(old)
        if values is not None:
            return self.param(old, values.reshape(full).transpose(inverse(perm)))
        if old.type.elements == 1:
            return self.form(old_id, None)
        grown = self.new.add(Reshape(full), [self.form(old_id, None)], f"{old.name}.grown", old.type.quant)
        return self.new.add(Transpose(inverse(perm)), [grown], f"{old.name}.nhwc", old.type.quant)

    def param(self, old: Node, values: Array) -> int:
        return self.new.param(old.name, np.ascontiguousarray(values), old.type.quant, old.sources, old.type.dtype)

    def _make_form(self, old: Node, perm: Perm | None) -> int:
        rank = len(old.type.shape)
        wanted = inverse(perm) if perm is not None else tuple(range(rank))
        values = self.old.constant(old)
        if values is not None:
            return self.param(old, values.transpose(wanted))
        held = self.held[old.id]
        there = held.perm or tuple(range(rank))
        move = tuple(there[axis] for axis in wanted)
        shape = self.new[held.id].type.shape
        taken = self.new[held.id].name == old.name  # By the tensor as it is held.
        name = f"{old.name}.nhwc" if perm is not None else f"{old.name}.moved" if taken else old.name
        sources = () if perm is not None else old.sources
        op = Reshape(tuple(shape[a] for a in move)) if moves_nothing(shape, move) else Transpose(move)
        return self.new.add(op, [held.id], name, old.type.quant, sources)
