"""Checks against a file's own runtime, as a table and as facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from rlx_edge.check import Check, TensorCheck
from rlx_edge.report.tables import counted, short, table


def check_table(title: str, checks: Sequence[Check]) -> Table:
    """A row for every output in every runtime."""
    rows: list[tuple[object, ...]] = []
    for check in checks:
        if check.refused:
            rows.append((check.runtime, "", check.refused, ""))
        for output in check.outputs:
            rows.append((check.runtime, short(output.name), str(output), "same" if output.same else "DIFFERS"))
    return table(title, ("runtime", "output", "beside ours", ""), rows)


def parted_text(check: Check) -> str | None:
    """Where the two part, or None where they do not."""
    if check.same:
        return None
    if check.parted is None:
        return f"{check.runtime}: an output differs, but no tensor on the way that both hold"
    where = f"{check.parted.name!r}"
    if check.parted.node != check.parted.name:
        where += f" (here {check.parted.node!r})"
    text = f"{check.runtime}: the first tensor where the two part is {where}: {check.parted}"
    return f"{text}; {check.caution}" if check.caution else text


def check_facts(check: Check) -> dict[str, Any]:
    """For JSON."""
    return {
        "runtime": check.runtime,
        "samples": check.samples,
        "same": check.same and check.refused is None,
        "refused": check.refused,
        "caution": check.caution,
        "outputs": [_tensor(output) for output in check.outputs],
        "first_parted": None if check.parted is None else _tensor(check.parted),
    }


def _tensor(tensor: TensorCheck) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "elements": tensor.elements,
        "differing": tensor.differing,
        "sqnr_db": tensor.sqnr_db,
        "same": tensor.same,
    }


def check_verdict(checks: Sequence[Check]) -> str:
    """One line on all of them."""
    ran = [check for check in checks if check.refused is None]
    names = ", ".join(check.runtime for check in ran) or "no runtime"
    samples = counted(ran[0].samples if ran else 0, "sample")
    bad = [check.runtime for check in ran if not check.same]
    return f"checked against {names} on {samples}: " + (f"differs from {', '.join(bad)}" if bad else "the same")
