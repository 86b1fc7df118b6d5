"""Limits and their figures as a table, as text and as facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from rlx_edge.limits.finding import Finding
from rlx_edge.report.tables import counted, short, table

COLUMNS = ("of", "limit", "figure", "must be", "margin", "")


def limits_table(title: str, findings: Sequence[Finding]) -> Table:
    """A row for every limit."""
    rows = [
        (
            short(finding.of),
            finding.name,
            number(finding.figure),
            f"{finding.bound} {number(finding.limit)}",
            number(finding.margin),
            "kept" if finding.kept else "BROKEN" if finding.figure is not None else "NOT MEASURED",
        )
        for finding in findings
    ]
    return table(short(title), COLUMNS, rows)


def broken_text(finding: Finding) -> str:
    """One line on a limit that is not kept: `mps2-an386: flash_bytes is 20,448, at most 20,000 (448 too many)`."""
    bound = f"{finding.bound} {number(finding.limit)}"
    if finding.margin is None:
        return f"{finding.of}: {finding.name} ({bound}) was not measured: {finding.note}"
    off = f"off by {number(-finding.margin)}"
    said = f"{finding.of}: {finding.name} is {number(finding.figure)}, must be {bound} ({off})"
    return f"{said}; {finding.note}" if finding.note else said


def limits_verdict(findings: Sequence[Finding]) -> str:
    """One line on all of them."""
    broken = sum(not finding.kept for finding in findings)
    all_of = counted(len(findings), "limit")
    return f"{broken} of {all_of} not kept" if broken else f"{all_of} kept"


def finding_facts(finding: Finding) -> dict[str, Any]:
    """For JSON."""
    return {
        "of": finding.of,
        "name": finding.name,
        "bound": finding.bound.value,
        "limit": finding.limit,
        "figure": finding.figure,
        "margin": finding.margin,
        "kept": finding.kept,
        "note": finding.note,
    }


def number(value: float | None) -> str:
    """A figure with all that tells it from its limit; empty for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
