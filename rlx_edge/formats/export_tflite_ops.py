"""Graph -> TFLite operators: one function an op kind, in one table.

A function appends the operators that compute a node's tensor. It raises UnsupportedError with the reason alone; the
exporter adds which node it was and goes on, so that one message lists everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_tflite_context import (
    RESCALING_MUL_VERSION,
    Exporter,
    missing_bounds,
    quant_of,
)
from rlx_edge.formats.export_tflite_moves import MOVES
from rlx_edge.formats.export_tflite_windows import conv, dense, pool
from rlx_edge.formats.tflite_fused import codes_of
from rlx_edge.ir import DType, FrozenTable, Node, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Dequantize,
    Op,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Softmax,
)

SUM_HEADROOM = 1 << 20
"""ADD and SUB shift left by 20 bits; their kernels need a last multiplier below 1."""


def quantize(ex: Exporter, node: Node) -> None:
    """QUANTIZE bounds nothing itself."""
    op = node.op
    assert isinstance(op, Quantize)
    _emit_quantize(ex, node, op.clamp)


def _emit_quantize(ex: Exporter, node: Node, clamp: tuple[int, int] | None = None) -> None:
    rest = missing_bounds(clamp)
    first = ex.scratch(node, "unbounded", node.type) if rest else ex.tensor(node)
    ex.emit("QUANTIZE", ex.operands(node), first, "QuantizeOptions")
    ex.emit_bounds(node, first, rest)


def dequantize(ex: Exporter, node: Node) -> None:
    ex.emit("DEQUANTIZE", ex.operands(node), ex.tensor(node), "DequantizeOptions")


def binary(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Binary)
    a, b = (quant_of(type) for type in ex.graph.operand_types(node))
    if op.fn is BinaryOp.MUL:
        version = RESCALING_MUL_VERSION if a.scale * b.scale / quant_of(node.type).scale >= 1.0 else 0
        ex.emit_bounded(node, op.clamp, "MUL", ex.operands(node), "MulOptions", version)
    elif op.fn in (BinaryOp.ADD, BinaryOp.SUB):
        if 2.0 * max(a.scale, b.scale) >= SUM_HEADROOM * quant_of(node.type).scale:
            raise UnsupportedError("an output scale too small for its operands' (TFLite's kernel stops there)")
        kind, options = ("ADD", "AddOptions") if op.fn is BinaryOp.ADD else ("SUB", "SubOptions")
        ex.emit_bounded(node, op.clamp, kind, ex.operands(node), options)
    else:
        raise UnsupportedError(f"an int8 {op.fn.value} (Add, Sub and Mul are exported)")


def reduce(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Reduce)
    if op.op is not ReduceOp.MEAN:
        raise UnsupportedError(f"an int8 reduction by {op.op.value} (Mean is exported)")
    if not op.axes:
        _emit_quantize(ex, node)  # The mean of single elements rescales each of them, by the same multiplier.
        return
    rank = len(ex.graph.operand_types(node)[0].shape)
    axes = ex.integers(sorted({axis % rank for axis in op.axes}), "axes")
    ex.emit("MEAN", [*ex.operands(node), axes], ex.tensor(node), "ReducerOptions", KeepDims=op.keep_dim)


def softmax(ex: Exporter, node: Node) -> None:
    """Along the last axis; another one is moved there and back."""
    op = node.op
    assert isinstance(op, Softmax)
    rank = len(node.type.shape)
    axis, last = op.axis % rank, rank - 1
    if float(np.float32(op.beta)) != op.beta:
        raise UnsupportedError(f"beta = {op.beta}, which is not a float32 number; .tflite stores float32")
    (x,) = ex.operands(node)
    if axis == last:
        ex.emit("SOFTMAX", [x], ex.tensor(node), "SoftmaxOptions", Beta=op.beta)
        return
    swap = tuple({axis: last, last: axis}.get(i, i) for i in range(rank))
    shape = tuple(node.type.shape[i] for i in swap)
    moved = ex.scratch(node, "moved", TensorType(shape, DType.I8, ex.graph.operand_types(node)[0].quant))
    rows = ex.scratch(node, "rows", TensorType(shape, DType.I8, node.type.quant))
    perm = ex.integers(swap, "perm")
    ex.emit("TRANSPOSE", [x, perm], moved, "TransposeOptions")
    ex.emit("SOFTMAX", [moved], rows, "SoftmaxOptions", Beta=op.beta)
    ex.emit("TRANSPOSE", [rows, perm], ex.tensor(node), "TransposeOptions")


def clamp(ex: Exporter, node: Node) -> None:
    """At least one operator, also where the bounds are those of int8."""
    op = node.op
    assert isinstance(op, Clamp)
    low, high = codes_of((op.min, op.max), quant_of(node.type))
    ex.emit_bounds(node, ex.operands(node)[0], missing_bounds((low, high)) or {"MAXIMUM": low})


@dataclass(frozen=True)
class Kernel:
    """An operator whose int8 kernel is what a rule's table holds, and the output's parameters that it insists on."""

    kind: str
    options: str = ""
    output: QuantParams | None = None


KERNELS: Mapping[ActivationFn, Kernel] = {
    ActivationFn.SIGMOID: Kernel("LOGISTIC", "", QuantParams.per_tensor(1 / 256, -128)),
    ActivationFn.TANH: Kernel("TANH", "", QuantParams.per_tensor(1 / 128, 0)),
    ActivationFn.HARD_SWISH: Kernel("HARD_SWISH", "HardSwishOptions"),
    ActivationFn.RELU: Kernel("RELU"),
    ActivationFn.LEAKY_RELU: Kernel("LEAKY_RELU", "LeakyReluOptions"),
    ActivationFn.ABS: Kernel("ABS", "AbsOptions"),
}
"""The kernels that both runtimes have; reference/activation_tables.py has their bits, rule by rule."""

MICRO_KERNELS: Mapping[ActivationFn, Kernel] = {**KERNELS, ActivationFn.ELU: Kernel("ELU")}
"""Those of tflite-micro. tflite-runtime's reference kernels have no int8 ELU."""


