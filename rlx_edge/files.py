"""Files written whole or not at all, and arrays in `.npz` files, which are read as if an enemy had written them."""

from __future__ import annotations

import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
from numpy.lib import format as npy

from rlx_edge.errors import DataError, EdgeError
from rlx_edge.ir import Array
from rlx_edge.stored import BLOCK_BYTES, LARGE, new_array, release

MAX_NPZ_BYTES = 2 << 30
"""All arrays of a file together: room for any calibration set of a microcontroller's model."""


def check_place(path: Path) -> None:
    """Before long work: raise EdgeError where `replacing` could not write."""
    if not path.parent.is_dir():
        raise EdgeError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise EdgeError(f"{path}: cannot be written: it is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise EdgeError(f"{path}: cannot be written: no permission in {path.parent}")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place once all is written; on an error `path` stays as it was.

    Raises EdgeError when the folder is missing or not writable, or the disk is full.
    """
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(scratch).chmod(0o666 & ~_umask())
        Path(scratch).replace(path)
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Arrays by name, whatever the names are, as a compressed .npz file. (numpy.savez has some names for itself.)"""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(values), allow_pickle=False)


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name. Members that are no .npy files are left out.

    Sizes are checked before anything is read. Raises DataError, in one line, for whatever cannot be read.
    """
    try:
        if not path.exists():
            raise DataError(f"{path}: there is no such file")
        if not path.is_file():
            raise DataError(f"{path}: no regular file, but a device, pipe or socket; an .npz file is needed")
        with path.open("rb") as stream:
            if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise DataError(f"{path}: a single .npy array; store it with numpy.savez(path, x=array)")
            with zipfile.ZipFile(stream) as archive:
                return _read_archive(path, archive)
    except (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not an .npz file, or a truncated one") from error


def _read_archive(path: Path, archive: zipfile.ZipFile) -> dict[str, Array]:
    members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    total = sum(member.file_size for member in members)
    if total > MAX_NPZ_BYTES:
        raise DataError(f"{path}: the arrays take {total} bytes unpacked; at most {MAX_NPZ_BYTES} are read")
    return {member.filename.removesuffix(".npy"): _read_member(path, archive, member) for member in members}


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    name = member.filename.removesuffix(".npy")
    try:
        with archive.open(member) as stream:
            problem = _header_problem(stream, member.file_size)
        if problem is None:
            with archive.open(member) as stream:
                return _read_array(stream, member.file_size)
    except DataError:  # There is no room for it.
        raise
    except Exception as error:  # Decompressors and numpy's parser of headers raise nearly everything there is.
        raise DataError(f"{path}: {name!r} cannot be read: the file is damaged, encrypted or too large") from error
    raise DataError(f"{path}: {name!r} {problem}")


def _read_array(stream: IO[bytes], size: int) -> Array:
    """An .npy member, the header of which is right; a large one without ever having it in memory as a whole."""
    if size < LARGE:
        return np.asarray(npy.read_array(stream, allow_pickle=False))
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    made = new_array(shape[::-1] if by_columns else shape, dtype)
    target = made.reshape(-1).view(np.uint8).data
    for start in range(0, len(target), BLOCK_BYTES):
        piece = stream.read(min(BLOCK_BYTES, len(target) - start))
        target[start : start + len(piece)] = piece
        release(made)
    return made.transpose() if by_columns else made


def _header_problem(stream: IO[bytes], size: int) -> str | None:
    """What speaks against reading an .npy member of this many bytes, or None."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        return "cannot be read: only plain arrays are (.npy versions 1 and 2)"
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        return "holds Python objects, which are not loaded; store plain arrays"
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - stream.tell():
        return f"cannot be read: its header says {dtype}{list(shape)}, which is not what the file holds"
    return None
