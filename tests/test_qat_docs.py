"""What docs/qat.md shows runs: its commands and its Python example. In this process, as PyTorch loads slowly."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from command import here
from test_docs import COMMAND, TRAINING, Command, commands, lay_out

pytest.importorskip("torch", reason="torch is an extra: make test-qat")

TRAINED = [command for command in commands(COMMAND) if command.words[:2] == TRAINING and command.runs_here]


@pytest.fixture(autouse=True)
def _in_a_folder_with_the_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", TRAINED, ids=str)
def test_commands_run(command: Command) -> None:
    code, _, said = here(*command.words[1:])
    assert code == 0, said


def test_there_are_some() -> None:
    assert TRAINED


def test_python_example_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "qat.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = io.StringIO()
    with redirect_stdout(shown):
        exec(example, {})
    assert float(shown.getvalue()) > 0.95
    assert (tmp_path / "trained.rlx").exists()
