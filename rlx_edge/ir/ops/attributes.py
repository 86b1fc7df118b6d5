"""Attributes that an op and its gradient share. Enum values are the vocabulary's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MaskKind(Enum):
    """Which keys a query of an attention sees. Ours: the window of `SLIDING_WINDOW` is the op's attribute `window`."""

    NONE = "None"
    CAUSAL = "Causal"
    """Keys up to the query's own position."""
    SLIDING_WINDOW = "SlidingWindow"
    """Keys from the query's position less `window` up to that position."""
    CUSTOM = "Custom"
    """An operand [batch, keys]: 1 is a key that counts, less than 0.5 one that does not."""
    BIAS = "Bias"
    """An operand [batch, heads, queries, keys], added to the scaled scores."""


MASK_OPERANDS = (MaskKind.CUSTOM, MaskKind.BIAS)
"""The kinds for which the mask is an operand, the last one."""


class RopeStyle(Enum):
    """Which elements of a head a rotary embedding rotates together."""

    NEOX = "NeoX"
    """i and i + n_rot / 2."""
    GPT_J = "GptJ"
    """2i and 2i + 1."""


@dataclass(frozen=True)
class Codebook:
    """Weights [n, k] as codes [n, k / entry_dim] (u8) of rows of a codebook [num_entries, entry_dim]."""

    entry_dim: int
    num_entries: int


SynthKind = Codebook
"""How weights are made from what is stored: so far the vocabulary has one way."""
