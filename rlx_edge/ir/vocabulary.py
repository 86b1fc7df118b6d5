"""Every kind of the RLX vocabulary, by name. The kinds that no edge device runs are loaded when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from rlx_edge.ir import ops
from rlx_edge.ir.ops.base import Op

FURTHER: tuple[str, ...] = (
    *("pointwise", "modulation", "products", "ordering", "volumes"),
    *("regions", "fused"),
    *("beyond.random", "beyond.solve", "beyond.complex_numbers", "beyond.losses"),
    *("beyond.gradients", "beyond.norm_gradients", "beyond.modulation_gradients"),
    *("beyond.window_gradients", "beyond.learned_gradients"),
    *("beyond.experts", "beyond.scaled", "beyond.spd", "beyond.splats"),
)
"""Modules of rlx_edge.ir.ops with further kinds, each with a tuple KINDS, by family."""


@cache
def all_kinds() -> Mapping[str, type[Op]]:
    """Kinds by name: those of `rlx_edge.ir.ops` first, then the further ones."""
    further = (import_module(f"rlx_edge.ir.ops.{module}").KINDS for module in FURTHER)
    return {kind.__name__: kind for kinds in (ops.ALL, *further) for kind in kinds}


def find_kind(name: str) -> type[Op] | None:
    """The kind of that name, or None."""
    return ops.BY_KIND.get(name) or all_kinds().get(name)
