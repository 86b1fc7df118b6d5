"""What calibration keeps of the values that it sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value of a tensor."""

    low: float
    high: float

    @property
    def is_constant(self) -> bool:
        return self.low == self.high


class MinMax:
    """Keeps the smallest and the largest value."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    def update(self, values: Array) -> bool:
        """Take in one batch; False, and nothing kept, where it holds NaN or infinity."""
        low, high = float(np.min(values)), float(np.max(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            return False
        self._low, self._high = min(self._low, low), max(self._high, high)
        return True

    @property
    def range(self) -> Range:
        return Range(self._low, self._high)
