"""All node tests of the `onnx` package: each passes or is refused by name; docs/onnx-coverage.md counts them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from onnx_node_cases import Outcome, node_cases, outcomes, run_case

PAGE = Path(__file__).resolve().parents[1] / "docs" / "onnx-coverage.md"
AT_LEAST = 500
"""Cases that must pass with any version of onnx."""


@pytest.fixture(scope="module")
def found() -> Sequence[Outcome]:
    return list(outcomes())


def test_no_case_fails(found: Sequence[Outcome]) -> None:
    failed = [f"{o.name}: {o.reason}" for o in found if o.status == "failed"]
    assert not failed, "\n".join(failed)
    assert sum(o.status == "passed" for o in found) >= AT_LEAST


def test_every_refusal_says_why_in_one_line(found: Sequence[Outcome]) -> None:
    for outcome in found:
        if outcome.status == "refused":
            assert outcome.reason.strip() and "\n" not in outcome.reason, outcome


def test_page_counts_what_is_found(found: Sequence[Outcome]) -> None:
    counts = r"With onnx (\S+): ([\d,]+) cases, ([\d,]+) passed, ([\d,]+) refused, ([\d,]+) failed"
    (line,) = re.findall(counts, PAGE.read_text(encoding="utf-8"))
    if line[0] != onnx.__version__:
        pytest.skip(f"the page was written with onnx {line[0]}; {onnx.__version__} is installed")
    count = [len(found), *(sum(o.status == s for o in found) for s in ("passed", "refused", "failed"))]
    assert [int(n.replace(",", "")) for n in line[1:]] == count, "run scripts/onnx_coverage.py"


def test_a_wrong_result_would_fail() -> None:
    """The comparison compares: a case whose expected output is changed fails."""
    case = next(c for c in node_cases() if c.name == "test_relu")
    inputs, (output,) = case.data_sets[0]
    wrong = dataclasses.replace(case, data_sets=[(inputs, [output + 1])])
    assert [run_case(c, "Relu").status for c in (case, wrong)] == ["passed", "failed"]
