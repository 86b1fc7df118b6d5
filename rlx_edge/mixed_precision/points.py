"""What a choice of bits for all layers is asked for, and what it takes and loses."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.ir.graph import brief
from rlx_edge.quant.quantize import Quantized
from rlx_edge.quant.widths import LayerRule

DEFAULT_TARGET = "cortex-m4"
DEFAULT_MAX_LOSS = 0.5

Mix = tuple[int, ...]
"""Bits of each layer, in the order of `WidthNoise.layers`."""


@dataclass(frozen=True)
class Limits:
    """flash_budget: predicted bytes of the model, its kernels and its code, as `generate --flash-budget` counts them.
    max_loss: points of top-1 below float's where there are labels, else points of agreement with float below 100;
    DEFAULT_MAX_LOSS where neither is given."""

    target: str = DEFAULT_TARGET
    flash_budget: int | None = None
    max_loss: float | None = None

    def __post_init__(self) -> None:
        if self.flash_budget is None and self.max_loss is None:
            object.__setattr__(self, "max_loss", DEFAULT_MAX_LOSS)


@dataclass(frozen=True)
class Measured:
    """A point as a whole: predicted bytes and instructions, output SQNR in dB, points lost (None: no classes), and of
    how many samples."""

    flash: int
    instructions: int
    sqnr_db: float
    loss: float | None
    loss_of: str
    samples: int

    @property
    def lost(self) -> int | None:
        """Points lost as a number of samples."""
        return None if self.loss is None else round(self.loss * self.samples / 100)


@dataclass(frozen=True)
class Point:
    """Bits of each layer by name; the SQNR as the sum over layers has it, and all else as measured as a whole."""

    bits: Mapping[str, int]
    sqnr_db: float
    measured: Measured

    @property
    def rules(self) -> tuple[LayerRule, ...]:
        """What a recipe file would say: the names as they are shown, where these tell layers apart."""
        return rules_for(self.bits)


def rules_for(bits: Mapping[str, int]) -> tuple[LayerRule, ...]:
    """A rule a layer."""
    shown = [brief(name) for name in bits]
    return tuple(
        LayerRule(_pattern(name if shown.count(brief(name)) > 1 else brief(name)), width)
        for name, width in bits.items()
    )


def _pattern(name: str) -> str:
    """What fits this name alone; with a colon first it would be a kind."""
    escaped = glob.escape(name)
    return f"[:]{escaped[1:]}" if escaped.startswith(":") else escaped


@dataclass(frozen=True)
class LayerWidth:
    """A layer with so many bits, all others having 8: output SQNR; bytes of its step and instructions, as they are
    where all layers have so many."""

    name: str
    bits: int
    flash: int
    instructions: int
    sqnr_db: float


@dataclass(frozen=True, eq=False)
class Mixed:
    """What each layer costs and loses with each width; all points that were measured, by rising flash, which one was
    chosen, and the model that it is."""

    layers: tuple[LayerWidth, ...]
    points: tuple[Point, ...]
    chosen: int
    quantized: Quantized

    @property
    def front(self) -> tuple[Point, ...]:
        """The points that no other one beats in flash and SQNR, by rising flash."""
        kept: list[Point] = []
        for point in self.points:
            if not kept or point.measured.sqnr_db > kept[-1].measured.sqnr_db:
                kept.append(point)
        return tuple(kept)

    @property
    def reference(self) -> dict[int, Point]:
        """The points with the same bits everywhere, by these."""
        return {max(p.bits.values()): p for p in self.points if len(set(p.bits.values())) == 1}
