"""The table of float op -> int8 ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, Graph, GraphBuilder, Node, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops import (
    MOVES,
    Activation,
    Binary,
    Clamp,
    Concat,
    Conv,
    Input,
    MatMul,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
    Transpose,
    Trilu,
)
from rlx_edge.ir.ops.control import Custom
from rlx_edge.ir.ops.conv import pad_sides
from rlx_edge.passes.fuse import Fusion, bounds_of
from rlx_edge.quant.schemes import QuantizedWeights
from rlx_edge.reference.fixedpoint import freeze, quantize_f32

ANCHORS = (Conv, MatMul)
"""Ops with weights, which must be constants."""


@dataclass
class Lowering:
    """An int8 graph in the making. `ids` maps float nodes to int8 ones."""

    graph: Graph
    builder: GraphBuilder
    requant: Requant
    params: Mapping[int, QuantParams]
    fusions: Mapping[int, Fusion]
    layers: Mapping[int, QuantizedWeights]
    ids: dict[int, int] = field(default_factory=dict)

    def operand(self, float_id: int, quant: QuantParams | None = None) -> int:
        """The int8 node of a float one; where `quant` is given, requantized to it if it has other parameters."""
        node = self.graph.nodes[float_id]
        values = self.graph.constant(node)
        if values is not None:
            chosen = quant or self.params[float_id]
            return self.builder.param(node.name, quantize_f32(values, chosen), chosen, node.sources)
        held = self.ids[float_id]
        if quant is None or self.builder[held].type.quant == quant:
            return held
        return self.builder.add(Quantize.to(quant, self.requant), [held], f"{node.name}.requantized", quant)

    def result(self, node: Node, op: Op, operands: list[int]) -> int:
        """Append what computes a float node's value, at the parameters chosen for it."""
        return self.builder.add(op, operands, node.name, self.params[node.id], node.sources)

    def step(self, node: Node, op: Op, operands: list[int], suffix: str, quant: QuantParams) -> int:
        """Append something on the way to a float node's value."""
        return self.builder.add(op, operands, f"{node.name}.{suffix}", quant)

    def clamp(self, low: float, high: float, node: Node) -> tuple[int, int] | None:
        """Real bounds in the codes of a node's value; None where they bound nothing."""
        bounds = np.array([low, high], np.float64).clip(-3e38, 3e38).astype(np.float32)
        first, last = (int(q) for q in quantize_f32(bounds, self.params[node.id]))
        return None if (first, last) == (-128, 127) else (first, last)


def _input(lowering: Lowering, node: Node) -> int:
    type = TensorType(node.type.shape, DType.I8, lowering.params[node.id])
    return lowering.builder.input(node.name, type, node.sources)


def _weights(lowering: Lowering, fusion: Fusion) -> tuple[list[int], QuantParams]:
    """Parameters for the weights and bias of a fusion's anchor, and the weights' parameters."""
    made = lowering.layers[fusion.last.id]
    name = lowering.graph.nodes[fusion.anchor.inputs[1]].name
    w = lowering.builder.param(name, made.weights, made.weight_params, dtype=made.dtype)
    b = lowering.builder.param(f"{fusion.last.name}.bias_i32", made.bias, made.bias_params)
    return [w, b], made.weight_params


def _conv(lowering: Lowering, node: Node) -> int:
    fusion = lowering.fusions[node.id]
    op = fusion.anchor.op
    assert isinstance(op, Conv)
    x, out = lowering.params[fusion.anchor.inputs[0]], lowering.params[node.id]
    operands, w = _weights(lowering, fusion)
    lowered = QConv2d(
        kernel_size=op.kernel_size,
        stride=op.stride,
        padding=op.padding,
        dilation=op.dilation,
        groups=op.groups,
        x_zp=x.zero_point,
        w_zp=0,
        out_zp=out.zero_point,
        mult=real_multipliers(x, w, out),
        layout=op.layout,
        requant=lowering.requant,
        clamp=lowering.clamp(fusion.low, fusion.high, node),
    )
    return lowering.result(node, lowered, [lowering.operand(fusion.anchor.inputs[0]), *operands])


def _matmul(lowering: Lowering, node: Node) -> int:
    """Rows of all batch axes become the rows of one matrix."""
    fusion = lowering.fusions[node.id]
    x, out = lowering.params[fusion.anchor.inputs[0]], lowering.params[node.id]
    operands, w = _weights(lowering, fusion)
    op = QMatMul(
        x_zp=x.zero_point,
        w_zp=0,
        out_zp=out.zero_point,
        mult=real_multipliers(x, w, out),
        requant=lowering.requant,
        clamp=lowering.clamp(fusion.low, fusion.high, node),
    )
    rows = lowering.operand(fusion.anchor.inputs[0])
    shape = lowering.builder[rows].type.shape
    if len(shape) == 2:
        return lowering.result(node, op, [rows, *operands])
    flat = lowering.step(node, Reshape((-1, shape[-1])), [rows], "rows", x)
    product = lowering.step(node, op, [flat, *operands], "product", out)
    return lowering.result(node, Reshape(node.type.shape), [product])


