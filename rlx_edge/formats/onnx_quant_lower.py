"""A float graph with Quantize and Dequantize nodes to an int8 graph under the rule onnx.

A float tensor that a Dequantize makes, or that only moves such values, is held as int8 already. Every Quantize of a
computed tensor ends an int8 op: what stands between it and int8 tensors is one float op, perhaps with a bias and
bounds. Float inputs and outputs go: an input becomes int8 at its Quantize's parameters, an output at its Dequantize's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats import onnx_quant_emit as emit
from rlx_edge.formats.onnx_node import RefusedError
from rlx_edge.formats.onnx_quant_emit import RULE, Bias, Result, Weights
from rlx_edge.formats.onnx_quant_weights import dequantize_weights, is_int8
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, QuantParams, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Conv,
    Dequantize,
    Input,
    MatMul,
    Op,
    Pad,
    Param,
    Pool,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    ShapeError,
    Softmax,
    Transpose,
)

Biases = Mapping[str, tuple[Array, Array]]
"""int32 biases of the file and their scales, by the name of the tensor that has been added to."""

ON_INT8 = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)


def lower_quantized(graph: Graph, biases: Biases, label: str) -> Graph:
    """The int8 graph of one with Quantize nodes; a graph that only dequantizes constants becomes float.

    Raises UnsupportedError listing every op that is left in float.
    """
    if not any(isinstance(node.op, Quantize | Dequantize) for node in graph.nodes):
        return graph
    if not any(is_int8(node) and not isinstance(node.op, Param) for node in graph.nodes):
        return dequantize_weights(graph)
    try:
        return _Lowering(graph, biases, label).graph()
    except RecursionError:
        raise UnsupportedError(f"{label}: too many ops in a row without a QuantizeLinear between them") from None


class _Lowering:
    def __init__(self, graph: Graph, biases: Biases, label: str) -> None:
        self.old, self.biases, self.label = graph, biases, label
        self.new = GraphBuilder(graph.name)
        self.new.metadata.update(graph.metadata)
        self.problems: list[str] = []
        self.int8: dict[int, int] = {}
        """Old int8 node -> new node."""
        self.views: dict[int, int | None] = {}
        """Old float node -> the new int8 node that stands for the same real values."""
        self.done: dict[tuple[int, Op], int] = {}
        """By a float tensor and the Quantize that it went through: twice the same is one."""
        self.output_names = self._output_names()
        self.handlers: dict[type[Op], Callable[[Node, Result], int]] = {
            Conv: self._anchor,
            MatMul: self._anchor,
            Binary: self._binary,
            Activation: self._single,
            Pool: self._mean_pool,
            Reduce: self._mean,
            Softmax: self._single,
            Concat: self._concat,
            Pad: self._pad,
            Reshape: self._reshaped,
        }

    def graph(self) -> Graph:
        for node in self.old.nodes:
            try:
                self._node(node)
            except (RefusedError, ShapeError) as problem:
                self.problems.append(f"{_title(node)}: {problem}")
                quant = node.type.quant or QuantParams.per_tensor(1.0, 0)
                self.int8[node.id] = self.new.input(node.name, TensorType(node.type.shape, DType.I8, quant))
        outputs = [self._output(self.old.nodes[i]) for i in self.old.outputs]
        if self.problems:
            count = len(self.problems)
            raise UnsupportedError(
                f"{self.label}: {count} thing{'s' if count > 1 else ''} in the quantized model that the importer does "
                "not support (docs/models.md lists what it does):",
                self.problems,
            )
        return self.new.build([i for i in outputs if i is not None])

    def _node(self, node: Node) -> None:
        if isinstance(node.op, Input):
            self._input(node)
        elif isinstance(node.op, Quantize) and self.old.nodes[node.inputs[0]].type.dtype is DType.F32:
            key = (node.inputs[0], node.op)
            if key not in self.done:
                self.done[key] = self._quantized(node)
            self.int8[node.id] = self.done[key]
        elif is_int8(node) and not isinstance(node.op, Param):
            name, sources = self.output_names.get(node.id, (node.name, node.sources))
            operands = [self._operand(i) for i in node.inputs]
            self.int8[node.id] = self.new.add(_ruled(node.op), operands, name, node.type.quant, sources)

    # ---- Inputs and outputs ------------------------------------------------------------------------------------------

    def _output_names(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """An int8 node that a float output dequantizes takes the output's name."""
        found: dict[int, tuple[str, tuple[str, ...]]] = {}
        for output in self.old.output_nodes:
            held = output
            if isinstance(held.op, Dequantize):
                held = self.old.nodes[held.inputs[0]]
            if held is not output and not isinstance(held.op, Input) and held.id not in self.old.outputs:
                found.setdefault(held.id, (output.name, (*output.sources, *held.sources)))
        return found

    def _input(self, node: Node) -> None:
        if node.type.dtype is not DType.F32:
            self.int8[node.id] = self.new.input(node.name, node.type, node.sources)
            return
        users = self._readers(node)
        if not users:
            self.new.input(node.name, node.type, node.sources)
            return
        quants = {user.type.quant for user in users if isinstance(user.op, Quantize)}
        others = [user.name for user in users if not isinstance(user.op, Quantize)]
        if len(quants) != 1 or others:
            why = f"is read in float by {others[0]!r}" if others else "is quantized to different parameters"
            raise RefusedError(f"the input {why}; put one QuantizeLinear right after it")
        (quant,) = quants
        self.views[node.id] = self.new.input(node.name, TensorType(node.type.shape, DType.I8, quant), node.sources)

    def _readers(self, node: Node) -> list[Node]:
        """What reads a float tensor, perhaps through ops that move or select values, which rounding commutes with."""
        found = []
        for user in (self.old.nodes[i] for i in self.old.users[node.id]):
            moves = isinstance(user.op, Reshape | Transpose | Pad) or _is_max_pool(user)
            found += self._readers(user) if moves else [user]
        return found

    def _output(self, old: Node) -> int | None:
        held = self.int8.get(old.id) if old.type.dtype is not DType.F32 else self._view(old.id)
        if held is None:
            self.problems.append(
                f"{_title(old)}: the output is computed in float at the model's end, by {old.op.kind_name}; quantize "
                "that op too, or end the model before it and compute it in your own code"
            )
            return None
        node = self.new[held]
        if node.name == old.name and not isinstance(node.op, Input):
            return held
        return self.new.add(Reshape(node.type.shape), [held], old.name, node.type.quant, old.sources)

    # ---- Tensors that are int8 already -------------------------------------------------------------------------------

    def _operand(self, old_id: int) -> int:
        """The new node of an old int8 one, parameters too."""
        if old_id not in self.int8:
            node = self.old.nodes[old_id]
            assert isinstance(node.op, Param)
            values = self.old.params[node.op.name]  # int8, also where the file has fewer bits, which weights keep
            self.int8[old_id] = self.new.param(node.op.name, values, node.type.quant, node.sources)
        return self.int8[old_id]

    def _view(self, old_id: int) -> int | None:
        if old_id not in self.views:
            self.views[old_id] = self._make_view(self.old.nodes[old_id])
        return self.views[old_id]

    def _make_view(self, node: Node) -> int | None:
        if isinstance(node.op, Dequantize):
            return self._operand(node.inputs[0])
        if not isinstance(node.op, Reshape | Transpose | Pad | Concat | Clamp | Activation | Pool):
            return None
        held = [self._view(i) for i in node.inputs]
        if any(h is None for h in held):
            return None
        operands = [h for h in held if h is not None]
        quants = {self.new[h].type.quant for h in operands}
        quant = self.new[operands[0]].type.quant
        if len(quants) != 1 or quant is None or quant.axis is not None:
            return None
        low, high = _bounds(node)
        if (low, high) != (-np.inf, np.inf):
            result = Result(node.name, quant, node.sources, low, high)
            return emit.requantize(self.new, operands[0], result) if _exact(result) else None
        if isinstance(node.op, Activation | Clamp) or (isinstance(node.op, Pool) and not _is_max_pool(node)):
            return None
        if isinstance(node.op, Pad) and _inexact(node.op.value, quant):
            return None
        return self.new.add(_ruled(node.op), operands, node.name, quant, node.sources)

    # ---- A Quantize and what it ends ---------------------------------------------------------------------------------

    def _quantized(self, node: Node) -> int:
        assert node.type.quant is not None
        name, sources = self.output_names.get(node.id, (node.name, node.sources))
        x, low, high = self.old.nodes[node.inputs[0]], -np.inf, np.inf
        while _bounds(x) != (-np.inf, np.inf):
            bounds = _bounds(x)
            low, high = (min(max(bound, bounds[0]), bounds[1]) for bound in (low, high))
            x = self.old.nodes[x.inputs[0]]
        result = Result(name, node.type.quant, sources, low, high)
        held = self._view(x.id)
        if held is not None:
            return emit.requantize(self.new, held, result)
        return self._computed(x, result)

    def _computed(self, x: Node, result: Result) -> int:
        handler = self.handlers.get(type(x.op))
        if handler is None:
            raise RefusedError(f"{x.op.kind_name} {x.name!r} is computed in float: it has no int8 form here")
        return handler(x, result)

    def _held(self, old_id: int) -> int:
        held = self._view(old_id)
        if held is None:
            node = self.old.nodes[old_id]
            while not node.sources and isinstance(node.op, Reshape):  # On the way from the file's tensor.
                node = self.old.nodes[node.inputs[0]]
            if not node.sources and self.old.constant(node) is None:  # On the way to the file's tensor.
                raise RefusedError(f"{node.op.kind_name} {node.name!r} is computed in float: it has no int8 form here")
            what = "is a float constant" if self.old.constant(node) is not None else "is computed in float"
            raise RefusedError(
                f"its operand {node.name!r} {what}: a QuantizeLinear and a DequantizeLinear are needed after it"
            )
        return held

    def _binary(self, node: Node, result: Result) -> int:
        assert isinstance(node.op, Binary)
        found = self._biased(node)
        if found is not None:
            return self._anchor(found[0], result, found[1])
        if node.op.fn not in ON_INT8:
            raise RefusedError(f"{node.op.fn.value} {node.name!r} has no int8 form")
        operands = [self._held(i) for i in node.inputs]
        return self.new.add(Binary(node.op.fn, RULE, result.clamp), operands, result.name, result.quant, result.sources)

    def _biased(self, node: Node) -> tuple[Node, Bias] | None:
        """(anchor, bias) of an Add of one value a channel to a convolution or matrix product."""
        assert isinstance(node.op, Binary)
        if node.op.fn is not BinaryOp.ADD:
            return None
        for anchor, other in zip(self.old.operands(node), reversed(self.old.operands(node)), strict=True):
            product = self._product(anchor)
            if isinstance(product.op, Conv | MatMul) and anchor.type.shape == node.type.shape:
                values = self._constant(other)
                axis = 1 if isinstance(product.op, Conv) else len(anchor.type.shape) - 1
                if values is not None and _one_a_channel(values, anchor.type.shape, axis):
                    exact = self.biases.get(node.name)
                    return anchor, exact if exact is not None else (values.reshape(-1), None)
        return None

    def _product(self, node: Node) -> Node:
        """The node, or the convolution of which it is the result without the height (of one-dimensional ones)."""
        inner = self.old.nodes[node.inputs[0]] if isinstance(node.op, Reshape) else node
        flat = isinstance(inner.op, Conv) and inner.type.shape == (*node.type.shape[:2], 1, *node.type.shape[2:])
        return inner if flat else node

    def _constant(self, node: Node) -> Array | None:
        """The real values of a constant, also of a dequantized one."""
        if isinstance(node.op, Dequantize):
            values = self.old.constant(self.old.nodes[node.inputs[0]])
            if values is None:
                return None
            scales, zeros = QuantParams(node.op.scales, node.op.zero_points, node.op.axis).broadcast(values.ndim)
            return np.asarray(((values.astype(np.int64) - zeros) * scales).astype(np.float32))
        return self.old.constant(node)

    def _reshaped(self, node: Node, result: Result) -> int:
        """A Quantize after a Reshape is one before it."""
        inner = self._computed(self.old.nodes[node.inputs[0]], _inside(result))
        return self.new.add(node.op, [inner], result.name, result.quant, result.sources)

    def _anchor(self, node: Node, result: Result, bias: Bias = None) -> int:
        if isinstance(node.op, Reshape):
            inner = self._anchor(self._product(node), _inside(result), bias)
            return self.new.add(node.op, [inner], result.name, result.quant, result.sources)
        x, weights = self._held(node.inputs[0]), self._weights(self.old.nodes[node.inputs[1]])
        if isinstance(node.op, Conv):
            return emit.conv(self.new, node.op, x, weights, bias, result)
        return emit.dense(self.new, x, weights, bias, result)

    def _weights(self, node: Node) -> Weights:
        """int8 weights, perhaps transposed or reshaped after they are dequantized."""
        if isinstance(node.op, Dequantize):
            held = self.old.nodes[node.inputs[0]]
            values = self.old.constant(held)
            if values is None or held.type.quant is None:
                raise RefusedError(f"its weights {node.name!r} are computed by the model; constants are needed")
            return Weights(held.name, values, held.type.quant, held.sources, held.type.dtype)
        if isinstance(node.op, Transpose):
            inner = self._weights(self.old.nodes[node.inputs[0]])
            axis = None if inner.quant.axis is None else node.op.perm.index(inner.quant.axis)
            return replace(inner, values=inner.values.transpose(node.op.perm), quant=replace(inner.quant, axis=axis))
        if isinstance(node.op, Reshape):
            inner = self._weights(self.old.nodes[node.inputs[0]])
            if inner.quant.axis not in (None, 0) or node.type.shape[:1] != inner.values.shape[:1]:
                raise RefusedError(f"weights {node.name!r} with a scale a channel, which are reshaped")
            return replace(inner, values=inner.values.reshape(node.type.shape))
        raise RefusedError(
            f"its weights {node.name!r} are not quantized (no DequantizeLinear with a scale a tensor or a channel "
            "makes them)"
        )

    def _mean_pool(self, node: Node, result: Result) -> int:
        """A mean; a pooling by the maximum of int8 values is one already (see _make_view)."""
        assert isinstance(node.op, Pool)
        op = replace(node.op, requant=RULE, clamp=result.clamp)
        return self.new.add(op, [self._held(node.inputs[0])], result.name, result.quant, result.sources)

    def _mean(self, node: Node, result: Result) -> int:
        assert isinstance(node.op, Reduce)
        if node.op.op is not ReduceOp.MEAN:
            raise RefusedError(f"a reduction by {node.op.op.value}; only the mean has an int8 form")
        return self._single(node, result)

    def _single(self, node: Node, result: Result) -> int:
        """An op of one operand whose int8 form has the same attributes."""
        return emit.bounded(self.new, _ruled(node.op), [self._held(node.inputs[0])], result)

    def _pad(self, node: Node, result: Result) -> int:
        """The value becomes that of the code that the Quantize gives it."""
        assert isinstance(node.op, Pad)
        moved = replace(result, name=f"{result.name}.operand", sources=())
        x = emit.requantize(self.new, self._held(node.inputs[0]), moved)
        low, high = result.clamp or (-128, 127)
        code = min(max(emit.code_of(node.op.value, result.quant), low), high)
        value = float(np.float32((code - result.quant.zero_point) * result.quant.scale))
        return self.new.add(replace(node.op, value=value), [x], result.name, result.quant, result.sources)

    def _concat(self, node: Node, result: Result) -> int:
        assert isinstance(node.op, Concat)
        return emit.concat(self.new, node.op, [self._held(i) for i in node.inputs], result)