def activation(ex: Exporter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Activation)
    kernel = (MICRO_KERNELS if op.requant is Requant.TFLM else KERNELS).get(op.fn)
    if kernel is None or kernel.output not in (None, node.type.quant):
        _look_up(ex, node, op)
        return
    fields: dict[str, Any] = {"Alpha": op.alpha or 0.0} if op.fn is ActivationFn.LEAKY_RELU else {}
    ex.emit(kernel.kind, ex.operands(node), ex.tensor(node), kernel.options, **fields)


def _look_up(ex: Exporter, node: Node, op: Activation) -> None:
    """Any table: the code plus 128 is the position in it. A function that TFLite has no int8 kernel for."""
    if not isinstance(op.frozen, FrozenTable):
        raise UnsupportedError(f"an int8 {op.fn.value} without its table: freeze the graph first (passes/freeze.py)")
    (x,) = ex.operands(node)
    integers = TensorType(node.type.shape, DType.I32)
    code, position = ex.scratch(node, "code", integers), ex.scratch(node, "position", integers)
    table = ex.constant(node, "table", np.array(op.frozen.codes, np.int8), node.type.quant)
    types = {"InDataType": tflite.TensorType.INT8, "OutDataType": tflite.TensorType.INT32}
    ex.emit("CAST", [x], code, "CastOptions", **types)
    ex.emit("ADD", [code, ex.integers([-DType.I8.limits[0]], "first_position")], position, "AddOptions")
    ex.emit("GATHER", [table, position], ex.tensor(node), "GatherOptions")


EXPORTERS: Mapping[type[Op], Callable[[Exporter, Node], None]] = {
    QConv2d: conv,
    QMatMul: dense,
    Pool: pool,
    Quantize: quantize,
    Dequantize: dequantize,
    Binary: binary,
    Reduce: reduce,
    Softmax: softmax,
    Clamp: clamp,
    Activation: activation,
    **MOVES,
}
"""Every op kind that is exported."""
