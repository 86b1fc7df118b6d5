"""Which channels of a source model's tensor a smaller tensor still holds."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 6
"""Channels that the text form lists at most."""


@dataclass(frozen=True)
class Channels:
    """Entry i of a tensor's last axis is entry kept[i] of the last axis, of `of` entries, that the source's has.

    Passes make it when they remove channels (`passes/remove_dead_channels.py`). `kept` rises.
    """

    kept: tuple[int, ...]
    of: int

    def of_these(self, kept: tuple[int, ...]) -> Channels:
        """The map of a tensor that holds these entries of this one."""
        return Channels(tuple(self.kept[i] for i in kept), self.of)

    def problems(self, size: int) -> list[str]:
        """What is wrong with this map of a tensor whose last axis has `size` entries."""
        rising = all(a < b for a, b in zip(self.kept, self.kept[1:], strict=False))
        if len(self.kept) == size and rising and (not self.kept or 0 <= self.kept[0] <= self.kept[-1] < self.of):
            return []
        return [f"{len(self.kept)} channels kept of {self.of} on {size}; they must rise and be one an entry"]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.kept[:SHOWN])) + (" ..." if len(self.kept) > SHOWN else "")
        return f"channels {shown}: {len(self.kept)} of {self.of} kept"
