"""Python files of the user, named on the command line."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from rlx_edge.errors import EdgeError


def load_module(path: Path, option: str) -> ModuleType:
    """Run a Python file, which is trusted for being named. Raises EdgeError, with the `option` for such files."""
    if not path.is_file():
        raise EdgeError(f"{path}: no such file; {option} names a Python file of yours")
    name = f"rlx_edge_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise EdgeError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pickles of the file look themselves up by name.
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # Whatever the file does wrong is told in one line.
        raise EdgeError(f"{path}: {described(error)} while it was loaded") from error
    return module


def described(error: BaseException) -> str:
    """An exception as one short line: its kind, its first line, and the line number in the user's file."""
    if isinstance(error, SyntaxError):  # Says where it is by itself; the traceback ends in the import.
        return f"{type(error).__name__}: {short(error)}"
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = f" (line {where.tb_lineno} of {Path(where.tb_frame.f_code.co_filename).name})" if where else ""
    return f"{type(error).__name__}: {short(error)}{line}"


def short(value: object) -> str:
    first = (str(value).splitlines() or [""])[0]
    return first if len(first) <= 80 else f"{first[:80]}..."
