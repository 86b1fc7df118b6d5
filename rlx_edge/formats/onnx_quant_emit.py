"""The int8 ops of the rule onnx, appended with what they need: integer biases, bounds in codes, alike operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.formats.onnx_node import RefusedError
from rlx_edge.ir import Array, DType, GraphBuilder, QuantParams, Requant, Shape, real_multipliers
from rlx_edge.ir.ops import Concat, Conv, Op, QConv2d, QMatMul, Quantize, Reshape

RULE = Requant.ONNX
INT32 = (-(2**31), 2**31 - 1)
SAME_SCALE = 1e-5
"""How far a bias's scale may be from x_scale * w_scale, which passed through float32, to count as that."""


@dataclass(frozen=True)
class Result:
    """What an op is to compute: the tensor's name and parameters, its sources, and real bounds (fused activations)."""

    name: str
    quant: QuantParams
    sources: tuple[str, ...] = ()
    low: float = -np.inf
    high: float = np.inf

    @property
    def clamp(self) -> tuple[int, int] | None:
        """The bounds in codes; None where they bound nothing."""
        low, high = (code_of(bound, self.quant) for bound in (self.low, self.high))
        return None if (low, high) == (-128, 127) else (low, max(low, high))


@dataclass(frozen=True)
class Weights:
    """Weights of 8 bits or fewer, each an int8, with their parameters: one scale, or one an output channel."""

    name: str
    values: Array
    quant: QuantParams
    sources: tuple[str, ...] = ()
    dtype: DType = DType.I8


Bias = tuple[Array, Array | None] | None
"""[C] integers with their scales, or real values with None; or no bias."""


def code_of(value: float, quant: QuantParams) -> int:
    """saturate(round(value / scale) + zero_point) in float32, ties to even."""
    with np.errstate(over="ignore"):
        steps = float(np.rint(np.float32(np.clip(value, -3e38, 3e38)) / np.float32(quant.scale)))
    return int(np.clip(np.clip(steps, -1e6, 1e6) + quant.zero_point, -128, 127))


def params_of(builder: GraphBuilder, node: int) -> QuantParams:
    """The parameters of an int8 tensor that has one scale. Raises RefusedError where it has none, or more."""
    quant = builder[node].type.quant
    if quant is None or len(quant.scales) != 1:
        raise RefusedError(f"its operand {builder[node].name!r} is not int8 with one scale")
    return quant


def integer_bias(bias: Bias, channels: int, x: QuantParams, w: QuantParams) -> tuple[Array, QuantParams]:
    """The bias [C] as int32 at x_scale * w_scale. Integers that have this scale are kept, others are rounded anew."""
    scales = np.broadcast_to(np.float64(x.scale) * np.array(w.scales, np.float64), (channels,))
    quant = QuantParams(tuple(float(s) for s in scales), (0,) * channels, 0)
    if bias is None:
        return np.zeros(channels, np.int32), quant
    values, held = bias
    if any(v.size not in (1, channels) for v in bias if v is not None):
        raise RefusedError(f"a bias of {values.size} values for {channels} channels, or as many scales")
    values = np.broadcast_to(values.reshape(-1), (channels,))
    if held is not None and np.allclose(held, scales, rtol=SAME_SCALE, atol=0.0):
        return np.array(values, np.int32), quant
    real = values.astype(np.float64) * (1.0 if held is None else held.astype(np.float64))
    steps = np.rint(real / scales)
    if not np.isfinite(steps).all() or steps.min() < INT32[0] or steps.max() > INT32[1]:
        raise RefusedError("its bias does not fit int32 at x_scale * w_scale: a weight scale or an input scale is tiny")
    return steps.astype(np.int32), quant


def _weight_zero_point(weights: Weights, axis: int) -> int:
    quant = weights.quant
    if quant.axis not in (None, axis):
        raise RefusedError(f"weights with a scale per index of axis {quant.axis}; output channels are axis {axis}")
    if len(set(quant.zero_points)) != 1:
        raise RefusedError("weights whose zero points differ from channel to channel are not supported")
    return quant.zero_point


