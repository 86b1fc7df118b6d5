"""docs/ops.md is what the tables of the package say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from ops_page import PAGE, page, totals  # noqa: E402


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make ops`"


def test_how_much_there_is() -> None:
    declared, inferred, executed, on_int8, targets = map(int, re.findall(r"\b\d+", totals().replace("int8", "")))
    assert declared == 187
    assert inferred >= 170 and executed >= 100 and on_int8 >= 30 and targets >= 25
