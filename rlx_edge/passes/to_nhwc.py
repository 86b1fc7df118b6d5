"""Move NCHW images to NHWC, the layout of the kernels.

The pass walks the graph once and holds each tensor as the new graph has it: as it was, transposed (old = transpose(new,
perm)), or flattened with its columns in another order. Ops pass what they can handle on to their users, so transposes
appear only where a user needs the old order: at inputs and outputs of the graph, and before reshapes that mix axes.
Inputs and outputs keep the source model's layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Conv,
    Layout,
    MatMul,
    Op,
    Pad,
    Pool,
    Reduce,
    Reshape,
    Softmax,
    Transpose,
)
from rlx_edge.passes.clean_shapes import moves_nothing
from rlx_edge.passes.rebuild import builder_like, is_pointwise
from rlx_edge.passes.remove_dead import remove_dead

Perm = tuple[int, ...]

FROM_NHWC: Perm = (0, 3, 1, 2)
"""NCHW = transpose(NHWC, this)."""


def to_nhwc(graph: Graph) -> Graph:
    """The same function with every Conv and Pool in NHWC."""
    if not any(isinstance(n.op, Conv | Pool) and n.op.layout is Layout.NCHW for n in graph.nodes):
        return graph
    return remove_dead(_Mover(graph).graph())


@dataclass(frozen=True)
class _Held:
    """A node of the new graph, and how the old tensor follows from it."""

    id: int
    perm: Perm | None = None
    """old = transpose(new, perm)."""
    order: Array | None = None
    """old[:, j] = new[:, order[j]]; only where every reader is a dense layer that can take it (or is pointwise)."""


class _Mover:
    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = builder_like(graph)
        self.held: dict[int, _Held] = {}
        self.forms: dict[tuple[int, Perm | None], int] = {}
        self.handlers: dict[type[Op], Callable[[Node], _Held]] = {
            Conv: self._conv,
            Pool: self._pool,
            Activation: self._pointwise,
            Clamp: self._pointwise,
            Binary: self._binary,
            Pad: self._pad,
            Concat: self._concat,
            Reduce: self._reduce,
            Softmax: self._softmax,
            Transpose: self._transpose,
            Reshape: self._reshape,
            MatMul: self._matmul,
        }

    def graph(self) -> Graph:
        for node in self.old.nodes:
            if self.old.constant(node) is None:  # Constants are made in the form in which they are needed.
                self.held[node.id] = self.handlers.get(type(node.op), self._as_it_was)(node)
        return self.new.build([self._form(i, None) for i in self.old.outputs])

    # ---- Forms of a tensor -------------------------------------------------------------------------------------------

    def _emit(self, node: Node, op: Op, operands: list[int], perm: Perm | None = None) -> _Held:
        """Append what computes `node`; an output of the graph gives its name to the tensor in the old layout."""
        if perm is not None and perm == tuple(range(len(perm))):
            perm = None
        if perm is not None and node.id in self.old.outputs:
            return _Held(self.new.add(op, operands, f"{node.name}.nhwc", node.type.quant), perm)
        return _Held(self.new.add(op, operands, node.name, node.type.quant, node.sources), perm)

    def _form(self, old_id: int, perm: Perm | None) -> int:
        """The node that holds an old tensor transposed so that old = transpose(new, perm); None: as it was."""
        if self._perm(old_id) == perm and old_id in self.held:
            return self.held[old_id].id
        key = (old_id, perm)
        if key not in self.forms:
            self.forms[key] = self._make_form(self.old.nodes[old_id], perm)
        return self.forms[key]

    def _perm(self, old_id: int) -> Perm | None:
        return self.held[old_id].perm if old_id in self.held else None

    def _operand(self, node: Node) -> _Held:
        """The first operand as it is held."""
        return self.held.get(node.inputs[0]) or _Held(self._form(node.inputs[0], None))

    def _make_form(self, old: Node, perm: Perm | None) -> int:
        rank = len(old.type.shape)
        wanted = _inverse(perm) if perm is not None else tuple(range(rank))
        values = self.old.constant(old)
        if values is not None:
            return self._param(old, values.transpose(wanted))
        held = self.held[old.id]
        there = held.perm or tuple(range(rank))
        move = tuple(there[axis] for axis in wanted)
        name, sources = (f"{old.name}.nhwc", ()) if perm is not None else (old.name, old.sources)
        shape = self.new[held.id].type.shape
        op = Reshape(tuple(shape[a] for a in move)) if moves_nothing(shape, move) else Transpose(move)
        return self.new.add(op, [held.id], name, old.type.quant, sources)

    def _broadcast_form(self, old_id: int, perm: Perm) -> int:
        """The same for an operand that may have fewer axes than perm."""
        old = self.old.nodes[old_id]
        missing = len(perm) - len(old.type.shape)
        if missing == 0:
            return self._form(old_id, perm)
        values = self.old.constant(old)
        full = (1,) * missing + old.type.shape
        if values is not None:
            return self._param(old, values.reshape(full).transpose(_inverse(perm)))
        grown = self.new.add(Reshape(full), [self._form(old_id, None)], f"{old.name}.grown", old.type.quant)
        return self.new.add(Transpose(_inverse(perm)), [grown], f"{old.name}.nhwc", old.type.quant)

    def _param(self, old: Node, values: Array) -> int:
        return self.new.param(old.name, np.ascontiguousarray(values), old.type.quant, old.sources)

    def _as_it_was(self, node: Node) -> _Held:
        return _Held(self.new.copy(node, [self._form(i, None) for i in node.inputs], self.old))

    # ---- Ops ---------------------------------------------------------------------------------------------------------

    def _conv(self, node: Node) -> _Held:
        assert isinstance(node.op, Conv)
        if node.op.layout is Layout.NHWC:
            return self._as_it_was(node)
        operands = [self._form(i, FROM_NHWC) for i in node.inputs]
        return self._emit(node, replace(node.op, layout=Layout.NHWC), operands, FROM_NHWC)

    def _pool(self, node: Node) -> _Held:
        assert isinstance(node.op, Pool)
        if node.op.layout is Layout.NHWC:
            return self._as_it_was(node)
        operand = self._form(node.inputs[0], FROM_NHWC)
        return self._emit(node, replace(node.op, layout=Layout.NHWC), [operand], FROM_NHWC)

    def _pointwise(self, node: Node) -> _Held:
        held = self._operand(node)
        return replace(self._emit(node, node.op, [held.id], held.perm), order=held.order)

    def _binary(self, node: Node) -> _Held:
        rank = len(node.type.shape)
        perms = [self._perm(i) for i in node.inputs]
        perm = next((p for p in perms if p is not None and len(p) == rank), None)
        if perm is None:
            return self._as_it_was(node)
        return self._emit(node, node.op, [self._broadcast_form(i, perm) for i in node.inputs], perm)

    def _pad(self, node: Node) -> _Held:
        held = self._operand(node)
        if held.perm is None:
            return self._as_it_was(node)
        assert isinstance(node.op, Pad)
        pads = tuple(node.op.pads[axis] for axis in _inverse(held.perm))
        return self._emit(node, replace(node.op, pads=pads), [held.id], held.perm)

    def _concat(self, node: Node) -> _Held:
        perm = next((p for i in node.inputs if (p := self._perm(i)) is not None), None)
        if perm is None:
            return self._as_it_was(node)
        assert isinstance(node.op, Concat)
        axis = perm[node.op.axis % len(perm)]
        return self._emit(node, Concat(axis), [self._form(i, perm) for i in node.inputs], perm)

    def _reduce(self, node: Node) -> _Held:
        held = self._operand(node)
        if held.perm is None:
            return self._as_it_was(node)
        assert isinstance(node.op, Reduce)
        rank = len(held.perm)
        gone = {axis % rank for axis in node.op.axes}
        op = replace(node.op, axes=tuple(sorted(held.perm[axis] for axis in gone)))
        if op.keep_dim:
            return self._emit(node, op, [held.id], held.perm)
        kept = [held.perm[axis] for axis in range(rank) if axis not in gone]
        return self._emit(node, op, [held.id], tuple(sorted(kept).index(axis) for axis in kept))

    def _softmax(self, node: Node) -> _Held:
        held = self._operand(node)
        assert isinstance(node.op, Softmax)
        if held.perm is None or held.perm[node.op.axis % len(held.perm)] != len(held.perm) - 1:
            return self._as_it_was(node)
        return self._emit(node, replace(node.op, axis=len(held.perm) - 1), [held.id], held.perm)

    def _transpose(self, node: Node) -> _Held:
        held = self._operand(node)
        if held.perm is None or node.id in self.old.outputs:
            return self._as_it_was(node)
        assert isinstance(node.op, Transpose)
        perm = tuple(held.perm[axis] for axis in node.op.perm)
        return _Held(held.id, None if perm == tuple(range(len(perm))) else perm)

    def _reshape(self, node: Node) -> _Held:
        held = self._operand(node)
        if held.perm is None:
            return self._as_it_was(node)
        shape = self.new[held.id].type.shape
        flat = (shape[0], int(np.prod(shape[1:])))
        if moves_nothing(shape, held.perm):
            return self._emit(node, node.op, [held.id])
        if held.perm[0] == 0 and node.type.shape == flat and self._read_by_dense_layers(node):
            places = np.arange(flat[1]).reshape(1, *shape[1:])
            return replace(self._emit(node, node.op, [held.id]), order=places.transpose(held.perm).reshape(-1))
        return self._as_it_was(node)

    def _read_by_dense_layers(self, node: Node) -> bool:
        """Whether every reader is a MatMul with constant weights, perhaps behind pointwise ops."""
        if node.id in self.old.outputs:
            return False
        for user in (self.old.nodes[i] for i in self.old.users[node.id]):
            dense = isinstance(user.op, MatMul) and user.inputs[0] == node.id and user.inputs[1] != node.id
            if dense and self.old.constant(self.old.nodes[user.inputs[1]]) is not None:
                continue
            if not is_pointwise(user) or not self._read_by_dense_layers(user):
                return False
        return True

    def _matmul(self, node: Node) -> _Held:
        order = self._operand(node).order
        if order is None:
            return self._as_it_was(node)
        weights = self.old.nodes[node.inputs[1]]
        values = self.old.constant(weights)
        assert values is not None
        moved = np.empty_like(values)
        moved[..., order, :] = values
        return self._emit(node, node.op, [self._operand(node).id, self._param(weights, moved)])


def _inverse(perm: Perm) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))
