"""What takes long to build is built once a test session, whichever worker asks first."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The session's folder of that name, which `make` has filled; another worker waits until it is there."""
    own = factory.getbasetemp()
    shared = own.parent if own.name.startswith("popen-") else own  # the folder of all workers
    folder, done = shared / f"once-{name}", shared / f"once-{name}.done"
    with (shared / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
