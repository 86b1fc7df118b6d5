"""Every kind of the RLX vocabulary, by name. The kinds that no edge device runs are loaded when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from rlx_edge.ir import ops
from rlx_edge.ir.ops.base import Op

FURTHER: tuple[str, ...] = (
    *("pointwise", "modulation", "products", "ordering", "volumes"),
    *("regions", "fused", "fused_layers", "control"),
    *("attention", "recurrent", "scans", "spectral", "synth"),
    *("beyond.random", "beyond.solve", "beyond.complex_numbers", "beyond.losses"),
    *("beyond.gradients", "beyond.norm_gradients", "beyond.modulation_gradients"),
    *("beyond.window_gradients", "beyond.learned_gradients"),
    *("beyond.experts", "beyond.scaled", "beyond.spd", "beyond.splats"),
)
"""Modules of rlx_edge.ir.ops with further kinds, each with a tuple KINDS, by family."""

_REQUANT = "the rule of rounding when int8 results are requantized"
_FROZEN = "the integers that a target computes with, once passes have settled them"
_LAYOUT = "NHWC, which devices compute in, beside the vocabulary's NCHW"
_CLAMP = "bounds of the result: an activation that was fused"
_FROZEN_KINDS = ("Activation", "Binary", "QConv2d", "QMatMul", "Quantize", "Reduce", "Softmax")
_WINDOW = "the width of MaskKind.SlidingWindow"

OURS: Mapping[str, str] = {
    "ActivationFn.LeakyRelu": "ONNX and TFLite have it",
    "ActivationFn.Table": "any function on int8, by its 256 values",
    "Activation.alpha": "the slope of LeakyRelu",
    "Pad.value": "what PadMode.Constant holds",
    **dict.fromkeys(("Attention.window", "AttentionBackward.window", "AttentionBackwardAll.window"), _WINDOW),
    "Softmax.beta": "TFLite has it",
    "Pool.count_include_pad": "ONNX has it",
    "RmsNorm()": "beta may be left out",
    "DequantMatMul()": "a bias may follow",
    "SchemeKind.MlxAffine": "the name: the file has none for the scheme of DequantGroupedMatMulMlx",
    "ScaledFormat.F8E4M3": "the name: the file speaks of FP8 and E4M3",
    **dict.fromkeys(("FftQScale.None", "FftQScale.PerStage"), "the names: the file speaks of the type alone"),
    "ScaleLayout.PerTensor": "the name: the file speaks of one scale for a tensor",
    **dict.fromkeys(("Conv.layout", "ConvTranspose2d.layout", "Pool.layout", "QConv2d.layout"), _LAYOUT),
    **{f"{kind}.clamp": _CLAMP for kind in ("Binary", "DequantMatMul", "Pool", "QConv2d", "QMatMul", "Quantize")},
    **{f"{kind}.requant": _REQUANT for kind in (*_FROZEN_KINDS, "Pool")},
    **{f"{kind}.frozen": _FROZEN for kind in _FROZEN_KINDS},
}
"""What the kinds have that the vocabulary's do not, and what for: attributes, members, and `Kind()` its operands."""

DIFFERENT: Mapping[str, str] = {
    "QMatMul.mult": "one number, or one for each column",
    "QConv2d.mult": "one number, or one for each output channel",
}
"""Attributes of another type than the vocabulary's."""


@cache
def all_kinds() -> Mapping[str, type[Op]]:
    """Kinds by name: those of `rlx_edge.ir.ops` first, then the further ones."""
    further = (import_module(f"rlx_edge.ir.ops.{module}").KINDS for module in FURTHER)
    return {kind.__name__: kind for kinds in (ops.ALL, *further) for kind in kinds}


def find_kind(name: str) -> type[Op] | None:
    """The kind of that name, or None."""
    return ops.BY_KIND.get(name) or all_kinds().get(name)
