"""firmware/runtime/rlx_memory.c against Python's own bytes, on the host, under other names."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.resources import firmware_dir

SIZE = 96
NAMES = ("memcpy", "memmove", "memset", "memcmp")
span = st.integers(0, 40)


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    shared: Path = tmp_path_factory.mktemp("memory") / "memory.so"
    source = firmware_dir() / "runtime" / "rlx_memory.c"
    renames = [f"-D{name}=rlx_{name}" for name in NAMES]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command = ["cc", "-std=c11", "-O3", "-ffreestanding", "-shared", "-fPIC", *warnings, *renames]
    subprocess.run([*command, str(source), "-o", str(shared)], check=True)
    lib = ctypes.CDLL(str(shared))
    for name in NAMES[:3]:
        getattr(lib, f"rlx_{name}").restype = ctypes.c_void_p
    return lib


def buffer() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(bytes(range(1, SIZE + 1)), SIZE)


def at(array: ctypes.Array[ctypes.c_char], offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(array) + offset)


@given(to=span, start=span, size=span)
def test_memcpy(lib: ctypes.CDLL, to: int, start: int, size: int) -> None:
    target, source = buffer(), buffer()
    expected = bytearray(target.raw)
    expected[to : to + size] = source.raw[start : start + size]
    assert lib.rlx_memcpy(at(target, to), at(source, start), ctypes.c_size_t(size)) == at(target, to).value
    assert target.raw == bytes(expected)


@given(to=span, start=span, size=span)
def test_memmove_within_one_buffer(lib: ctypes.CDLL, to: int, start: int, size: int) -> None:
    memory = buffer()
    expected = bytearray(memory.raw)
    expected[to : to + size] = memory.raw[start : start + size]
    assert lib.rlx_memmove(at(memory, to), at(memory, start), ctypes.c_size_t(size)) == at(memory, to).value
    assert memory.raw == bytes(expected)


@given(to=span, value=st.integers(-300, 300), size=span)
def test_memset(lib: ctypes.CDLL, to: int, value: int, size: int) -> None:
    memory = buffer()
    expected = bytearray(memory.raw)
    expected[to : to + size] = bytes([value & 0xFF]) * size
    assert lib.rlx_memset(at(memory, to), value, ctypes.c_size_t(size)) == at(memory, to).value
    assert memory.raw == bytes(expected)


@given(a=st.binary(max_size=12), b=st.binary(max_size=12))
def test_memcmp(lib: ctypes.CDLL, a: bytes, b: bytes) -> None:
    size = min(len(a), len(b))
    result = lib.rlx_memcmp(a, b, ctypes.c_size_t(size))
    assert (result > 0) - (result < 0) == (a[:size] > b[:size]) - (a[:size] < b[:size])
