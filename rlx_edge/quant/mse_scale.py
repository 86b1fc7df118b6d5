"""Scales of weights with the least squared error, which clip the largest weights: of few codes, more are then used.

The classic choice before any data is looked at (Banner et al., Post Training 4-Bit Quantization of Convolutional
Networks for Rapid-Deployment, 2019), here by search over each output channel's own weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.ir import QuantParams
from rlx_edge.quant.assign import float_bias, float_weights, weight_axis
from rlx_edge.quant.layerwise import LayerInputs
from rlx_edge.quant.schemes import BIAS_MAX, WEIGHT_MAX, QuantizedWeights, quantize_bias

FRACTIONS = np.linspace(0.05, 1.0, 96)
"""Scales that are tried, as shares of the one at which the largest weight is the largest code."""


def least_squared_error(inputs: LayerInputs) -> QuantizedWeights:
    """The layer with such scales, its weights rounded to nearest, and its bias at the new scales."""
    layer, axis = inputs.layer, weight_axis(inputs.fusion)
    weights = float_weights(inputs.graph, inputs.fusion).astype(np.float64)
    channels = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
    bias, most = float_bias(inputs.graph, inputs.fusion), WEIGHT_MAX[layer.bits]
    widest = np.array(layer.weight_params.scales)
    least = np.abs(bias) / (inputs.operand_scale * BIAS_MAX)
    best, scales = np.full(len(widest), np.inf), widest
    for fraction in FRACTIONS:
        tried = np.maximum(widest * fraction, least)
        steps = tried[:, None]
        error = ((np.clip(np.rint(channels / steps), -most, most) * steps - channels) ** 2).sum(axis=1)
        scales = np.where(error < best, tried, scales)
        best = np.minimum(error, best)
    params = QuantParams(tuple(float(np.float32(s)) for s in scales), (0,) * len(scales), axis)
    steps, _ = params.broadcast(weights.ndim)
    codes = np.clip(np.rint(weights / steps), -most, most).astype(np.int8)
    stored, bias_params = quantize_bias(bias, params, inputs.operand_scale)
    return replace(layer, weights=codes, weight_params=params, bias=stored, bias_params=bias_params)
