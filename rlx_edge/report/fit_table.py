"""Which boards a model fits: a table for people, facts for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from rlx_edge.device.fitting import Fit
from rlx_edge.report import tables

KINDS = ("flash", "RAM", "arena", "stack")


def fit_table(name: str, found: Sequence[Fit]) -> Table:
    """A board a row: the bytes that are needed, and how much that is of what there is."""
    used = [kind for kind in KINDS if any(room.kind == kind for fit in found for room in fit.rooms)]
    rows = [(fit.board, "no" if fit.problem else "yes", *(_room(fit, kind) for kind in used)) for fit in found]
    return tables.table(f"{name} on each board: bytes, predicted", ("board", "fits", *used), rows)


def _room(fit: Fit, kind: str) -> str:
    return "".join(f"{r.needed:,} ({100 * r.needed / r.there:.0f}%)" for r in fit.rooms if r.kind == kind)


def fit_facts(fit: Fit) -> dict[str, Any]:
    """For JSON: bytes by kind of memory."""
    return {
        "board": fit.board,
        "fits": not fit.problem,
        "problem": fit.problem or None,
        "memories": [{"kind": r.kind, "needed_bytes": r.needed, "there_bytes": r.there} for r in fit.rooms],
    }
