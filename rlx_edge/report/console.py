"""Where output goes: results to standard output, progress and notes to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rlx_edge.engines import Progress as ProgressCall
from rlx_edge.quant.quantize import Progress as StageProgress

WIDTH_IN_FILES = 110

out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
err = Console(stderr=True, highlight=False, emoji=False)


def print_json(schema: str, facts: dict[str, Any]) -> None:
    """One JSON object on standard output, its schema first. Infinity and NaN, which JSON lacks, are null."""
    print(dumps({"schema": f"rlx-edge {schema} 1", **facts}))


def dumps(facts: dict[str, Any]) -> str:
    """As JSON; infinity and NaN, which JSON lacks, are null."""
    return json.dumps(_plain(facts))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str) -> None:
    """A line on standard output, as plain text; a long one is left to the terminal to break."""
    out.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """A line on standard error, as plain text."""
    err.print(text, markup=False, soft_wrap=True)


@contextmanager
def stages() -> Iterator[StageProgress]:
    """A progress bar for work of several stages, each with its name; a total of 0 is one that nobody knows."""
    with _bar() as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for earlier in tasks.values():
                    bar.update(earlier, visible=False)
                tasks[stage] = bar.add_task(stage)
            bar.update(tasks[stage], completed=done, total=total or None)

        yield show


def _bar() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


@contextmanager
def progress(label: str) -> Iterator[ProgressCall]:
    """A progress bar on standard error while it is a terminal; nothing otherwise."""
    with _bar() as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