def _param(builder: GraphBuilder, weights: Weights) -> int:
    values = np.ascontiguousarray(weights.values)
    return builder.param(weights.name, values, weights.quant, weights.sources, weights.dtype)


def conv(builder: GraphBuilder, op: Conv, x: int, weights: Weights, bias: Bias, result: Result) -> int:
    """QConv2d with the windows of a Conv; weights in the layout of `op`, output channels first."""
    source, w_zp = params_of(builder, x), _weight_zero_point(weights, 0)
    integers, bias_quant = integer_bias(bias, weights.values.shape[0], source, weights.quant)
    lowered = QConv2d(
        kernel_size=op.kernel_size,
        stride=op.stride,
        padding=op.padding,
        dilation=op.dilation,
        groups=op.groups,
        x_zp=source.zero_point,
        w_zp=w_zp,
        out_zp=result.quant.zero_point,
        mult=real_multipliers(source, weights.quant, result.quant),
        layout=op.layout,
        requant=RULE,
        clamp=result.clamp,
    )
    w = _param(builder, weights)
    b = builder.param(f"{result.name}.bias_i32", integers, bias_quant)
    return builder.add(lowered, [x, w, b], result.name, result.quant, result.sources)


def dense(builder: GraphBuilder, x: int, weights: Weights, bias: Bias, result: Result) -> int:
    """QMatMul of weights [K, N]; an operand of more axes becomes a matrix of all its rows."""
    source, w_zp = params_of(builder, x), _weight_zero_point(weights, 1)
    if weights.values.ndim != 2:
        raise RefusedError(f"weights of shape {list(weights.values.shape)}; a matrix is needed")
    integers, bias_quant = integer_bias(bias, weights.values.shape[1], source, weights.quant)
    lowered = QMatMul(
        x_zp=source.zero_point,
        w_zp=w_zp,
        out_zp=result.quant.zero_point,
        mult=real_multipliers(source, weights.quant, result.quant),
        requant=RULE,
        clamp=result.clamp,
    )
    w = _param(builder, weights)
    b = builder.param(f"{result.name}.bias_i32", integers, bias_quant)
    shape: Shape = builder[x].type.shape
    if len(shape) == 2:
        return builder.add(lowered, [x, w, b], result.name, result.quant, result.sources)
    flat = builder.add(Reshape((-1, shape[-1])), [x], f"{result.name}.rows", source)
    product = builder.add(lowered, [flat, w, b], f"{result.name}.product", result.quant)
    full = (*shape[:-1], weights.values.shape[1])
    return builder.add(Reshape(full), [product], result.name, result.quant, result.sources)


def requantize(builder: GraphBuilder, x: int, result: Result) -> int:
    """The tensor at other parameters, or within bounds; the tensor itself where neither changes anything."""
    if builder[x].type.quant == result.quant and result.clamp is None:
        return x
    op = Quantize.to(result.quant, RULE, result.clamp)
    return builder.add(op, [x], result.name, result.quant, result.sources)


def concat(builder: GraphBuilder, op: Concat, operands: Sequence[int], result: Result) -> int:
    """Operands are brought to the output's parameters first."""
    names = [f"{builder[x].name}.for_{result.name}" for x in operands]
    alike = [
        requantize(builder, x, replace(result, name=name, sources=())) for x, name in zip(operands, names, strict=True)
    ]
    return builder.add(op, alike, result.name, result.quant, result.sources)


def bounded(builder: GraphBuilder, op: Op, operands: Sequence[int], result: Result) -> int:
    """An op that has no bounds of its own, and a Quantize with the bounds after it where there are some."""
    if result.clamp is None:
        return builder.add(op, operands, result.name, result.quant, result.sources)
    inner = builder.add(op, operands, f"{result.name}.unbounded", result.quant)
    return requantize(builder, inner, result)
