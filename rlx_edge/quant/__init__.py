"""From float to int8: calibrate on data, choose parameters, lower, and measure what was lost."""

from __future__ import annotations

from rlx_edge.quant.calibrate import Calibration, calibrate
from rlx_edge.quant.observers import Range
from rlx_edge.quant.quality import Quality, TensorQuality, quality
from rlx_edge.quant.quantize import quantize

__all__ = ["Calibration", "Quality", "Range", "TensorQuality", "calibrate", "quality", "quantize"]
"""The stages, in the order in which a model goes through them: calibrate, quantize, quality."""
