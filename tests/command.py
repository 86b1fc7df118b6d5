"""The installed `rlx-edge` command, run as a person runs it; or in this process, where what it imports loads slowly."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from rlx_edge.cli import main

RLX_EDGE = Path(sys.executable).with_name("rlx-edge")
TIMEOUT_S = 120


def rlx_edge(*args: str | Path, cwd: Path | None = None, command: Path = RLX_EDGE) -> subprocess.CompletedProcess[str]:
    """Runs the command without a terminal; whatever it does, it must not show a traceback."""
    words = [str(command), *map(str, args)]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def good(*args: str | Path, cwd: Path | None = None, command: Path = RLX_EDGE) -> str:
    """What the command writes to standard output; it must exit with 0."""
    done = rlx_edge(*args, cwd=cwd, command=command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*args: str | Path, cwd: Path | None = None) -> str:
    """The one line with which the command refuses; it must exit with 2 and print nothing else."""
    done = rlx_edge(*args, cwd=cwd)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("rlx-edge: ")
    return lines[0].removeprefix("rlx-edge: ")


def here(*args: str | Path, err: io.StringIO | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, run in this process."""
    out, err = io.StringIO(), err or io.StringIO()
    argv = patch.object(sys, "argv", ["rlx-edge", *map(str, args)])
    with argv, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()
