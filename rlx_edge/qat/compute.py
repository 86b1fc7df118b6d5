"""What each float op means in PyTorch, for every op that has an int8 form: what `quant/lower.py` has in its table.

Weights and biases are handed in, so that the caller can round them first. Tensors keep the graph's layout (NHWC once it
is prepared); the first axis is the batch, of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Node
from rlx_edge.ir.ops import (
    MOVES,
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Conv,
    Expand,
    Layout,
    MatMul,
    Narrow,
    Op,
    Pad,
    PadMode,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    Slice,
    Softmax,
    Transpose,
)
from rlx_edge.ir.ops.conv import pad_sides

LARGE = 1e30
"""What infinity counts as; NaN counts as 0, as it does in int8 tables."""


def conv(op: Conv, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """A convolution with weights and x in the op's layout."""
    image, kernels = _to_nchw(x, op.layout), _to_nchw(weights, op.layout)
    top, left, bottom, right = pad_sides(op.padding)
    if (top, left) != (bottom, right):
        image, top, left = F.pad(image, (left, right, top, bottom)), 0, 0
    result = F.conv2d(image, kernels, bias, op.stride, (top, left), op.dilation, op.groups)
    return _from_nchw(result, op.layout)


def dense(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    return torch.matmul(x, weights) + bias


def pool(op: Pool, x: Tensor) -> Tensor:
    image = _to_nchw(x, op.layout)
    top, left, bottom, right = pad_sides(op.padding)
    sides = (left, right, top, bottom)
    if op.kind is ReduceOp.MAX:
        padded = F.pad(image, sides, value=-math.inf)
        return _from_nchw(F.max_pool2d(padded, op.kernel_size, op.stride), op.layout)
    sums = F.avg_pool2d(F.pad(image, sides), op.kernel_size, op.stride, divisor_override=1)
    if op.count_include_pad:
        return _from_nchw(sums / math.prod(op.kernel_size), op.layout)
    ones = F.pad(torch.ones_like(image[:1, :1]), sides)
    counts = F.avg_pool2d(ones, op.kernel_size, op.stride, divisor_override=1)
    return _from_nchw(sums / counts, op.layout)


def _to_nchw(x: Tensor, layout: Layout) -> Tensor:
    return x.permute(0, 3, 1, 2) if layout is Layout.NHWC else x


def _from_nchw(x: Tensor, layout: Layout) -> Tensor:
    return x.permute(0, 2, 3, 1) if layout is Layout.NHWC else x


BINARY: Mapping[BinaryOp, Callable[[Tensor, Tensor], Tensor]] = {
    BinaryOp.ADD: torch.add,
    BinaryOp.SUB: torch.sub,
    BinaryOp.MUL: torch.mul,
}

ACTIVATIONS: Mapping[ActivationFn, Callable[[Tensor], Tensor]] = {
    ActivationFn.GELU: F.gelu,
    ActivationFn.GELU_APPROX: lambda x: F.gelu(x, approximate="tanh"),
    ActivationFn.SILU: F.silu,
    ActivationFn.RELU: torch.relu,
    ActivationFn.SIGMOID: torch.sigmoid,
    ActivationFn.TANH: torch.tanh,
    ActivationFn.EXP: torch.exp,
    ActivationFn.LOG: torch.log,
    ActivationFn.SQRT: torch.sqrt,
    ActivationFn.RSQRT: torch.rsqrt,
    ActivationFn.NEG: torch.neg,
    ActivationFn.ABS: torch.abs,
    ActivationFn.SIN: torch.sin,
    ActivationFn.COS: torch.cos,
    ActivationFn.TAN: torch.tan,
    ActivationFn.ATAN: torch.atan,
    ActivationFn.RECIP: torch.reciprocal,
    ActivationFn.ROUND: torch.round,
    ActivationFn.FLOOR: torch.floor,
    ActivationFn.CEIL: torch.ceil,
    ActivationFn.SIGN: torch.sign,
    ActivationFn.SOFTPLUS: F.softplus,
    ActivationFn.ELU: F.elu,
    ActivationFn.ERF: torch.erf,
    ActivationFn.HARD_SWISH: F.hardswish,
    ActivationFn.HARD_SIGMOID: F.hardsigmoid,
    ActivationFn.MISH: F.mish,
    ActivationFn.SOFTSIGN: F.softsign,
    ActivationFn.LOG_SIGMOID: F.logsigmoid,
}
"""Those without a parameter."""


def activation(op: Activation, x: Tensor) -> Tensor:
    made = F.leaky_relu(x, op.alpha or 0.0) if op.fn is ActivationFn.LEAKY_RELU else ACTIVATIONS[op.fn](x)
    return torch.nan_to_num(made, nan=0.0, posinf=LARGE, neginf=-LARGE)


def pad(op: Pad, x: Tensor) -> Tensor:
    sides = [side for before_after in reversed(op.pads) for side in before_after]
    return F.pad(x, sides, value=op.value)


def moved(op: Op, x: Tensor) -> Tensor:
    """A part of a tensor, or its elements in another order or several times; the first axis, the batch, stays."""
    if isinstance(op, Narrow):
        return x.narrow(op.axis, op.start, op.len)
    if isinstance(op, Slice):
        return x.index_select(op.axis, op.start + op.step * torch.arange(op.len, device=x.device))
    if isinstance(op, Expand):
        return x.expand(-1, *op.target_shape[1:])
    assert isinstance(op, Reverse)
    return x.flip(op.axes)


def compute(node: Node, x: Sequence[Tensor]) -> Tensor:
    """A node without weights on the values of its operands."""
    op: Op = node.op
    if isinstance(op, Binary):
        return BINARY[op.fn](x[0], x[1])
    if isinstance(op, Activation):
        return activation(op, x[0])
    if isinstance(op, Clamp):
        return x[0].clamp(op.min, op.max)
    if isinstance(op, Pool):
        return pool(op, x[0])
    if isinstance(op, Reduce):
        return x[0].mean(dim=op.axes, keepdim=op.keep_dim)
    if isinstance(op, Softmax):
        return torch.softmax(x[0] * op.beta, dim=op.axis)
    if isinstance(op, Reshape):
        return x[0].reshape(x[0].shape[0], *node.type.shape[1:])
    if isinstance(op, Transpose):
        return x[0].permute(op.perm)
    if isinstance(op, MOVES):
        return moved(op, x[0])
    if isinstance(op, Pad):
        return pad(op, x[0])
    assert isinstance(op, Concat)
    return torch.cat(list(x), dim=op.axis)


def problem(op: Op) -> str | None:
    """Why an op cannot be trained, or None. What has no int8 form is refused before."""
    if isinstance(op, Activation):
        return None if op.fn in ACTIVATIONS or op.fn is ActivationFn.LEAKY_RELU else f"the function {op.fn.value}"
    if isinstance(op, Binary):
        return None if op.fn in BINARY else f"the function {op.fn.value}"
    if isinstance(op, Reduce):
        return None if op.op is ReduceOp.MEAN else f"a reduction by {op.op.value}"
    if isinstance(op, Pad):
        return None if op.mode is PadMode.CONSTANT else f"padding in mode {op.mode.value}"
    kinds = (Conv, MatMul, Clamp, Pool, Softmax, Concat, *MOVES)
    return None if isinstance(op, kinds) else op.kind_name


def refuse(name: str, nodes: Sequence[Node]) -> None:
    """Raise UnsupportedError listing every node that cannot be trained."""
    found = [f"{node}: {why}" for node in nodes if (why := problem(node.op)) is not None]
    if found:
        raise UnsupportedError(f"{name!r} cannot be trained:", found)