def _binary(lowering: Lowering, node: Node) -> int:
    fusion = lowering.fusions[node.id]
    op = fusion.anchor.op
    assert isinstance(op, Binary)
    clamp = lowering.clamp(fusion.low, fusion.high, node)
    lowered = Binary(op.fn, lowering.requant, clamp)
    return lowering.result(node, lowered, [lowering.operand(i) for i in fusion.anchor.inputs])


def _activation(lowering: Lowering, node: Node) -> int:
    """A table of the 256 results; what is only bounds requantizes instead."""
    assert isinstance(node.op, Activation)
    if bounds_of(node) is not None:
        return _bounded(lowering, node)
    x = lowering.operand(node.inputs[0])
    op = replace(node.op, requant=lowering.requant)
    try:
        freeze(op, [lowering.builder[x].type], TensorType(node.type.shape, DType.I8, lowering.params[node.id]))
    except UnsupportedError:  # The rule's own kernel does not take such scales: the function of real values does.
        op = replace(op, requant=Requant.RLX)
    return lowering.result(node, op, [x])


def _bounded(lowering: Lowering, node: Node) -> int:
    """An activation that nothing before it could take in: requantize with bounds."""
    bounds = bounds_of(node)
    assert bounds is not None
    quant = lowering.params[node.id]
    op = Quantize.to(quant, lowering.requant, lowering.clamp(*bounds, node))
    return lowering.result(node, op, [lowering.operand(node.inputs[0])])


def _pool(lowering: Lowering, node: Node) -> int:
    """A mean that counts its padding is a mean without padding of a padded tensor."""
    op = node.op
    assert isinstance(op, Pool)
    x = lowering.operand(node.inputs[0])
    op = replace(op, requant=lowering.requant)
    if op.kind is ReduceOp.MEAN and op.count_include_pad:
        top, left, bottom, right = pad_sides(op.padding)
        op = replace(op, padding=(0, 0, 0, 0), count_include_pad=False)
        if max(top, left, bottom, right) > 0:
            pads = ((0, 0), (top, bottom), (left, right), (0, 0))
            x = lowering.step(node, Pad(pads), [x], "padded", lowering.params[node.id])
    return lowering.result(node, op, [x])


def _reduce(lowering: Lowering, node: Node) -> int:
    assert isinstance(node.op, Reduce)
    return lowering.result(node, replace(node.op, requant=lowering.requant), [lowering.operand(node.inputs[0])])


def _softmax(lowering: Lowering, node: Node) -> int:
    """Along the last axis, where the kernels take it; another axis is moved there and back."""
    assert isinstance(node.op, Softmax)
    x, rank = lowering.operand(node.inputs[0]), len(node.type.shape)
    axis, last = node.op.axis % rank, rank - 1
    op = replace(node.op, axis=last, requant=lowering.requant)
    if axis == last:
        return lowering.result(node, op, [x])
    swap = tuple({axis: last, last: axis}.get(i, i) for i in range(rank))
    moved = lowering.step(node, Transpose(swap), [x], "moved", lowering.params[node.inputs[0]])
    rows = lowering.step(node, op, [moved], "rows", lowering.params[node.id])
    return lowering.result(node, Transpose(swap), [rows])


def _same_params(lowering: Lowering, node: Node) -> int:
    """An op that moves elements: all operands at the output's parameters."""
    quant = lowering.params[node.id]
    return lowering.result(node, node.op, [lowering.operand(i, quant) for i in node.inputs])


def _custom(lowering: Lowering, node: Node) -> int:
    assert isinstance(node.op, Custom)
    registered = find_custom(node.op.name)
    assert registered is not None
    quant = lowering.params[node.id] if registered.same_quant else None
    first, *others = node.inputs
    operands = [lowering.operand(first, quant), *map(lowering.operand, others)]
    return lowering.result(node, node.op, operands)


LOWER: dict[type[Op], Callable[[Lowering, Node], int]] = {
    Input: _input,
    Conv: _conv,
    MatMul: _matmul,
    Binary: _binary,
    Activation: _activation,
    Clamp: _bounded,
    Pool: _pool,
    Reduce: _reduce,
    Softmax: _softmax,
    **dict.fromkeys((*MOVES, Trilu), _same_params),
    Pad: _same_params,
    Concat: _same_params,
    Custom: _custom,
}
"""By the kind of a node, or of the anchor of the fusion that it ends."""
