"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rlx_edge.errors import EdgeError
from rlx_edge.ir import Array


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place once all is written; on an error `path` stays as it was.

    Raises EdgeError when the folder is missing or not writable, or the disk is full.
    """
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written here: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(scratch).chmod(0o644)
        Path(scratch).replace(path)
    except OSError as error:
        raise EdgeError(f"{path}: writing failed: {error.strerror}") from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Arrays by name as a compressed .npz file."""
    with replacing(path) as file:
        named: dict[str, Any] = dict(arrays)
        np.savez_compressed(file, **named)
