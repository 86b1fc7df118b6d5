"""What was found of one limit: the figure, the limit, and how far they are apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MODEL = "model"
"""What a finding is `of` that concerns the model on every board."""
PARITY = "differing_bytes"
"""The limit that a parity run is: no byte differs."""
_DECIMALS = 12
"""Of differences of floats: 0.976 - 0.974 must not be more than 0.002."""


class Bound(StrEnum):
    """On which side of its limit a figure must stay; the limit itself is within."""

    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True)
class Finding:
    """One limit of the model or of a board (`of`), and its figure, in bytes, instructions or the unit of a metric.

    `figure` is None where nothing could be measured; `note` then says why, and else what a person should see. `seconds`
    is what the measuring took, counted at the first of the figures that came of it.
    """

    of: str
    name: str
    bound: Bound
    limit: float
    figure: float | None
    note: str = ""
    seconds: float = 0.0

    @property
    def margin(self) -> float | None:
        """How far the figure lies within the limit; negative where the limit is broken."""
        if self.figure is None:
            return None
        return apart(self.limit, self.figure) if self.bound is Bound.AT_MOST else apart(self.figure, self.limit)

    @property
    def kept(self) -> bool:
        return self.margin is not None and self.margin >= 0


def apart(a: float, b: float) -> float:
    """a - b, without what the last bits of floats add to it."""
    return round(a - b, _DECIMALS)
