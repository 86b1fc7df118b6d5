"""Packed weights: streams of bytes in the order in which a kernel reads them, and groups of output channels.

A stream is an int32 array (so that it is aligned to 4 in flash and in tests); what the kernel reads as int8 or int16
lies in it in the order of memory of a little-endian core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx_edge.ir import Array

_LITTLE = {"int8": "<i1", "int16": "<i2", "int32": "<i4"}


def stream(pieces: Iterable[Array]) -> Array:
    """int8, int16 and int32 arrays one after the other, as int32. Each piece's bytes must be a multiple of 4."""
    data = []
    for piece in pieces:
        assert piece.nbytes % 4 == 0, "a piece of a stream would leave the next one unaligned"
        data.append(np.ascontiguousarray(piece).astype(_LITTLE[piece.dtype.name]).tobytes())
    return np.frombuffer(b"".join(data), "<i4").astype(np.int32)


def int32(values: Array | Iterable[int]) -> Array:
    """As int32, refusing values that do not fit: a proof that went wrong must not end in wrong bits."""
    return _fitting(np.asarray(values if isinstance(values, np.ndarray) else list(values), np.int64), np.int32)


def int16(values: Array) -> Array:
    """As int16, refusing values that do not fit."""
    return _fitting(values, np.int16)


def int8(values: Array) -> Array:
    """As int8, refusing values that do not fit."""
    return _fitting(values, np.int8)


def wrapped(values: Array) -> Array:
    """int64 as int32 modulo 2^32."""
    return values.astype(np.uint32).astype(np.int32)


def _fitting(values: Array, dtype: type[np.signedinteger[Any]]) -> Array:
    assert (values == values.astype(dtype)).all(), f"a packed value does not fit in {dtype.__name__}"
    return values.astype(dtype)


def channel_groups(out_c: int, size: int) -> Array:
    """Channels [groups, size] that a kernel computes together; the last channel is repeated to fill the last group.

    A repeated channel computes the same value again, so it may be written to the same place again.
    """
    count = -(-out_c // size)
    return np.minimum(np.arange(count * size), out_c - 1).reshape(count, size)


def ending_groups(out_c: int, size: int) -> Array:
    """Channels [groups, size] of at least `size`; the last group are those that end the row, some of them again."""
    return np.stack([np.arange(size) + min(c, out_c - size) for c in range(0, out_c, size)])


def steps_to_next(groups: Array) -> Array:
    """For each place of [groups, size], the channels from it to the next place in order; 0 after the last one."""
    flat = groups.ravel()
    return np.append(np.diff(flat), 0).reshape(groups.shape)


def padded(values: Array, multiple: int) -> Array:
    """Zeros appended to the last axis up to a multiple."""
    missing = -values.shape[-1] % multiple
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


def joined(c: Array, d: Array) -> Array:
    """256 * d + c of int64 arrays: from the sum of products with that and with c, d's sum follows (rlx_gemm_dsp.h)."""
    return np.asarray(256 * d + c)
