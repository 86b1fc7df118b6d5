"""Do a tensor's codes cover the values that it takes? They were chosen for the calibration data, not for these."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array, QuantParams

SHARE = 0.01
"""More values outside of the covered range than this are worth a line."""

REACH = 1.5
"""So is a value this many times as far out as the range is wide, from its other end."""

I8_LOW, I8_HIGH = -128, 127


def percent(share: float) -> str:
    """A share as a percentage that does not show a few as none."""
    if share == 0:
        return "0"
    digits = 2 if share < 0.995 else 4  # Two digits of 99.5 and more would be 1e+02.
    return f"{100 * share:.{digits}g} %" if share >= 1e-6 else "<0.0001 %"


@dataclass(frozen=True)
class Coverage:
    """The real values that int8 codes cover, those that were seen, and how many of these the codes clip."""

    covered_low: float
    covered_high: float
    low: float
    high: float
    outside: int
    count: int

    @property
    def clipped(self) -> float:
        """The share of values that the codes clip."""
        return self.outside / self.count

    def joined(self, other: Coverage) -> Coverage:
        """Both, of other values at the same parameters, in one."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return replace(self, low=low, high=high, outside=self.outside + other.outside, count=self.count + other.count)

    @property
    def reach(self) -> float:
        """How far the values go, in widths of the covered range: 1 where all are covered."""
        width = self.covered_high - self.covered_low
        return max(self.high - self.covered_low, self.covered_high - self.low, width) / width

    @property
    def hardly(self) -> bool:
        """Whether a person should know."""
        return self.clipped > SHARE or self.reach > REACH

    def text(self) -> str:
        """What was found, without a subject."""
        return (
            f"{percent(self.clipped)} of the values lie outside of what its codes cover: values {self.low:.4g} to "
            f"{self.high:.4g}, covered {self.covered_low:.4g} to {self.covered_high:.4g}"
        )


def coverage(values: Array, quant: QuantParams) -> Coverage:
    """How int8 codes at a whole tensor's parameters cover real values; one step beyond counts as covered."""
    scale, zero = quant.scale, quant.zero_point
    low, high = (I8_LOW - zero) * scale, (I8_HIGH - zero) * scale
    outside = int(np.count_nonzero(values < low - scale)) + int(np.count_nonzero(values > high + scale))
    return Coverage(low, high, float(values.min()), float(values.max()), outside, values.size)
