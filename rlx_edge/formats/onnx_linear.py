"""ONNX's matrix products and normalizations."""

from __future__ import annotations

import math

import numpy as np

from rlx_edge.formats import onnx_blocks
from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError, from_start
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Expand,
    GroupNorm,
    LayerNorm,
    MatMul,
    Op,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
    RmsNorm,
    Transpose,
)


def matmul(node: OnnxNode) -> int:
    """A vector is a matrix of one row (first operand) or of one column (second), whose axis the result then lacks."""
    blocks = node.tensors.blocks.get(node.proto.input[1])
    if blocks is not None and blocks.codes.ndim == 2 and blocks.axis == 0:
        return onnx_blocks.matmul(node, blocks)
    a, b = node.operand(0), node.operand(1)
    (a_shape, b_shape) = node.shape(0), node.shape(1)
    if min(len(a_shape), len(b_shape)) < 1:
        raise RefusedError(f"operands of shapes {list(a_shape)} and {list(b_shape)}; a scalar has no product")
    if min(len(a_shape), len(b_shape)) >= 2:
        return node.result(MatMul(), [a, b])
    if len(a_shape) == 1:
        a = node.step(Reshape((1, *a_shape)), [a], "row")
    if len(b_shape) == 1:
        b = node.step(Reshape((*b_shape, 1)), [b], "column")
    product = node.step(MatMul(), [a, b], "product")
    shape = node.type_of(product).shape
    rows = shape[:-2] if len(a_shape) == 1 else shape[:-1]
    return node.result(Reshape((*rows, *(() if len(b_shape) == 1 else shape[-1:]))), [product])


def gemm(node: OnnxNode) -> int:
    """alpha * A' * B' + beta * C: factors and transpositions go into constants."""
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    x = node.operand(0)
    if node.integer("transA", 0):
        x = node.step(Transpose((1, 0)), [x], "a_transposed")
    op, operands = _product(node, x, alpha)
    has_bias = node.given(2) and beta != 0.0
    computed = node.known(1) is None and alpha != 1.0
    if not has_bias and not computed:
        return node.result(op, operands)
    product = node.step(op, operands, "product")
    if computed and not has_bias:
        return node.result(Binary(BinaryOp.MUL), [product, node.scalar("alpha", alpha)])
    if computed:
        product = node.step(Binary(BinaryOp.MUL), [product, node.scalar("alpha", alpha)], "scaled")
    return node.result(Binary(BinaryOp.ADD), [product, _bias(node, beta)])


def _product(node: OnnxNode, x: int, alpha: float) -> tuple[Op, list[int]]:
    """alpha * A' * B' of the rows x, alpha only where B is a constant."""
    blocks = node.tensors.blocks.get(node.proto.input[1])
    transposed = node.integer("transB", 0) != 0
    if blocks is not None and blocks.axis == int(transposed) and blocks.codes.ndim == 2 and alpha == 1.0:
        return onnx_blocks.multiply(node, x, blocks.transposed() if transposed else blocks)
    return MatMul(), [x, _second(node, alpha, transposed)]


def _second(node: OnnxNode, alpha: float, transposed: bool) -> int:
    weights = node.known(1)
    if weights is not None and weights.dtype == np.float32:
        return node.parameter("weights", np.float32(alpha) * (weights.T if transposed else weights))
    w = node.operand(1)
    return node.step(Transpose((1, 0)), [w], "b_transposed") if transposed else w


def _bias(node: OnnxNode, beta: float) -> int:
    values = node.known(2)
    if values is not None and values.dtype == np.float32:
        return node.parameter("bias", np.float32(beta) * values)
    c = node.operand(2)
    return c if beta == 1.0 else node.step(Binary(BinaryOp.MUL), [c, node.scalar("beta", beta)], "bias_scaled")


