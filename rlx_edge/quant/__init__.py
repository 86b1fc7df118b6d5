"""From float to int8: calibrate on data, choose parameters, lower, and measure what was lost."""

from __future__ import annotations

from rlx_edge.quant.calibrate import Calibration, calibrate
from rlx_edge.quant.explain import Explanation, explain
from rlx_edge.quant.explain_json import explanation_facts, read_explanation, with_explanation
from rlx_edge.quant.observers import Range
from rlx_edge.quant.quality import Quality, TensorQuality, quality
from rlx_edge.quant.quantize import quantize

__all__ = [
    "Calibration",
    "Explanation",
    "Quality",
    "Range",
    "TensorQuality",
    "calibrate",
    "explain",
    "explanation_facts",
    "quality",
    "quantize",
    "read_explanation",
    "with_explanation",
]
"""The stages, in the order in which a model goes through them: calibrate, quantize, quality or explain."""
