"""The table of ONNX ops, and the builders of those that are neither convolution nor pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlx_edge.formats import onnx_window
from rlx_edge.formats.onnx_node import OnnxNode, RefusedError
from rlx_edge.ir import Array, Shape
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    MatMul,
    Pad,
    Reduce,
    ReduceOp,
    Reshape,
    Softmax,
    Transpose,
)

Builder = Callable[[OnnxNode], int]
"""Appends a node's meaning to the graph and returns the id of its result."""

FLOAT_MAX = float(np.finfo(np.float32).max)


def matmul(node: OnnxNode) -> int:
    if min(len(node.shape(0)), len(node.shape(1))) < 2:
        raise RefusedError(
            f"operands of shapes {list(node.shape(0))} and {list(node.shape(1))}; vectors are not supported"
        )
    return node.result(MatMul(), [node.operand(0), node.operand(1)])


def gemm(node: OnnxNode) -> int:
    """alpha * A' * B' + beta * C: factors and transpositions go into the constants."""
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    x = node.operand(0)
    if node.integer("transA", 0):
        x = node.step(Transpose((1, 0)), [x], "a_transposed")
    weights = node.constant(1, "operand B")
    if node.integer("transB", 0):
        weights = weights.T
    w = node.parameter("weights", np.float32(alpha) * weights)
    if not node.given(2) or beta == 0.0:
        return node.result(MatMul(), [x, w])
    bias = node.constant(2, "operand C")
    product = node.step(MatMul(), [x, w], "product")
    return node.result(Binary(BinaryOp.ADD), [product, node.parameter("bias", np.float32(beta) * bias)])


def binary(fn: BinaryOp) -> Builder:
    def build(node: OnnxNode) -> int:
        return node.result(Binary(fn), [node.operand(0), node.operand(1)])

    return build


def relu(node: OnnxNode) -> int:
    return node.result(Activation(ActivationFn.RELU), [node.operand(0)])


def clip(node: OnnxNode) -> int:
    """Bounds are attributes up to opset 10, constants from 11 on; a bound that is left out does not bound."""
    if node.opset < 11:
        low, high = node.real("min", -FLOAT_MAX), node.real("max", FLOAT_MAX)
    else:
        low, high = (
            float(node.constant(i, f"the bound {what}").reshape(())) if node.given(i) else default
            for i, what, default in ((1, "min", -FLOAT_MAX), (2, "max", FLOAT_MAX))
        )
    if low == 0.0 and high == FLOAT_MAX:
        return relu(node)
    # ONNX lets the upper bound win where the two cross.
    return node.result(Clamp(min(low, high), high), [node.operand(0)])


def batch_normalization(node: OnnxNode) -> int:
    """Mul and Add by one constant a channel; the pass fold_batchnorm works them into a convolution before it."""
    if node.integer("training_mode", 0) or node.integer("spatial", 1) != 1:
        raise RefusedError("attribute training_mode=1 or spatial=0 is not supported")
    node.without_effect("momentum")
    gamma, beta, mean, variance = (
        node.constant(i, what).astype("float64") for i, what in enumerate(("scale", "B", "mean", "var"), start=1)
    )
    factor: Array = gamma / (variance + node.real("epsilon", 1e-5)) ** 0.5
    offset = beta - mean * factor
    channels = (-1, *(1,) * (len(node.shape(0)) - 2))
    scaled = node.step(
        Binary(BinaryOp.MUL), [node.operand(0), node.parameter("scale", factor.reshape(channels))], "scaled"
    )
    return node.result(Binary(BinaryOp.ADD), [scaled, node.parameter("offset", offset.reshape(channels))])


