"""What is known of a tensor ahead of time: shape, dtype, quantization parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlx_edge.ir.dtype import DType

Shape = tuple[int, ...]

MAX_RANK = 32
"""Axes that a tensor has at most: what every version of numpy can hold."""


@dataclass(frozen=True)
class QuantParams:
    """How an integer tensor stands for real values: real = (q - zero_point) * scale.

    One scale and zero point for the whole tensor (`axis` is None), or one per index of `axis`.
    Scales are kept as the file has them, float32 values held exactly in Python floats.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero_point: int) -> QuantParams:
        return QuantParams((float(scale),), (int(zero_point),))

    @property
    def scale(self) -> float:
        """The only scale. Raises ValueError on per-channel parameters."""
        if len(self.scales) != 1:
            raise ValueError(f"{len(self.scales)} scales where one was expected")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The only zero point, or the one that all channels share. Raises ValueError when they differ."""
        if len(set(self.zero_points)) != 1:
            raise ValueError("zero points differ from channel to channel")
        return self.zero_points[0]

    def broadcast(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scales (float64) and zero points (int64), shaped so that they broadcast against a tensor of `rank` axes."""
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = len(self.scales)
        return (
            np.array(self.scales, np.float64).reshape(shape),
            np.array(self.zero_points, np.int64).reshape(shape),
        )

    def problems(self, shape: Shape, dtype: DType) -> list[str]:
        """What is wrong with these parameters on a tensor of this shape and dtype."""
        found = []
        if not self.scales or len(self.scales) != len(self.zero_points):
            found.append(f"{len(self.scales)} scales beside {len(self.zero_points)} zero points")
        if self.axis is None and len(self.scales) > 1:
            found.append(f"{len(self.scales)} scales without an axis")
        if self.axis is not None and not 0 <= self.axis < len(shape):
            found.append(f"quantization axis {self.axis} of a tensor of rank {len(shape)}")
        elif self.axis is not None and len(self.scales) != shape[self.axis]:
            found.append(f"{len(self.scales)} scales for {shape[self.axis]} channels")
        if not all(math.isfinite(s) and s > 0 for s in self.scales):
            found.append("a scale that is not a positive number")
        low, high = dtype.limits
        if not all(low <= z <= high for z in self.zero_points):
            found.append(f"a zero point outside of {dtype.value}")
        return found


@dataclass(frozen=True)
class TensorType:
    """Shape, dtype and, for integer tensors that stand for real values, quantization parameters."""

    shape: Shape
    dtype: DType
    quant: QuantParams | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return (self.elements * self.dtype.bits + 7) // 8

    def __str__(self) -> str:
        text = f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"
        if self.quant is None:
            return text
        if self.quant.axis is not None or len(self.quant.scales) != 1 or len(self.quant.zero_points) != 1:
            return f"{text} s=axis {self.quant.axis}"
        return f"{text} s={self.quant.scale:.9g} z={self.quant.zero_point}"
