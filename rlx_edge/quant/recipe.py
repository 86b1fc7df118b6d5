"""How a model is quantized, as one fixed record: which ranges, and which methods beyond rounding to nearest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.errors import EdgeError
from rlx_edge.quant.widths import ADAPTIVE, GPTQ, METHODS, NEAREST, LayerRule

ROUNDINGS = tuple(METHODS)


@dataclass(frozen=True)
class Recipe:
    """The choices of one quantization, in the order in which they act.

    `equalize`: move factors between layers before calibration (equalize.py). `observer` and `search`: how a tensor's
    range is chosen (calibrate.py). `headroom`: widen ranges that few values gave (headroom.py). `weights`: bits and
    rounding of layers (widths.py), 8 bits where it is empty. `rounding`: one of widths.METHODS, for layers of 8 bits
    whose rule names none. `bias_correction`: cancel each layer's mean error (bias_correction.py).
    Raises EdgeError for a rounding that does not exist.
    """

    observer: str = "minmax"
    search: bool = False
    equalize: bool = False
    headroom: bool = False
    bias_correction: bool = False
    rounding: str = NEAREST
    weights: tuple[LayerRule, ...] = ()

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise EdgeError(f"no rounding {self.rounding!r}; there are {', '.join(ROUNDINGS)}")

    @property
    def needs_data(self) -> bool:
        """Whether `quantize` runs the model on data once more after calibration."""
        return self.bias_correction or self.rounding != NEAREST or bool(self.weights)

    def method(self, rule: LayerRule) -> str:
        """How the weights of a layer with this rule are rounded."""
        return rule.method or (self.rounding if rule.bits == 8 else GPTQ)


EFFORTS: Mapping[str, Recipe] = {
    "fast": Recipe(),
    "balanced": Recipe(observer="auto", bias_correction=True),
    "best": Recipe(equalize=True, headroom=True, bias_correction=True, rounding=ADAPTIVE),
}
"""The bundles of `--effort`; docs/accuracy.md has what each gives."""

DEFAULT_EFFORT = "balanced"
"""What the command does unless told otherwise."""


def effort(name: str) -> Recipe:
    """The recipe of that effort. Raises EdgeError listing the names."""
    if name not in EFFORTS:
        raise EdgeError(f"no effort {name!r}; there are {', '.join(EFFORTS)}")
    return EFFORTS[name]
