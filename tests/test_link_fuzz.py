"""The device's parser under random bytes and random requests, with the sanitizers on."""

from __future__ import annotations

import subprocess

import pytest
from link_device import compile_program


def fuzz(payload: int, seed: int, size: int) -> tuple[int, int, int]:
    """Returns bytes in, bytes out, requests that succeeded. A sanitizer's finding ends the program with an error."""
    program = compile_program("fuzz", payload)
    done = subprocess.run([program, str(seed), str(size)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sent, returned, succeeded = map(int, done.stdout.split())
    return sent, returned, succeeded


@pytest.mark.parametrize("payload", [128, 1024])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_bytes_do_harm(payload: int, seed: int) -> None:
    sent, returned, succeeded = fuzz(payload, seed, 1_000_000)
    assert sent >= 1_000_000
    assert returned > 10_000
    assert succeeded > 300, "the random requests do not get past the checks"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_no_bytes_do_harm_for_long(seed: int) -> None:
    assert fuzz(256, seed, 50_000_000)[0] >= 50_000_000
