"""Activations that a TFLite operator can have fused into it, as bounds in quantized units. For import and export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tflite

from rlx_edge.ir import DType, QuantParams

FUSED_LIMITS: Mapping[int, tuple[float, float]] = {
    tflite.ActivationFunctionType.NONE: (float("-inf"), float("inf")),
    tflite.ActivationFunctionType.RELU: (0.0, float("inf")),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""The real bounds of each fused activation that the int8 kernels have."""


def fused_bounds(activation: int, out: QuantParams) -> tuple[int, int]:
    """The bounds in codes of an int8 output."""
    low, high = codes_of(FUSED_LIMITS[activation], out)
    return low, high


def codes_of(limits: Sequence[float], out: QuantParams) -> tuple[int, ...]:
    """Real numbers in int8 codes: zero_point + round(limit / scale), the division in float32, saturated."""
    return tuple(_code(limit, out) for limit in limits)


def _code(limit: float, out: QuantParams) -> int:
    low, high = DType.I8.limits
    with np.errstate(over="ignore"):
        steps = float(np.float32(limit) / np.float32(out.scale))
    if abs(steps) > high - low:
        return high if steps > 0 else low
    rounded = int(np.copysign(np.floor(abs(steps) + 0.5), steps))
    return min(max(rounded + out.zero_point, low), high)
