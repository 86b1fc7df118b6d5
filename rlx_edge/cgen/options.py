"""What generation is asked to favor, and the memory that it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from rlx_edge.errors import EdgeError


class Optimize(StrEnum):
    """Which variants of kernels are taken (cgen/choose.py says by what rule)."""

    SPEED = "speed"
    BALANCED = "balanced"
    SIZE = "size"


@dataclass(frozen=True)
class Options:
    """Budgets in bytes, None for none. Flash: constants, kernels and the model's own code, that is all but start-up and
    link. RAM: the arena; 0 asks for the smallest that is found. Stack: what a run takes of it."""

    optimize: Optimize = Optimize.BALANCED
    flash_budget: int | None = None
    ram_budget: int | None = None
    stack_budget: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimize", Optimize(self.optimize))  # its value is as good as the member
        for name in BUDGETS:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise EdgeError(f"--{name.replace('_', '-')} {value}: a budget is a number of bytes, 0 or more")

    def stored_in(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata of a model with these options, in place of any others, so that its plan can be made again."""
        kept = {key: text for key, text in metadata.items() if key not in ("optimize", *BUDGETS)}
        budgets = {name: getattr(self, name) for name in BUDGETS}
        return kept | {"optimize": self.optimize.value} | {n: str(v) for n, v in budgets.items() if v is not None}

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, str]) -> Options:
        """What `stored_in` stored; the defaults where a key is missing. Raises EdgeError for values that this version
        does not know."""
        try:
            budgets = {name: int(metadata[name]) for name in BUDGETS if name in metadata}
            return cls(Optimize(metadata.get("optimize", Optimize.BALANCED.value)), **budgets)
        except ValueError as error:
            raise EdgeError(f"the model's options cannot be read ({error}): generate it again") from error


BUDGETS = tuple(field.name for field in fields(Options) if field.name.endswith("_budget"))

DEFAULT = Options()
"""Balanced, without budgets."""