def flatten(node: OnnxNode) -> int:
    shape = node.shape(0)
    axis = node.integer("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return node.result(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), [node.operand(0)])


def reshape(node: OnnxNode) -> int:
    wanted = node.indices(1, "the new shape")
    held = node.shape(0)
    keep_zero = node.integer("allowzero", 0) != 0
    if any(d == 0 and (keep_zero or axis >= len(held)) for axis, d in enumerate(wanted)):
        raise RefusedError(f"a shape {list(wanted)} with an axis without elements")
    copied = tuple(held[axis] if d == 0 else d for axis, d in enumerate(wanted))
    known = math.prod(d for d in copied if d != -1)
    full = tuple(math.prod(held) // max(known, 1) if d == -1 else d for d in copied)
    return node.result(Reshape(full), [node.operand(0)])


def squeeze(node: OnnxNode) -> int:
    shape = node.shape(0)
    axes = _axes(node, 1, before=13, default=tuple(i for i, d in enumerate(shape) if d == 1))
    gone = {axis % len(shape) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise RefusedError(f"axes {sorted(gone)} of shape {list(shape)} do not all have one element")
    return node.result(Reshape(tuple(d for i, d in enumerate(shape) if i not in gone)), [node.operand(0)])


def unsqueeze(node: OnnxNode) -> int:
    axes = _axes(node, 1, before=13, default=())
    rank = len(node.shape(0)) + len(axes)
    added = {axis % rank for axis in axes}
    rest = iter(node.shape(0))
    return node.result(Reshape(tuple(1 if i in added else next(rest) for i in range(rank))), [node.operand(0)])


def transpose(node: OnnxNode) -> int:
    perm = node.integers("perm", tuple(reversed(range(len(node.shape(0))))))
    return node.result(Transpose(perm), [node.operand(0)])


def concat(node: OnnxNode) -> int:
    axis = node.integer("axis", 0)
    rank = len(node.shape(0))
    operands = [node.operand(i) for i in range(node.operand_count)]
    return node.result(Concat(axis + rank if axis < 0 else axis), operands)


def pad(node: OnnxNode) -> int:
    mode = node.text("mode", "constant")
    if mode != "constant":
        raise RefusedError(f"attribute mode={mode} is not supported")
    rank = len(node.shape(0))
    if node.opset < 11:
        amounts, value = node.integers("pads", ()), node.real("value", 0.0)
    else:
        amounts = node.indices(1, "operand pads")
        value = float(node.constant(2, "the padding value").reshape(())) if node.given(2) else 0.0
    axes = node.indices(3, "operand axes") if node.given(3) else tuple(range(rank))
    if len(amounts) != 2 * len(axes) or min(amounts, default=0) < 0:
        raise RefusedError(f"pads {list(amounts)}: two numbers an axis are needed, none negative")
    pairs = {axis % rank: (amounts[i], amounts[len(axes) + i]) for i, axis in enumerate(axes)}
    return node.result(Pad(tuple(pairs.get(axis, (0, 0)) for axis in range(rank)), value=value), [node.operand(0)])


def softmax(node: OnnxNode) -> int:
    """Along one axis from opset 13 on; before, over all axes from `axis` to the last, taken as one."""
    shape = node.shape(0)
    axis = node.integer("axis", -1 if node.opset >= 13 else 1) % len(shape)
    if node.opset >= 13 or axis == len(shape) - 1:
        return node.result(Softmax(axis), [node.operand(0)])
    rows = node.step(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), [node.operand(0)], "rows")
    return node.result(Reshape(shape), [node.step(Softmax(1), [rows], "softmax")])


def reduce_mean(node: OnnxNode) -> int:
    rank = len(node.shape(0))
    axes = _axes(node, 1, before=18, default=())
    keep = node.integer("keepdims", 1) != 0
    if node.integer("noop_with_empty_axes", 0) and not axes:
        raise RefusedError("attribute noop_with_empty_axes=1 without axes is not supported")
    chosen = tuple(sorted({axis % rank for axis in axes})) or tuple(range(rank))
    return node.result(Reduce(ReduceOp.MEAN, chosen, keep), [node.operand(0)])


def identity(node: OnnxNode) -> int:
    return node.operand(0)


def dropout(node: OnnxNode) -> int:
    """The identity, outside of training."""
    node.without_effect("ratio", "seed")
    if node.given(2) and bool(node.constant(2, "operand training_mode").reshape(())):
        raise RefusedError("training_mode is on; export the model for inference")
    return node.operand(0)


def _axes(node: OnnxNode, index: int, before: int, default: Shape) -> tuple[int, ...]:
    """Axes are an attribute before an opset, and an operand from it on."""
    if node.opset < before:
        return node.integers("axes", default)
    return node.indices(index, "operand axes") if node.given(index) else default


OPS: dict[str, Builder] = {
    "Add": binary(BinaryOp.ADD),
    "AveragePool": onnx_window.average_pool,
    "BatchNormalization": batch_normalization,
    "Clip": clip,
    "Concat": concat,
    "Conv": onnx_window.conv,
    "Dropout": dropout,
    "Flatten": flatten,
    "Gemm": gemm,
    "GlobalAveragePool": onnx_window.global_average_pool,
    "Identity": identity,
    "MatMul": matmul,
    "MaxPool": onnx_window.max_pool,
    "Mul": binary(BinaryOp.MUL),
    "Pad": pad,
    "ReduceMean": reduce_mean,
    "Relu": relu,
    "Reshape": reshape,
    "Softmax": softmax,
    "Squeeze": squeeze,
    "Sub": binary(BinaryOp.SUB),
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
"""ONNX op type -> builder. `Constant`, `Shape` and every op on constants alone are worked out while importing."""
