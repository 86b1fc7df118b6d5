"""The table of int8 op -> ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, Graph, Node, QuantParams
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Dequantize,
    Expand,
    Layout,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    Slice,
    Softmax,
    Transpose,
)
from rlx_edge.ir.ops.conv import pad_sides

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)

AXES_ARE_AN_OPERAND = 18
"""The opset since which ReduceMean has its axes as an operand."""

BINARY = {BinaryOp.ADD: "Add", BinaryOp.SUB: "Sub", BinaryOp.MUL: "Mul"}

ACTIVATIONS = {
    ActivationFn.RELU: "Relu",
    ActivationFn.SIGMOID: "Sigmoid",
    ActivationFn.TANH: "Tanh",
    ActivationFn.EXP: "Exp",
    ActivationFn.LOG: "Log",
    ActivationFn.SQRT: "Sqrt",
    ActivationFn.NEG: "Neg",
    ActivationFn.ABS: "Abs",
    ActivationFn.SIN: "Sin",
    ActivationFn.COS: "Cos",
    ActivationFn.TAN: "Tan",
    ActivationFn.ATAN: "Atan",
    ActivationFn.RECIP: "Reciprocal",
    ActivationFn.ROUND: "Round",
    ActivationFn.FLOOR: "Floor",
    ActivationFn.CEIL: "Ceil",
    ActivationFn.SIGN: "Sign",
    ActivationFn.SOFTPLUS: "Softplus",
    ActivationFn.ELU: "Elu",
    ActivationFn.ERF: "Erf",
    ActivationFn.HARD_SWISH: "HardSwish",
    ActivationFn.HARD_SIGMOID: "HardSigmoid",
    ActivationFn.SOFTSIGN: "Softsign",
    ActivationFn.LEAKY_RELU: "LeakyRelu",
}
"""Functions that are one ONNX op of opset 17."""


class Exporter:
    """The ONNX nodes and constants of a graph in the making. int8 tensors have the names of the graph's nodes."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph = graph
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.int4: set[str] = set()
        """The constants that are int4 in the file."""
        self._names = {node.name for node in graph.nodes}
        self._real: dict[str, str] = {}

    def name(self, wanted: str) -> str:
        """A tensor's name that nothing else has."""
        count, found = 2, wanted
        while found in self._names:
            found, count = f"{wanted}_{count}", count + 1
        self._names.add(found)
        return found

    def constant(self, name: str, values: Array) -> str:
        unique = self.name(name)
        self.constants[unique] = values
        return unique

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def step(self, op: str, inputs: Sequence[str], suffix: str, **attributes: Any) -> str:
        """A node whose result is no tensor of the graph, but something on the way to one."""
        return self.node(op, inputs, self.name(suffix), **attributes)

    def parameters(self, name: str, quant: QuantParams) -> list[str]:
        """Scale and zero point of a tensor as constants: numbers, or one a channel."""
        scale, zero = np.array(quant.scales, np.float32), np.array(quant.zero_points, np.int8)
        if quant.axis is None:
            scale, zero = scale.reshape(()), zero.reshape(())
        held = [self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero_point", zero)]
        self.int4.update(held[1:] if name in self.int4 else ())
        return held

    def dequantized(self, tensor: str, quant: QuantParams) -> str:
        """The real values of an int8 tensor; one node however many ops read them."""
        if tensor not in self._real:
            axis = {} if quant.axis is None else {"axis": quant.axis}
            self._real[tensor] = self.step(
                "DequantizeLinear", [tensor, *self.parameters(tensor, quant)], f"{tensor}.real", **axis
            )
        return self._real[tensor]

    def real(self, node_id: int) -> str:
        """The real values of an operand, which may be a constant."""
        node = self.graph.nodes[node_id]
        values = self.graph.constant(node)
        if values is not None and node.name not in self.constants:
            self.constants[node.name] = values
        return self.dequantized(node.name, quant_of(node))

    def image(self, node_id: int, layout: Layout) -> str:
        """The real values of an image, as NCHW."""
        node = self.graph.nodes[node_id]
        if layout is Layout.NCHW:
            return self.real(node_id)
        moved = self.step("Transpose", [node.name], f"{node.name}.nchw", perm=TO_NCHW)
        return self.dequantized(moved, quant_of(node))

    def quantized(self, node: Node, real: str, clamp: tuple[int, int] | None, layout: Layout = Layout.NCHW) -> None:
        """The node's int8 tensor, from its real values (of an image: NCHW) and bounds in codes."""
        quant = quant_of(node)
        if clamp is not None:
            low, high = (np.float32((code - quant.zero_point) * quant.scale) for code in clamp)
            bounds = [self.constant(f"{node.name}.{what}", np.array(v)) for what, v in (("low", low), ("high", high))]
            real = self.step("Clip", [real, *bounds], f"{node.name}.clipped")
        parameters = self.parameters(f"{node.name}.out", quant)
        if layout is Layout.NCHW:
            self.node("QuantizeLinear", [real, *parameters], node.name)
            return
        held = self.step("QuantizeLinear", [real, *parameters], f"{node.name}.out_nchw")
        self.node("Transpose", [held], node.name, perm=TO_NHWC)


def quant_of(node: Node) -> QuantParams:
    if node.type.quant is None or node.type.dtype is not DType.I8:
        raise UnsupportedError(f"the tensor {node.name!r} is {node.type}, not int8 with a scale")
    return node.type.quant


def _weighted(ex: Exporter, node: Node, w_axis: int, perm: tuple[int, ...] | None) -> list[str]:
    """Weights and bias, dequantized."""
    x, w, bias = ex.graph.operands(node)
    values, integers = ex.graph.constant(w), ex.graph.constant(bias)
    if values is None or integers is None:
        raise UnsupportedError("its weights or its bias are computed by the model")
    quant = w.type.quant
    if quant is None:
        raise UnsupportedError(f"weights {w.name!r} without a scale")
    if quant.axis not in (None, w_axis):
        raise UnsupportedError(f"weights with a scale per index of axis {quant.axis}")
    name = ex.constant(f"{node.name}.weights", values if perm is None else values.transpose(perm))
    ex.int4.update([name] if w.type.dtype is not DType.I8 else [])
    scales = np.float32(quant_of(x).scale) * np.array(quant.scales, np.float32)
    scale = ex.constant(f"{node.name}.bias_scale", scales if quant.axis is not None else scales.reshape(()))
    held = ex.constant(f"{node.name}.bias", integers)
    axis = {} if quant.axis is None else {"axis": 0}
    return [
        ex.dequantized(name, quant),
        ex.step("DequantizeLinear", [held, scale], f"{node.name}.bias_real", **axis),
    ]


def conv(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, QConv2d)
    perm = TO_NCHW if op.layout is Layout.NHWC else None
    operands = [ex.image(node.inputs[0], op.layout), *_weighted(ex, node, 0, perm)]
    attributes = dict(strides=op.stride, pads=pad_sides(op.padding), dilations=op.dilation)
    real = ex.step("Conv", operands, f"{node.name}.conv", kernel_shape=op.kernel_size, group=op.groups, **attributes)
    ex.quantized(node, real, op.clamp, op.layout)


def dense(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, QMatMul)
    real = ex.step("Gemm", [ex.real(node.inputs[0]), *_weighted(ex, node, 1, None)], f"{node.name}.product")
    ex.quantized(node, real, node.op.clamp)


def pool(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Pool)
    if op.kind not in (ReduceOp.MEAN, ReduceOp.MAX):
        raise UnsupportedError(f"pooling by {op.kind.value}")
    mean = {"count_include_pad": int(op.count_include_pad)} if op.kind is ReduceOp.MEAN else {}
    real = ex.step(
        "AveragePool" if op.kind is ReduceOp.MEAN else "MaxPool",
        [ex.image(node.inputs[0], op.layout)],
        f"{node.name}.pooled",
        kernel_shape=op.kernel_size,
        strides=op.stride,
        pads=pad_sides(op.padding),
        **mean,
    )
    ex.quantized(node, real, op.clamp, op.layout)


def binary(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Binary)
    if node.op.fn not in BINARY:
        raise UnsupportedError(f"{node.op.fn.value} of int8 tensors")
    real = ex.step(BINARY[node.op.fn], [ex.real(i) for i in node.inputs], f"{node.name}.result")
    ex.quantized(node, real, node.op.clamp)


def activation(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Activation)
    op = ACTIVATIONS.get(node.op.fn)
    if op is None:
        raise UnsupportedError(f"{node.op.fn.value} is no single op of ONNX's opset 17")
    slope = 1 / 6 if node.op.fn is ActivationFn.HARD_SIGMOID else node.op.alpha
    alpha = {} if slope is None else {"alpha": slope}
    ex.quantized(node, ex.step(op, [ex.real(node.inputs[0])], f"{node.name}.result", **alpha), None)


def mean(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Reduce)
    if node.op.op is not ReduceOp.MEAN:
        raise UnsupportedError(f"a reduction by {node.op.op.value} of an int8 tensor")
    axes, operands, attributes = sorted(node.op.axes), [ex.real(node.inputs[0])], {"keepdims": int(node.op.keep_dim)}
    if ex.opset >= AXES_ARE_AN_OPERAND:
        operands.append(ex.constant(f"{node.name}.axes", np.array(axes, np.int64)))
        real = ex.step("ReduceMean", operands, f"{node.name}.mean", **attributes)
    else:
        real = ex.step("ReduceMean", operands, f"{node.name}.mean", axes=axes, **attributes)
    ex.quantized(node, real, None)


def softmax(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Softmax)
    if node.op.beta != 1.0:
        raise UnsupportedError(f"a softmax with beta {node.op.beta:g}")
    real = ex.step("Softmax", [ex.real(node.inputs[0])], f"{node.name}.softmax", axis=node.op.axis)
    ex.quantized(node, real, None)


def quantize(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Quantize)
    x = ex.graph.nodes[node.inputs[0]]
    ex.quantized(node, x.name if x.type.dtype is DType.F32 else ex.real(x.id), node.op.clamp)


def dequantize(ex: Exporter, node: Node) -> None:
    x = ex.graph.nodes[node.inputs[0]]
    ex.node("DequantizeLinear", [x.name, *ex.parameters(f"{node.name}.in", quant_of(x))], node.name)


def _code(value: float, quant: QuantParams) -> int:
    """The code that a bound or a padding value stands for: ties away from zero, as the int8 ops have it."""
    with np.errstate(over="ignore"):
        steps = float(np.float32(np.clip(value, -3e38, 3e38)) / np.float32(quant.scale))
    magnitude = math.floor(min(abs(steps), 1e6) + 0.5)
    return min(max(quant.zero_point + int(math.copysign(magnitude, steps)), -128), 127)


def clamp(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Clamp)
    low, high = (_code(value, quant_of(node)) for value in (node.op.min, node.op.max))
    ex.quantized(node, ex.real(node.inputs[0]), (low, high))


def pad(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Pad)
    quant = quant_of(node)
    code = _code(node.op.value, quant)
    amounts = [*(before for before, _ in node.op.pads), *(after for _, after in node.op.pads)]
    operands = [
        ex.real(node.inputs[0]),
        ex.constant(f"{node.name}.pads", np.array(amounts, np.int64)),
        ex.constant(f"{node.name}.value", np.array((code - quant.zero_point) * quant.scale, np.float32)),
    ]
    ex.quantized(node, ex.step("Pad", operands, f"{node.name}.padded"), None)


def _moved(ex: Exporter, node: Node) -> list[str]:
    """The operands of an op that moves elements, as they are."""
    operands = ex.graph.operands(node)
    if any(o.type.quant != node.type.quant for o in operands):
        raise UnsupportedError("operands with other quantization parameters than the output")
    return [operand.name for operand in operands]


def reshape(ex: Exporter, node: Node) -> None:
    shape = ex.constant(f"{node.name}.shape", np.array(node.type.shape, np.int64))
    ex.node("Reshape", [*_moved(ex, node), shape], node.name)


def transpose(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Transpose)
    ex.node("Transpose", _moved(ex, node), node.name, perm=node.op.perm)


def concat(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Concat)
    ex.node("Concat", _moved(ex, node), node.name, axis=node.op.axis)


def narrow(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Narrow)
    _slice(ex, node, {node.op.axis: (node.op.start, node.op.len, 1)})


def slice(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Slice)
    _slice(ex, node, {node.op.axis: (node.op.start, node.op.len, node.op.step)})


def reverse(ex: Exporter, node: Node) -> None:
    assert isinstance(node.op, Reverse)
    shape = node.type.shape
    _slice(ex, node, {axis % len(shape): (shape[axis] - 1, shape[axis], -1) for axis in node.op.axes})


def _slice(ex: Exporter, node: Node, picked: Mapping[int, tuple[int, int, int]]) -> None:
    """`picked`: first element, count and step by axis. A negative end counts from the axis's end, so that one before
    the first element is below any such count."""
    ends = [first + count * step for first, count, step in picked.values()]
    columns = {
        "starts": [first for first, _, _ in picked.values()],
        "ends": [end if end >= 0 else np.iinfo(np.int64).min for end in ends],
        "axes": list(picked),
        "steps": [step for _, _, step in picked.values()],
    }
    operands = [ex.constant(f"{node.name}.{name}", np.array(held, np.int64)) for name, held in columns.items()]
    ex.node("Slice", [*_moved(ex, node), *operands], node.name)


def expand(ex: Exporter, node: Node) -> None:
    shape = ex.constant(f"{node.name}.shape", np.array(node.type.shape, np.int64))
    ex.node("Expand", [*_moved(ex, node), shape], node.name)


OPS: Mapping[type[Op], Callable[[Exporter, Node], None]] = {
    QConv2d: conv,
    QMatMul: dense,
    Pool: pool,
    Binary: binary,
    Activation: activation,
    Reduce: mean,
    Softmax: softmax,
    Quantize: quantize,
    Dequantize: dequantize,
    Clamp: clamp,
    Pad: pad,
    Reshape: reshape,
    Transpose: transpose,
    Concat: concat,
    Narrow: narrow,
    Slice: slice,
    Expand: expand,
    Reverse: reverse,
}
