"""Move NCHW images to NHWC, the layout of the kernels, and cancel transposes.

The pass walks the graph once and holds each tensor as the new graph has it: as it was, transposed (old = transpose(new,
perm)), or flattened with its columns in another order. Ops pass what they can handle on to their users, so transposes
appear only where a user needs the old order: at inputs and outputs of the graph, and before reshapes that mix axes.
Inputs and outputs keep the source model's layout.

A transpose of the source can be held back in the same way (`lazy`). That cancels it against later ones, but may make
two of one; the form with fewer elements to move is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Cast,
    Clamp,
    Compare,
    Concat,
    Conv,
    ConvTranspose2d,
    CumProd,
    Cumsum,
    Dequantize,
    Expand,
    Gather,
    Input,
    LayerNorm,
    Layout,
    MatMul,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Reverse,
    RmsNorm,
    Slice,
    Softmax,
    Tile,
    Transpose,
    Where,
)
from rlx_edge.passes.clean_shapes import clean_shapes, moves_nothing
from rlx_edge.passes.held import Held, HeldTensors, Perm, inverse, or_none
from rlx_edge.passes.rebuild import finish, is_pointwise
from rlx_edge.passes.reshape_axes import regroup

FROM_NHWC: Perm = (0, 3, 1, 2)
"""NCHW = transpose(NHWC, this)."""

IMAGE_OPS = (Conv, ConvTranspose2d, QConv2d, Pool)


def to_nhwc(graph: Graph) -> Graph:
    """The same function, to the last bit, with every convolution and pooling in NHWC and few transposes."""
    images = any(isinstance(n.op, IMAGE_OPS) and n.op.layout is Layout.NCHW for n in graph.nodes)
    transposes = sum(isinstance(n.op, Transpose) for n in graph.nodes)
    if not images and transposes < 2:
        return graph  # One transpose has none to cancel against: mostly it is that of an input.
    eager = _Mover(graph, lazy=False).graph() if images else graph
    if not transposes:
        return eager
    lazy = _Mover(graph, lazy=True).graph()
    if _moved(clean_shapes(eager)) <= _moved(clean_shapes(lazy)):
        return eager
    return lazy


def _moved(graph: Graph) -> int:
    """Elements that all transposes of a graph move."""
    return sum(node.type.elements for node in graph.nodes if isinstance(node.op, Transpose))


PASSING = (Activation, Clamp, Cast, Binary, Compare, Where, Pad, Concat, Narrow, Slice, Tile, Reverse, Gather)
"""Ops that work in any layout."""


def _only_for_images(graph: Graph) -> set[int]:
    """Tensors that go to nothing but NCHW convolutions and pools, perhaps through ops that work in any layout.

    An input of that kind is moved first thing: padding and scales that stand before the first convolution are then in
    its layout, and can be worked into it.
    """
    found: set[int] = set()
    for node in reversed(graph.nodes):
        users = [graph.nodes[i] for i in graph.users[node.id]]
        fits = len(node.type.shape) == 4 and node.id not in graph.outputs and len(users) > 0
        if fits and all(_takes_image(user, node.id, found) for user in users):
            found.add(node.id)
    return found


def _takes_image(user: Node, operand: int, found: set[int]) -> bool:
    if isinstance(user.op, IMAGE_OPS):
        return user.op.layout is Layout.NCHW and user.inputs[0] == operand
    return isinstance(user.op, PASSING) and user.id in found


class _Mover:
    def __init__(self, graph: Graph, lazy: bool) -> None:
        self.old = graph
        self.tensors = HeldTensors(graph)
        self.lazy = lazy
        self.handlers: dict[type[Op], Callable[[Node], Held]] = {
            **dict.fromkeys(IMAGE_OPS, self._image),
            **dict.fromkeys((Activation, Clamp, Cast), self._pointwise),
            **dict.fromkeys((Quantize, Dequantize), self._per_tensor),
            **dict.fromkeys((Binary, Compare, Where), self._elementwise),
            **dict.fromkeys((Concat, Narrow, Slice, Cumsum, CumProd, LayerNorm, RmsNorm), self._along_axis),
            Gather: self._gather,
            Pad: self._pad,
            Tile: self._tile,
            Reverse: self._reverse,
            Expand: self._expand,
            Reduce: self._reduce,
            Softmax: self._softmax,
            Transpose: self._transpose,
            Reshape: self._reshape,
            MatMul: self._matmul,
            QMatMul: self._matmul,
        }

    def graph(self) -> Graph:
        held, tensors = self.tensors.held, self.tensors
        images = _only_for_images(self.old)
        for node in self.old.inputs:  # First of all: nothing else may take their names.
            held[node.id] = tensors.as_it_was(node)
        for node in self.old.nodes:
            if isinstance(node.op, Input) and node.id in images:
                held[node.id] = Held(tensors.form(node.id, FROM_NHWC), FROM_NHWC)
            elif node.id not in held and self.old.constant(node) is None:  # Constants are made as they are needed.
                held[node.id] = self.handlers.get(type(node.op), tensors.as_it_was)(node)
        return finish(tensors.new, [tensors.form(i, None) for i in self.old.outputs], self.old)

    # ---- Images ------------------------------------------------------------------------------------------------------

    def _image(self, node: Node) -> Held:
        assert isinstance(node.op, IMAGE_OPS)
        if node.op.layout is Layout.NHWC:
            return self.tensors.as_it_was(node)
        operands = [self.tensors.form(i, FROM_NHWC) for i in node.inputs[:2]]
        operands += [self.tensors.form(i, None) for i in node.inputs[2:]]  # An int8 convolution's bias.
        return self.tensors.emit(node, replace(node.op, layout=Layout.NHWC), operands, FROM_NHWC)

    # ---- Element by element ------------------------------------------------------------------------------------------

    def _pointwise(self, node: Node) -> Held:
        held = self.tensors.operand(node)
        return replace(self.tensors.emit(node, node.op, [held.id], held.perm), order=held.order)

    def _per_tensor(self, node: Node) -> Held:
        assert isinstance(node.op, Quantize | Dequantize)
        return self._pointwise(node) if node.op.axis is None else self.tensors.as_it_was(node)

    def _elementwise(self, node: Node) -> Held:
        perm = self.tensors.cheapest(node.inputs, len(node.type.shape))
        if perm is None:
            return self.tensors.as_it_was(node)
        operands = [self.tensors.broadcast_form(i, perm) for i in node.inputs]
        return self.tensors.emit(node, node.op, operands, perm)

    # ---- Along axes --------------------------------------------------------------------------------------------------

    def _along_axis(self, node: Node) -> Held:
        """Ops with one axis: further operands are constants that do not depend on the layout, but for Concat's."""
        assert isinstance(node.op, Concat | Narrow | Slice | Cumsum | CumProd | LayerNorm | RmsNorm)
        joins = isinstance(node.op, Concat)
        rank = len(node.type.shape)
        perm = self.tensors.cheapest(node.inputs, rank) if joins else self.tensors.operand(node).perm
        if perm is None:
            return self.tensors.as_it_was(node)
        count = len(node.inputs) if joins else 1
        operands = [self.tensors.form(i, perm if k < count else None) for k, i in enumerate(node.inputs)]
        return self.tensors.emit(node, replace(node.op, axis=perm[node.op.axis % rank]), operands, perm)

    def _gather(self, node: Node) -> Held:
        """By indices along one axis, as resampling has them."""
        assert isinstance(node.op, Gather)
        known = len(self.old.nodes[node.inputs[1]].type.shape) == 1
        perm = self.tensors.operand(node).perm if known else None
        if perm is None:
            return self.tensors.as_it_was(node)
        operands = [self.tensors.form(node.inputs[0], perm), self.tensors.form(node.inputs[1], None)]
        op = Gather(perm[node.op.axis % len(node.type.shape)])
        return self.tensors.emit(node, op, operands, perm)

    def _pad(self, node: Node) -> Held:
        op = node.op
        assert isinstance(op, Pad)
        return self._each_axis(node, lambda perm: replace(op, pads=tuple(op.pads[i] for i in inverse(perm))))

    def _tile(self, node: Node) -> Held:
        op = node.op
        assert isinstance(op, Tile)
        return self._each_axis(node, lambda perm: Tile(tuple(op.reps[i] for i in inverse(perm))))

    def _reverse(self, node: Node) -> Held:
        op = node.op
        assert isinstance(op, Reverse)
        rank = len(node.type.shape)
        return self._each_axis(node, lambda perm: Reverse(tuple(sorted(perm[i % rank] for i in op.axes))))

    def _expand(self, node: Node) -> Held:
        if len(self.tensors.operand(node).perm or ()) != len(node.type.shape):
            return self.tensors.as_it_was(node)
        return self._each_axis(node, lambda perm: Expand(tuple(node.type.shape[i] for i in inverse(perm))))

    def _each_axis(self, node: Node, op: Callable[[Perm], Op]) -> Held:
        held = self.tensors.operand(node)
        if held.perm is None:
            return self.tensors.as_it_was(node)
        return self.tensors.emit(node, op(held.perm), [held.id], held.perm)

    def _reduce(self, node: Node) -> Held:
        held = self.tensors.operand(node)
        if held.perm is None:
            return self.tensors.as_it_was(node)
        assert isinstance(node.op, Reduce)
        rank = len(held.perm)
        gone = {axis % rank for axis in node.op.axes}
        op = replace(node.op, axes=tuple(sorted(held.perm[axis] for axis in gone)))
        if op.keep_dim:
            return self.tensors.emit(node, op, [held.id], held.perm)
        kept = [held.perm[axis] for axis in range(rank) if axis not in gone]
        return self.tensors.emit(node, op, [held.id], tuple(sorted(kept).index(axis) for axis in kept))

    def _softmax(self, node: Node) -> Held:
        held = self.tensors.operand(node)
        assert isinstance(node.op, Softmax)
        if held.perm is None or held.perm[node.op.axis % len(held.perm)] != len(held.perm) - 1:
            return self.tensors.as_it_was(node)
        return self.tensors.emit(node, replace(node.op, axis=len(held.perm) - 1), [held.id], held.perm)

    # ---- Moves and matrices ------------------------------------------------------------------------------------------

    def _transpose(self, node: Node) -> Held:
        assert isinstance(node.op, Transpose)
        held = self.tensors.operand(node)
        if node.id in self.old.outputs or (held.perm is None and not self.lazy):
            return self.tensors.as_it_was(node)
        there = held.perm or tuple(range(len(node.op.perm)))
        return Held(held.id, or_none(tuple(there[axis] for axis in node.op.perm)))

    def _reshape(self, node: Node) -> Held:
        held = self.tensors.operand(node)
        if held.perm is None:
            return self.tensors.as_it_was(node)
        shape = self.tensors.new[held.id].type.shape
        flat = (shape[0], int(np.prod(shape[1:])))
        if moves_nothing(shape, held.perm):
            return self.tensors.emit(node, node.op, [held.id])
        if held.perm[0] == 0 and node.type.shape == flat and self._read_by_dense_layers(node):
            places = np.arange(flat[1]).reshape(1, *shape[1:])
            order = places.transpose(held.perm).reshape(-1)
            return replace(self.tensors.emit(node, node.op, [held.id]), order=order)
        old = self.old.nodes[node.inputs[0]].type.shape
        groups = regroup(old, node.type.shape, held.perm)
        operand = self.tensors.form(node.inputs[0], or_none(groups.before))
        wanted = tuple(node.type.shape[axis] for axis in inverse(groups.after))
        return self.tensors.emit(node, Reshape(wanted), [operand], groups.after)

    def _read_by_dense_layers(self, node: Node) -> bool:
        """Whether every reader is a dense layer with constant weights, perhaps behind pointwise ops."""
        if node.id in self.old.outputs:
            return False
        for user in (self.old.nodes[i] for i in self.old.users[node.id]):
            dense = isinstance(user.op, MatMul | QMatMul) and user.inputs[0] == node.id and user.inputs[1] != node.id
            if dense and self.old.constant(self.old.nodes[user.inputs[1]]) is not None:
                continue
            if not is_pointwise(user) or not self._read_by_dense_layers(user):
                return False
        return True

    def _matmul(self, node: Node) -> Held:
        """Dense layers take columns in another order, and rows in any: their weights are the same for all."""
        held = self.tensors.operand(node)
        weights = self.old.nodes[node.inputs[1]]
        values = self.old.constant(weights)
        if values is None or (held.order is None and held.perm is None):
            return self.tensors.as_it_was(node)
        rest = [self.tensors.form(i, None) for i in node.inputs[2:]]
        if held.order is not None:
            moved = np.empty_like(values)
            moved[..., held.order, :] = values
            return self.tensors.emit(node, node.op, [held.id, self.tensors.param(weights, moved), *rest])
        assert held.perm is not None
        if values.ndim != 2 or held.perm[-1] != len(held.perm) - 1:
            return self.tensors.as_it_was(node)
        return self.tensors.emit(node, node.op, [held.id, self.tensors.form(weights.id, None), *rest], held.perm)
