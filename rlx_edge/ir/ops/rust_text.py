"""Attributes as the vocabulary's display strings show them, which is how Rust formats values."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np

PLAIN_FLOATS = (np.float32(1e-4), np.float32(1e16))
"""Magnitudes that `{:?}` writes without an exponent; `{}` never writes one."""


class Shown:
    """A value in a format string: `{axis}` is Rust's Display, `{axes:?}` its Debug, `{mask:x}` hexadecimal."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        if spec == "x":
            return f"{self.value:x}"
        return debug(self.value) if spec == "?" else display(self.value)


def display(value: object) -> str:
    """A value as `{}` shows it: an f32 by the fewest digits that give it again, 1.0 as `1`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _named(value) or np.format_float_positional(np.float32(value), trim="-")
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)


def debug(value: object) -> str:
    """A value as `{:?}` shows it: 1.0 as `1.0`, a missing one as `None`, any other optional one needs `Some` itself."""
    if isinstance(value, float):
        low, high = PLAIN_FLOATS
        if _named(value):
            return _named(value)
        if value == 0 or low <= np.float32(abs(value)) < high:
            return np.format_float_positional(np.float32(value), trim="0")
        digits, exponent = np.format_float_scientific(np.float32(value), trim="-").split("e")
        return f"{digits}e{int(exponent)}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(debug, value))}]"
    if isinstance(value, str) and not isinstance(value, Enum):
        return f'"{value}"'
    if is_dataclass(value):
        inside = ", ".join(f"{field.name}: {debug(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__} {{ {inside} }}" if inside else type(value).__name__
    return display(value)


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "" if math.isfinite(value) else "inf" if value > 0 else "-inf"
