"""How many operands an op takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arity:
    """Between `low` and `high` operands, both included; `high` None: no upper bound."""

    low: int
    high: int | None

    def accepts(self, count: int) -> bool:
        return self.low <= count and (self.high is None or count <= self.high)

    def __str__(self) -> str:
        """Reads as a count: `2`, `0 to 1` or `at least 1`."""
        if self.high is None:
            return f"at least {self.low}"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def exact(count: int) -> Arity:
    return Arity(count, count)


def at_least(count: int) -> Arity:
    return Arity(count, None)