def _title(node: Node) -> str:
    return f"{node.name!r} ({node.op.kind_name})"


def _inside(result: Result) -> Result:
    """The same for what is reshaped afterwards."""
    return replace(result, name=f"{result.name}.flat", sources=())


def _is_max_pool(node: Node) -> bool:
    return isinstance(node.op, Pool) and node.op.kind is ReduceOp.MAX


def _ruled(op: Op) -> Op:
    """The op under the rule onnx, where it has a rule."""
    changes: dict[str, Any] = {"requant": RULE} if hasattr(op, "requant") else {}
    return replace(op, **changes)


def _bounds(node: Node) -> tuple[float, float]:
    if isinstance(node.op, Activation) and node.op.fn is ActivationFn.RELU:
        return 0.0, np.inf
    return (node.op.min, node.op.max) if isinstance(node.op, Clamp) else (-np.inf, np.inf)


def _exact(result: Result) -> bool:
    """Whether the bounds are codes of their own, or beyond all codes, so that bounding codes bounds real values."""
    return not any(_inexact(bound, result.quant) for bound in (result.low, result.high))


def _inexact(value: float, quant: QuantParams) -> bool:
    smallest, largest = ((code - quant.zero_point) * quant.scale for code in (-128, 127))
    code = emit.code_of(value, quant)
    return smallest < value < largest and np.float32((code - quant.zero_point) * quant.scale) != np.float32(value)


def _one_a_channel(values: Array, shape: tuple[int, ...], axis: int) -> bool:
    full = (1,) * (len(shape) - values.ndim) + values.shape
    return len(full) == len(shape) and all(size == 1 for i, size in enumerate(full) if i != axis)
