"""Empirical bias correction: a layer's mean error, per output channel, is taken off its bias.

Rounded weights and inputs shift the mean of what a layer computes; the shift is a constant, so the bias can undo it
(Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, the empirical variant).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.quant.layerwise import LayerInputs
from rlx_edge.quant.schemes import BIAS_MAX, QuantizedWeights
from rlx_edge.reference.fixedpoint import round_half_away


def correct_bias(inputs: LayerInputs) -> QuantizedWeights:
    """The layer with the bias that makes its mean output, before bounds, that of the float model on the data.

    A channel keeps its bias where the new one would be beyond BIAS_MAX.
    """
    layer = inputs.layer
    steps = round_half_away(inputs.mean_error() / np.array(layer.bias_params.scales))
    moved = layer.bias.astype(np.float64) + steps
    return replace(layer, bias=np.where(np.abs(moved) <= BIAS_MAX, moved, layer.bias).astype(np.int32))
