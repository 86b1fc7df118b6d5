"""What docs/qat.md shows runs: its commands and its Python example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import good
from test_docs import COMMAND, TRAINING, commands, prepare

pytest.importorskip("torch", reason="torch is an extra: make test-qat")

TRAINED = [command for command in commands(COMMAND) if command.words[:2] == TRAINING and command.runs_here]


@pytest.mark.parametrize("command", TRAINED, ids=str)
def test_commands_run(command: object, tmp_path: Path) -> None:
    prepare(tmp_path)
    good(*command.words[1:], cwd=tmp_path)  # type: ignore[attr-defined]


def test_there_are_some() -> None:
    assert TRAINED


def test_python_example_runs(tmp_path: Path) -> None:
    prepare(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "qat.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(shown.stdout) > 0.95
    assert (tmp_path / "trained.rlx").exists()
