"""Graph inputs, parameters and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.ops.base import Leaf


@dataclass(frozen=True)
class Input(Leaf):
    """A model input."""

    text: ClassVar[str] = 'input("{name}")'
    name: str


@dataclass(frozen=True)
class Param(Leaf):
    """A weight or bias; its values are in the graph's `params` under this name."""

    text: ClassVar[str] = 'param("{name}")'
    name: str


@dataclass(frozen=True)
class Constant(Leaf):
    """A small tensor embedded in the graph: little-endian bytes, row-major."""

    data: bytes

    def display(self) -> str:
        return f"const({len(self.data)}B)"
