"""Arrays that may be too large to keep in memory: from LARGE bytes on they lie in a temporary file without a name.

Such an array is an ndarray like any other, mapped from the file: what is read or written is in memory, and `release`
lets go of it again. So the samples of a data file take disk, not memory, however many there are.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike

from rlx_edge.errors import DataError
from rlx_edge.ir import Array

LARGE = 1 << 26
BLOCK_BYTES = 1 << 24
"""What one step of going through an array takes."""


def new_array(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array that is to be filled. Raises DataError where there is no room for it on the disk."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    folder = tempfile.gettempdir()
    try:
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(prefix="rlx-edge-", dir=folder) as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):  # Without it, a disk that fills up later would end the process.
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise DataError(
            f"the data need {size:,} bytes in the temporary folder {folder}: {error.strerror}; "
            "name one with room in TMPDIR, or take fewer samples"
        ) from error


def release(values: Array) -> None:
    """Let go of the memory that a stored array takes; it is read from the file again when it is needed."""
    base: object = values
    while isinstance(base, np.ndarray):
        mapped = getattr(base, "_mmap", None)
        if isinstance(mapped, mmap.mmap):
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)
            return
        base = base.base


def blocks(values: Array) -> Iterator[tuple[int, Array]]:
    """(first sample, samples) from the first to the last; each block's memory is released after it was used."""
    step = max(1, BLOCK_BYTES // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        yield start, values[start : start + step]
        release(values)


def converted(values: Array, dtype: DTypeLike, function: Callable[[Array], Array] = lambda block: block) -> Array:
    """`function` of all samples [n, ...], which keeps their shape, as a contiguous array of this dtype."""
    made = new_array(values.shape, dtype)
    for start, block in blocks(values):
        made[start : start + len(block)] = function(block)
        release(made)
    return made


def in_memory(values: Array) -> Array:
    """The values, in memory: a copy of a stored array's, whose pages are released."""
    if not isinstance(values, np.memmap) and not isinstance(values.base, np.memmap):
        return values
    copy = np.array(values)
    release(values)
    return copy
