"""Checks of a certificate as a table and as facts."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from rlx_edge.certificate.facts import Certificate
from rlx_edge.certificate.verify import Verdict
from rlx_edge.device.device_text import printable

LONGEST = 400
RESULTS = {True: "yes", False: "NO", None: "not checked"}


def verdict_table(verdict: Verdict) -> Table:
    """A row for every check. What a certificate says is shown as plain text."""
    made = Table(title="certificate", title_justify="left", header_style="bold")
    for index, column in enumerate(("check", "holds", "what was looked at")):
        made.add_column(column, overflow="fold", no_wrap=index < 2)
    for check in verdict.checks:
        made.add_row(check.name, RESULTS[check.holds], escape(_plain(check.detail)))
    return made


def about_text(certificate: Certificate) -> str:
    """What it is about, in one line."""
    where = certificate.where
    state = "in the emulator" if where.emulated else "on a serial port"
    tested = "" if where.hardware_tested or where.emulated else ", a board that this project has not tested"
    return _plain(
        f"{certificate.model} on {where.title} ({where.board}, {state}{tested}; chip UID: {where.chip_uid}); "
        f"{len(certificate.tensors)} tensors compared, {len(certificate.not_compared)} not; "
        f"by rlx-edge {certificate.tools.get('rlx-edge', '?')} and {certificate.tools.get('Arm compiler', '?')}"
    )


def verdict_text(verdict: Verdict) -> str:
    """One line on all of it: the certificate's statement only where nothing speaks against it."""
    if not verdict.good or verdict.certificate is None:
        return f"NOT good: {', '.join(check.name for check in verdict.checks if check.holds is False)}"
    held = ", ".join(check.name for check in verdict.checks if check.holds)
    return _plain(f"{verdict.certificate.statement}: {held}")


def verdict_facts(verdict: Verdict) -> dict[str, Any]:
    """For JSON."""
    certificate = verdict.certificate
    return {
        "good": verdict.good,
        "statement": certificate.statement if certificate is not None and verdict.good else None,
        "board": certificate.where.board if certificate is not None else None,
        "inputs": certificate.samples if certificate is not None else None,
        "checks": [{"name": c.name, "holds": c.holds, "detail": c.detail} for c in verdict.checks],
    }


def _plain(text: str) -> str:
    """Without control characters, and not without end."""
    return printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
