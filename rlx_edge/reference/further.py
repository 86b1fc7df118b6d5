"""What the kinds mean that no edge device runs: their modules are loaded when a graph first has one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op

OpFunction = Callable[[Op, Sequence[Array], Sequence[TensorType], TensorType], Array]
"""A node's value from its op, its operands' values, their types and the output's type."""

MODULES: tuple[str, ...] = (
    *("pointwise", "modulation", "products", "ordering", "volumes"),
    *("regions", "fused", "fused_layers", "control"),
    *("attention", "recurrent", "scans", "spectral", "synth"),
)
"""Modules of rlx_edge.reference, by family: each with a dict FUNCTIONS, and perhaps ON_CODES of those of its kinds that
move elements alone, on int8 that stands for real values too."""


@cache
def functions() -> Mapping[type[Op], OpFunction]:
    """Functions on tensors that stand for themselves, by kind."""
    return _merged("FUNCTIONS")


@cache
def functions_on_codes() -> Mapping[type[Op], OpFunction]:
    """Functions on int8 that stands for real values, by kind."""
    return _merged("ON_CODES")


def _merged(table: str) -> Mapping[type[Op], OpFunction]:
    modules = (import_module(f"rlx_edge.reference.{name}") for name in MODULES)
    return {kind: function for module in modules for kind, function in getattr(module, table, {}).items()}
