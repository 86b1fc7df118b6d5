"""From ranges and weights to scales, zero points and integers.

Activations: asymmetric int8, one scale a tensor, 0 within the range and exactly a code. Weights: symmetric, of 8
bits or fewer, one scale an output channel. Biases: int32 at x_scale * w_scale. Scales are float32 values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, DType, QuantParams
from rlx_edge.quant.observers import Range
from rlx_edge.reference.fixedpoint import round_half_away

CODES = 255
"""Steps between the smallest and the largest int8."""

WEIGHT_MAX: Mapping[int, int] = {8: 127, 4: 7, 3: 3, 2: 1}
"""By bits: the largest magnitude of a weight. 2 bits are ternary, -1, 0 and 1."""

WEIGHT_DTYPES: Mapping[int, DType] = {8: DType.I8, 4: DType.I4, 3: DType.I4, 2: DType.I2}
"""How weights of so many bits are stored."""

BIAS_MAX = 1 << 30
"""Largest bias: half of int32, which leaves the other half to the products."""

SMALLEST_SCALE = 1e-12
"""Smaller scales would lose precision to float32's subnormals once two are multiplied."""

LARGEST_SCALE = 2.0**60
"""The product of two larger ones would be infinite in float32; what they would cover is clipped."""

SOFTMAX_OUTPUT = QuantParams.per_tensor(1 / 256, -128)


def activation_params(range: Range) -> QuantParams:
    """Parameters that cover a range and 0. A tensor that is always 0 gets a scale of 1."""
    low, high = min(range.low, 0.0), max(range.high, 0.0)
    if low == high:
        return QuantParams.per_tensor(1.0, 0)
    scale = _float32(min(max((high - low) / CODES, SMALLEST_SCALE), LARGEST_SCALE))
    zero_point = int(round_half_away(np.array(-128 - low / scale)))
    return QuantParams.per_tensor(scale, min(max(zero_point, -128), 127))


@dataclass(frozen=True)
class QuantizedWeights:
    """Weights of `bits` bits, each an int8, and int32 bias [C], with their parameters."""

    weights: Array
    weight_params: QuantParams
    bias: Array
    bias_params: QuantParams
    bits: int = 8

    @property
    def dtype(self) -> DType:
        """What the graph stores the weights as."""
        return WEIGHT_DTYPES[self.bits]


def quantize_weights(
    weights: Array, axis: int, bias: Array, x_scale: float, bits: int = 8, per_tensor: bool = False
) -> QuantizedWeights:
    """Weights with output channels along `axis`, rounded to nearest, and their bias [C] in real values.

    A channel's scale is max|w| / WEIGHT_MAX[bits], raised where the bias would not fit int32 otherwise. A channel of
    zeros takes the largest scale of the others. `per_tensor`: the largest scale is that of all channels.
    """
    params = weight_params(weights, axis, bias, x_scale, bits)
    if per_tensor:
        params = QuantParams.per_tensor(max(params.scales), 0)
    steps, _ = params.broadcast(weights.ndim)
    most = WEIGHT_MAX[bits]
    q = np.clip(round_half_away(weights.astype(np.float64) / steps), -most, most).astype(np.int8)
    return QuantizedWeights(np.ascontiguousarray(q), params, *quantize_bias(bias, params, x_scale), bits)


def weight_params(weights: Array, axis: int, bias: Array, x_scale: float, bits: int = 8) -> QuantParams:
    """The scales that `quantize_weights` gives."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    largest = np.abs(weights.astype(np.float64)).max(axis=others)
    scales = np.maximum(largest / WEIGHT_MAX[bits], SMALLEST_SCALE)
    scales[largest == 0] = scales.max() if largest.any() else 1.0
    scales = np.maximum(scales, np.abs(bias) / (x_scale * BIAS_MAX))
    return QuantParams(tuple(_float32(min(s, LARGEST_SCALE)) for s in scales), (0,) * len(scales), axis)


def quantize_bias(bias: Array, weight_params: QuantParams, x_scale: float) -> tuple[Array, QuantParams]:
    """A bias [C] in real values as int32 at x_scale * w_scale, and its parameters, of all channels or of each."""
    scales = np.array(weight_params.scales) * x_scale
    # The bounds matter only where the largest scale is too small for the bias.
    q = np.clip(round_half_away(bias.astype(np.float64) / scales), -2 * BIAS_MAX, 2 * BIAS_MAX - 1).astype(np.int32)
    axis = None if weight_params.axis is None else 0
    return q, QuantParams(tuple(float(s) for s in scales), (0,) * len(scales), axis)


def params_like(layer: QuantizedWeights, scales: Array) -> QuantParams:
    """Parameters of a layer's weights with other scales [C]; with the first one alone where it has one for all."""
    axis = layer.weight_params.axis
    kept = tuple(_float32(float(s)) for s in (scales.ravel()[:1] if axis is None else scales.ravel()))
    return QuantParams(kept, (0,) * len(kept), axis)


def constant_params(values: Array) -> QuantParams:
    """Parameters of a constant operand, from its own values."""
    return activation_params(Range(float(values.min()), float(values.max())))


def _float32(value: float) -> float:
    return float(np.float32(value))
