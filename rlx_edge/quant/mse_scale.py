"""Scales of weights with the least squared error, which clip the largest weights: of few codes, more are then used.

The classic choice before any data is looked at (Banner et al., Post Training 4-Bit Quantization of Convolutional
Networks for Rapid-Deployment, 2019), here by search over each output channel's own weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.quant.assign import float_bias, float_weights, weight_axis
from rlx_edge.quant.layerwise import LayerInputs
from rlx_edge.quant.schemes import BIAS_MAX, WEIGHT_MAX, QuantizedWeights, params_like, quantize_bias

FRACTIONS = np.linspace(0.05, 1.0, 96)
"""Scales that are tried, as shares of the one at which the largest weight is the largest code."""


def least_squared_error(inputs: LayerInputs) -> QuantizedWeights:
    """The layer with such scales, its weights rounded to nearest, and its bias at the new scales."""
    layer, axis = inputs.layer, weight_axis(inputs.fusion)
    weights = float_weights(inputs.graph, inputs.fusion).astype(np.float64)
    channels = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
    bias, most = float_bias(inputs.graph, inputs.fusion), WEIGHT_MAX[layer.bits]
    shared = layer.weight_params.axis is None
    widest = np.broadcast_to(np.array(layer.weight_params.scales), len(channels))
    least = np.abs(bias) / (inputs.operand_scale * BIAS_MAX)
    least = np.full_like(least, least.max()) if shared else least
    best, scales = np.full(len(widest), np.inf), widest
    for fraction in FRACTIONS:
        tried = np.maximum(widest * fraction, least)
        steps = tried[:, None]
        error = ((np.clip(np.rint(channels / steps), -most, most) * steps - channels) ** 2).sum(axis=1)
        error = np.full_like(error, error.sum()) if shared else error
        scales = np.where(error < best, tried, scales)
        best = np.minimum(error, best)
    params = params_like(layer, scales)
    steps, _ = params.broadcast(weights.ndim)
    codes = np.clip(np.rint(weights / steps), -most, most).astype(np.int8)
    stored, bias_params = quantize_bias(bias, params, inputs.operand_scale)
    return replace(layer, weights=codes, weight_params=params, bias=stored, bias_params=bias_params)