def batch_normalization(node: OnnxNode) -> int:
    """Mul and Add by one constant a channel; the pass fold_batchnorm works them into a convolution before it."""
    if node.integer("training_mode", 0) or node.integer("spatial", 1) != 1:
        raise RefusedError("attribute training_mode=1 or spatial=0 is not supported")
    node.without_effect("momentum")
    epsilon = node.real("epsilon", 1e-5)
    channels = (-1, *(1,) * (node.rank(0) - 2))
    if any(node.known(i) is None for i in range(1, 5)):
        return _computed_batch_normalization(node, epsilon, (node.shape(1)[0], *channels[1:]))
    gamma, beta, mean, variance = (
        node.constant(i, what).astype("float64") for i, what in enumerate(("scale", "B", "mean", "var"), start=1)
    )
    factor: Array = gamma / (variance + epsilon) ** 0.5
    offset = beta - mean * factor
    scaled = node.step(
        Binary(BinaryOp.MUL), [node.operand(0), node.parameter("scale", factor.reshape(channels))], "scaled"
    )
    return node.result(Binary(BinaryOp.ADD), [scaled, node.parameter("offset", offset.reshape(channels))])


def _computed_batch_normalization(node: OnnxNode, epsilon: float, shape: tuple[int, ...]) -> int:
    gamma, beta, mean, variance = (
        node.step(Reshape(shape), [node.operand(i)], what) for i, what in enumerate(("scale", "b", "mean", "var"), 1)
    )
    wide = node.step(Binary(BinaryOp.ADD), [variance, node.scalar("epsilon", epsilon)], "wide")
    factor = node.step(Binary(BinaryOp.MUL), [gamma, node.step(Activation(ActivationFn.RSQRT), [wide], "rsqrt")], "f")
    centered = node.step(Binary(BinaryOp.SUB), [node.operand(0), mean], "centered")
    return node.result(Binary(BinaryOp.ADD), [node.step(Binary(BinaryOp.MUL), [centered, factor], "scaled"), beta])


def layer_normalization(node: OnnxNode) -> list[int | None]:
    """LayerNorm over the last axes taken as one; the statistics, where they are read, by ops of their own."""
    (axis,) = from_start([node.integer("axis", -1)], node.rank(0))
    epsilon = node.real("epsilon", 1e-5)
    _check_stash(node)
    x = node.operand(0)
    gamma = _factor(node, node.operand(1), axis, "gamma")
    if node.given(2):
        beta = _factor(node, node.operand(2), axis, "beta")
    else:
        beta = node.parameter("beta", np.zeros(math.prod(node.shape(0)[axis:])))
    result = _over_last(node, LayerNorm(-1, epsilon), x, axis, [gamma, beta])
    if not node.wants(1) and not node.wants(2):
        return [result]
    axes = tuple(range(axis, node.rank(0)))
    mean = node.result(Reduce(ReduceOp.MEAN, axes, keep_dim=True), [x], 1)
    centered = node.step(Binary(BinaryOp.SUB), [x, mean], "centered")
    squares = node.step(Binary(BinaryOp.MUL), [centered, centered], "squares")
    variance = node.step(Reduce(ReduceOp.MEAN, axes, keep_dim=True), [squares], "variance")
    wide = node.step(Binary(BinaryOp.ADD), [variance, node.scalar("epsilon", epsilon)], "wide")
    return [result, mean, node.result(Activation(ActivationFn.RSQRT), [wide], 2) if node.wants(2) else None]


def rms_normalization(node: OnnxNode) -> int:
    (axis,) = from_start([node.integer("axis", -1)], node.rank(0))
    op = RmsNorm(-1, node.real("epsilon", 1e-5))
    _check_stash(node)
    return _over_last(node, op, node.operand(0), axis, [_factor(node, node.operand(1), axis, "gamma")])


def _check_stash(node: OnnxNode) -> None:
    if node.integer("stash_type", 1) != 1:
        raise RefusedError("attribute stash_type is not FLOAT")
    if node.dtype(0) is not DType.F32:
        raise RefusedError(f"operand of {node.dtype(0).value}; f32 is needed")


def _factor(node: OnnxNode, factor: int, axis: int, what: str) -> int:
    """A factor or offset as a vector over the last axes taken as one."""
    last = node.shape(0)[axis:]
    held = node.type_of(factor).shape
    if len(held) > len(last) and any(size != 1 for size in held[: len(held) - len(last)]):
        raise RefusedError(f"a factor of shape {list(held)} over axes {list(last)}")
    if held[-len(last) :] != last:
        factor = node.step(Expand(last), [factor], f"{what}_expanded")
    return node.step(Reshape((math.prod(last),)), [factor], what) if held != (math.prod(last),) else factor


