"""From the numbers of a data file to the real values that a model takes: real = (x * scale - mean) / std."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlx_edge.errors import DataError
from rlx_edge.ir import Array
from rlx_edge.stored import new_array, release

EXAMPLE = "scale=1/255,mean=0.5,std=0.25"
RESIZE = "resize"
BLOCK = 1 << 18
"""Numbers that are held in float64 at a time, at least a sample."""


@dataclass(frozen=True)
class Preprocess:
    """Factors of the formula; `mean` and `std` hold one number, or one per channel.

    `resize` (height, width) is for folders of images, which are stretched to that size first.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: tuple[int, int] | None = None

    @staticmethod
    def parse(text: str) -> Preprocess:
        """From text such as `scale=1/255,mean=0.485,0.456,0.406,std=0.229,0.224,0.225`. Raises DataError."""
        values: dict[str, list[float]] = {}
        resize: tuple[int, int] | None = None
        key = ""
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            if equals and name.strip() == RESIZE:
                resize, key = _size(number, text), ""
                continue
            if equals:
                key = name.strip()
                _check_key(key, text, values)
            elif not key:
                raise DataError(f"preprocess {text!r}: write it as in {EXAMPLE}")
            values.setdefault(key, []).append(_number(number, text))
        scale = values.get("scale", [1.0])
        if len(scale) != 1 or scale[0] == 0:
            raise DataError(f"preprocess {text!r}: scale must be one number that is not 0")
        std = tuple(values.get("std", [1.0]))
        if 0 in std:
            raise DataError(f"preprocess {text!r}: std must not be 0")
        return Preprocess(scale[0], tuple(values.get("mean", [0.0])), std, resize)

    def __str__(self) -> str:
        """Text that `parse` turns into the same factors."""
        groups = (("scale", (self.scale,)), ("mean", self.mean), ("std", self.std))
        factors = ",".join(f"{key}={','.join(map(repr, numbers))}" for key, numbers in groups)
        return factors if self.resize is None else f"{factors},{RESIZE}={self.resize[0]}x{self.resize[1]}"

    def apply(self, x: Array) -> Array:
        """float32 real values of samples [n, ...]. Raises DataError where channels cannot be told apart."""
        rank = max(x.ndim, 1)
        mean, std = (_along_channels(v, x.shape, rank) for v in (self.mean, self.std))
        return in_float32(x, lambda wide: (wide * self.scale - mean) / std)


def in_float32(x: Array, function: Callable[[Array], Array]) -> Array:
    """A function of each number, worked out in float64 and rounded once; a few samples [n, ...] at a time."""
    rows = np.atleast_1d(x)
    made = new_array(rows.shape, np.float32)
    step = max(1, BLOCK // max(1, math.prod(rows.shape[1:])))
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            made[start : start + step] = function(rows[start : start + step].astype(np.float64))
            release(rows)
            release(made)
    return made.reshape(x.shape)


def _check_key(key: str, text: str, seen: dict[str, list[float]]) -> None:
    if key not in ("scale", "mean", "std"):
        raise DataError(f"preprocess {text!r}: {key!r} is not one of scale, mean, std")
    if key in seen:
        raise DataError(f"preprocess {text!r}: {key} is given twice")


def _size(text: str, whole: str) -> tuple[int, int]:
    """Height and width from `96x96`."""
    height, times, width = text.strip().partition("x")
    if not (times and height.isascii() and width.isascii() and height.isdigit() and width.isdigit()):
        raise DataError(f"preprocess {whole!r}: write the size as height x width, as in resize=96x96")
    return int(height), int(width)


def _number(text: str, whole: str) -> float:
    """A decimal number or a fraction such as 1/255."""
    top, slash, bottom = text.partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"preprocess {whole!r}: {text.strip()!r} is not a number or a fraction such as 1/255")
    return value


def _along_channels(values: tuple[float, ...], shape: tuple[int, ...], rank: int) -> Array:
    """Shaped to broadcast against samples: along the last axis, or along axis 1 of channels-first images."""
    if len(values) == 1:
        return np.array(values[0])
    axes = [axis for axis in sorted({1, rank - 1}) if 0 < axis < rank and shape[axis] == len(values)]
    if len(axes) != 1:
        where = "two axes" if axes else "no channel axis"
        raise DataError(f"{len(values)} numbers in mean or std, and {where} of that size in samples {list(shape[1:])}")
    full = [1] * rank
    full[axes[0]] = len(values)
    return np.array(values).reshape(full)
