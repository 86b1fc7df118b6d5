"""Findings as JUnit XML, which GitLab, Jenkins and the GitHub actions for test reports read.

A test suite for the model and one for each board, a test case for each limit. The names stay the same when a figure or
a limit changes, so that a CI system can follow a limit over time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Xml

from rlx_edge.files import replacing
from rlx_edge.limits.finding import Finding
from rlx_edge.report.limits_table import broken_text, number

NAME = "rlx-edge check"
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 file may hold, not even escaped (production [2] Char of the recommendation)."""


def write_junit(path: Path, findings: Sequence[Finding]) -> None:
    """Writes the file whole, or raises EdgeError and leaves what was there."""
    with replacing(path) as file:
        file.write(junit_xml(findings))


def junit_xml(findings: Sequence[Finding]) -> bytes:
    root = _suite(Xml.Element("testsuites"), NAME, findings)
    for of in dict.fromkeys(finding.of for finding in findings):
        own = [finding for finding in findings if finding.of == of]
        suite = _suite(Xml.SubElement(root, "testsuite"), of, own)
        for finding in own:
            _case(suite, finding)
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(element: Xml.Element, name: str, findings: Sequence[Finding]) -> Xml.Element:
    """Name and counts; a limit without a figure is an error, as a test is that did not come to its end."""
    errors = sum(finding.figure is None for finding in findings)
    counts = {
        "tests": len(findings),
        "failures": sum(not finding.kept for finding in findings) - errors,
        "errors": errors,
    }
    element.set("name", _legal(name))
    for key, count in counts.items():
        element.set(key, str(count))
    element.set("time", f"{sum(finding.seconds for finding in findings):.3f}")
    return element


def _case(suite: Xml.Element, finding: Finding) -> None:
    case = Xml.SubElement(
        suite,
        "testcase",
        # Jenkins takes what stands before the last dot for a package.
        classname=_legal(f"rlx-edge.{finding.of}"),
        name=_legal(finding.name),
        time=f"{finding.seconds:.3f}",
    )
    if finding.kept:
        said = f"{number(finding.figure)}, {finding.bound} {number(finding.limit)}, margin {number(finding.margin)}"
        Xml.SubElement(case, "system-out").text = _legal(f"{said}; {finding.note}" if finding.note else said)
        return
    kind = "error" if finding.figure is None else "failure"
    told = _legal(broken_text(finding))
    Xml.SubElement(case, kind, message=told, type="limit").text = told


def _legal(text: str) -> str:
    return _ILLEGAL.sub("?", text)