def _over_last(node: OnnxNode, op: LayerNorm | RmsNorm, x: int, axis: int, factors: list[int]) -> int:
    shape = node.shape(0)
    if axis == len(shape) - 1:
        return node.result(op, [x, *factors])
    flat = node.step(Reshape((*shape[:axis], math.prod(shape[axis:]))), [x], "flat")
    return node.result(Reshape(shape), [node.step(op, [flat, *factors], "normal")])


def group_normalization(node: OnnxNode) -> int:
    """One factor a channel from opset 21 on; before, one a group."""
    groups, epsilon = node.integer("num_groups", 1), node.real("epsilon", 1e-5)
    node.without_effect("stash_type")
    channels = node.shape(0)[1]
    if groups < 1 or channels % groups:
        raise RefusedError(f"{channels} channels in {groups} groups")
    factors = [node.operand(1), node.operand(2)]
    if node.shape(1) == (groups,) and groups != channels:
        spread = [node.step(Reshape((groups, 1)), [f], "column") for f in factors]
        spread = [node.step(Expand((groups, channels // groups)), [f], "spread") for f in spread]
        factors = [node.step(Reshape((channels,)), [f], "factor") for f in spread]
    return node.result(GroupNorm(groups, epsilon), [node.operand(0), *factors])


def instance_normalization(node: OnnxNode) -> int:
    """GroupNorm with a group for each channel."""
    op = GroupNorm(node.shape(0)[1], node.real("epsilon", 1e-5))
    return node.result(op, [node.operand(0), node.operand(1), node.operand(2)])


def lp_normalization(node: OnnxNode) -> int:
    """x / |x|_p along an axis; where the norm is 0, x is too, and so is the result."""
    (axis,) = from_start([node.integer("axis", -1)], node.rank(0))
    p, x = node.integer("p", 2), node.operand(0)
    if p == 1:
        terms = node.step(Activation(ActivationFn.ABS), [x], "terms")
    elif p == 2:
        terms = node.step(Binary(BinaryOp.MUL), [x, x], "terms")
    else:
        raise RefusedError(f"attribute p={p} is not supported")
    norm = node.step(Reduce(ReduceOp.SUM, (axis,), keep_dim=True), [terms], "sum")
    if p == 2:
        norm = node.step(Activation(ActivationFn.SQRT), [norm], "norm")
    tiny = node.scalar("tiny", float(np.finfo(np.float32).tiny))
    return node.result(Binary(BinaryOp.DIV), [x, node.step(Binary(BinaryOp.MAX), [norm, tiny], "bounded")])


def local_response_normalization(node: OnnxNode) -> int:
    """x / (bias + alpha / size * sum of squares over nearby channels)^beta; the sum by a mean pool over channels."""
    shape, size = node.shape(0), node.integer("size", 1)
    alpha, beta, bias = node.real("alpha", 1e-4), node.real("beta", 0.75), node.real("bias", 1.0)
    if len(shape) < 3 or size < 1:
        raise RefusedError(f"operand of shape {list(shape)} with size={size}")
    x = node.operand(0)
    squares = node.step(Binary(BinaryOp.MUL), [x, x], "squares")
    planes = node.step(Reshape((shape[0], 1, shape[1], math.prod(shape[2:]))), [squares], "planes")
    before = (size - 1) // 2
    window = Pool(ReduceOp.MEAN, (size, 1), (1, 1), (before, 0, size - 1 - before, 0), count_include_pad=True)
    mean = node.step(Reshape(shape), [node.step(window, [planes], "nearby")], "mean")
    scaled = node.step(Binary(BinaryOp.MUL), [mean, node.scalar("alpha", alpha)], "scaled")
    base = node.step(Binary(BinaryOp.ADD), [scaled, node.scalar("bias", bias)], "base")
    divisor = node.step(Binary(BinaryOp.POW), [base, node.scalar("beta", beta)], "divisor")
    return node.result(Binary(BinaryOp.DIV), [x, divisor])


OPS: dict[str, Builder] = {
    "BatchNormalization": batch_normalization,
    "Gemm": gemm,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response_normalization,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "MatMul": matmul,
    "RMSNormalization": rms_normalization,
}
