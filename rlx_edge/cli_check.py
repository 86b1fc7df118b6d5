"""The command `check`: limits on a model, for CI without hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_edge.cli_options import Json, warn
from rlx_edge.files import check_place
from rlx_edge.limits.file import read_check_file
from rlx_edge.limits.measure import measure
from rlx_edge.report.console import note, out, print_json, say, stages
from rlx_edge.report.junit import write_junit
from rlx_edge.report.limits_table import broken_text, finding_facts, limits_table, limits_verdict


def check(
    file: Annotated[Path, typer.Argument(help="the limits (docs/check.md)")] = Path("rlx-edge.toml"),
    junit: Annotated[
        Path | None, typer.Option("--junit", help="also write the results as JUnit XML", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Hold a model to limits on accuracy, memory, instructions and parity, on emulated boards; 1 if one is broken."""
    wanted = read_check_file(file)
    if junit is not None:
        check_place(junit)
    with stages() as shown:
        findings = measure(wanted, shown, warn)
    if junit is not None:
        write_junit(junit, findings)
    kept = all(finding.kept for finding in findings)
    if json:
        print_json("limits", {"model": wanted.name, "kept": kept, "limits": [finding_facts(f) for f in findings]})
    else:
        out.print(limits_table(f"limits of {wanted.name}", findings))
        for finding in findings:
            if not finding.kept:
                say(broken_text(finding))
        say(limits_verdict(findings))
    if junit is not None:
        note(f"wrote {junit}")
    if not kept:
        raise typer.Exit(1)
