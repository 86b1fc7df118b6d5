"""What parity found, for the terminal and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from rlx_edge.device.causes import Diagnosis
from rlx_edge.device.parity import ParityResult, TensorRow
from rlx_edge.report.tables import counted, short, table

_TOGETHER = "\N{NO-BREAK SPACE}"


def parity_table(result: ParityResult) -> Table:
    """A row per tensor: what it stands for in the source model, and the bytes that differ from each engine's."""
    engines = sorted({row.engine for row in result.rows})
    by_tensor: dict[str, dict[str, TensorRow]] = {}
    for row in result.rows:
        by_tensor.setdefault(row.tensor, {})[row.engine] = row
    rows = [
        (
            short(tensor),
            _stands_for(tensor, result.stands_for.get(tensor, ())),
            next(iter(found.values())).compared_bytes,
            *(found[engine].differing_bytes if engine in found else "" for engine in engines),
        )
        for tensor, found in by_tensor.items()
    ]
    differing = [sum(row.differing_bytes for row in result.rows if row.engine == engine) for engine in engines]
    total = ("total", "", sum(int(row[2]) for row in rows), *differing)
    title = f"parity of {escape(result.board)} over {counted(result.inputs, 'input')}"
    return table(title, ("tensor", "stands for", "bytes", *(f"≠ {e}" for e in engines)), rows, total)


def _stands_for(tensor: str, sources: Sequence[str]) -> str:
    names = dict.fromkeys(short(source) for source in sources)
    return ", ".join(name for name in names if name != short(tensor))


def parity_verdict(result: ParityResult) -> str:
    """One line: exact, or the first difference."""
    if result.exact:
        return f"exact: {result.compared_bytes:,} bytes compared, none differs"
    if result.compared_bytes == 0:
        return "nothing was compared"
    first = result.first_parted or result.first_difference
    engines = len({row.engine for row in result.rows})
    twice = f", over {engines} engines" if engines > 1 else ""
    return f"NOT exact: {result.differing_bytes:,} of {result.compared_bytes:,} bytes differ{twice}; first: {first}"


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """What a person reads: the cause first, then where it was found and the numbers there."""
    lines = [f"{diagnosis.cause}: {diagnosis.why}", f"what to do: {diagnosis.advice}"]
    if diagnosis.tensor:
        place = f"{diagnosis.tensor}[{', '.join(map(str, diagnosis.element))}]"
        lines.insert(0, f"first to part: {place}, made in step {diagnosis.step}")
        numbers = [f"{name} {value}".replace(" ", _TOGETHER) for name, value in diagnosis.account]
        broken = textwrap.wrap(", ".join(numbers), 110, initial_indent="    ", subsequent_indent="    ")
        lines[1:1] = [line.replace(_TOGETHER, " ") for line in broken]
    return lines


def parity_facts(result: ParityResult) -> Mapping[str, Any]:
    """The keys of `rlx-edge parity --json`."""
    first = result.first_parted or result.first_difference
    tensors = [
        {
            "tensor": row.tensor,
            "stands_for": list(result.stands_for.get(row.tensor, ())),
            "by_rows": row.by_rows,
            "engine": row.engine,
            "compared_bytes": row.compared_bytes,
            "differing_bytes": row.differing_bytes,
        }
        for row in result.rows
    ]
    keys = ("board", "inputs", "compared_bytes", "differing_bytes", "exact")
    found = {key: getattr(result, key) for key in keys}
    why = None if result.diagnosis is None else asdict(result.diagnosis)
    return found | {"first_difference": str(first) if first else None, "diagnosis": why, "tensors": tensors}
