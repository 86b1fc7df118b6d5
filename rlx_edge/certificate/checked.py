"""The outcome of one check of a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 5


@dataclass(frozen=True)
class Checked:
    """One check: whether it holds, or None where it was not made; `detail` says what was looked at, or why it fails."""

    name: str
    holds: bool | None
    detail: str


def listed(places: Sequence[str]) -> str:
    """The first of several places, and how many more there are."""
    shown = ", ".join(places[:SHOWN])
    return shown if len(places) <= SHOWN else f"{shown}, and {len(places) - SHOWN} more"
