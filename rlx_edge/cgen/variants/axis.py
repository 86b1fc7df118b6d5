"""A direction of an image, and the bands in which a kernel goes along it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Band:
    """Of `outputs` outputs. inside, outside: the lines of the image, and how many of zero points, that it needs and
    that the band before has not left; kept: how many that one has."""

    outputs: int
    inside: range
    outside: int
    kept: int


@dataclass(frozen=True)
class Axis:
    """`outputs` windows of `kernel` values, `stride` apart, from value `first` on, which may lie before value 0."""

    size: int
    kernel: int
    stride: int
    first: int
    outputs: int

    def middle(self, outputs: int) -> Axis:
        """So many outputs from the middle, or all."""
        before = max(0, self.outputs - outputs) // 2
        return replace(self, first=self.first + before * self.stride, outputs=min(outputs, self.outputs))

    def bands(self, most: int, slides: bool = True) -> Iterator[Band]:
        """Bands of at most so many outputs. slides: lines that two bands have in common are kept from one to the
        next."""
        kept = 0
        for output in range(0, self.outputs, most):
            outputs = min(most, self.outputs - output)
            start = self.first + output * self.stride
            end = start + (outputs - 1) * self.stride + self.kernel
            inside = range(min(self.size, max(0, start + kept)), max(0, min(self.size, end)))
            yield Band(outputs, inside, end - start - kept - len(inside), kept)
            kept = max(0, self.kernel - self.stride) if slides else 0
