"""Writes docs/onnx-coverage.md: what becomes of each node test of the installed `onnx` package.

Run it with `PYTHONPATH=tests python scripts/onnx_coverage.py` when the importer has changed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx_node_cases import Outcome, outcomes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "onnx-coverage.md"

HEAD = """# ONNX ops: what the node tests say

The `onnx` package brings test cases for its ops: models of one node, and the same op written as the simpler ones that
define it, each with inputs and the outputs that ONNX expects. `tests/test_onnx_nodes.py` runs all of them through the
importer and the reference. A case *passes* when dtypes, shapes and values agree (floats within the case's own
tolerances, integers and bools exactly), is *refused* when the import says by name what it does not support, and *fails*
on anything else.

{totals}

Of those passed, {stored} store some of their inputs in the model: where a case is refused as it stands, all its inputs
but the first (shapes, axes, weights) become initializers, as they are in real files, and it is imported again.

Refusals of dtypes are meant: tensors are float32, int8, uint8, int16, int32, int64 or bool. "The output is a constant"
is said of a model that computes nothing from its inputs. Passing here says that an op is imported and means what ONNX
says; which ops `rlx-edge quantize` makes int8 is another question ([models.md](models.md)).

This page is written by `scripts/onnx_coverage.py`.

| op | passed | refused | failed | refused because |
|---|---|---|---|---|
"""


def totals(found: Sequence[Outcome]) -> str:
    """The line that the test compares."""
    count = Counter(o.status for o in found)
    return (
        f"With onnx {onnx.__version__}: {len(found):,} cases, {count['passed']:,} passed, "
        f"{count['refused']:,} refused, {count['failed']:,} failed."
    )


def _short(reason: str) -> str:
    """The reason without what differs from case to case: names, and what would have been supported."""
    text = re.sub(r"^(input|the output|the constant) '[^']*'", lambda m: m[1], reason.split(";")[0].splitlines()[0])
    return re.sub(r"\[ShapeInferenceError\].*", "shapes", text).replace("|", "\\|")


def _row(op: str, found: Sequence[Outcome]) -> str:
    count = Counter(o.status for o in found)
    reasons = Counter(_short(o.reason) for o in found if o.status == "refused")
    text = "; ".join(f"{reason} ({n})" if n > 1 else reason for reason, n in sorted(reasons.items()))
    return f"| `{op}` | {count['passed'] or ''} | {count['refused'] or ''} | {count['failed'] or ''} | {text} |\n"


def page(found: Sequence[Outcome]) -> str:
    by_op = defaultdict(list)
    for outcome in found:
        by_op[outcome.op].append(outcome)
    stored = sum(o.stored for o in found if o.status == "passed")
    return HEAD.format(totals=totals(found), stored=stored) + "".join(_row(op, by_op[op]) for op in sorted(by_op))


if __name__ == "__main__":
    PAGE.write_text(page(list(outcomes())), encoding="utf-8")
