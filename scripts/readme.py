"""Writes the output of a real `rlx-edge demo` into README.md. `make readme` runs it when the demo has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
START, END = "$ make demo\n", "```\n\n`[...]`"
ROWS_SHOWN = 3


def trimmed(lines: list[str]) -> list[str]:
    """The layer table with its first rows only."""
    rows = [i for i, line in enumerate(lines) if line.startswith("│ ") and not line.startswith("│ total")]
    return [*lines[: rows[ROWS_SHOWN]], "[...]", *lines[rows[-1] + 1 :]]


def main() -> None:
    command = [str(Path(sys.executable).with_name("rlx-edge")), "demo"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, _, rest = README.read_text(encoding="utf-8").partition(START)
    after = rest[rest.index(END) :]
    transcript = "\n".join(trimmed([line.rstrip() for line in shown.splitlines()]))
    README.write_text(f"{before}{START}{transcript}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
