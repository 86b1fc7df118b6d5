"""The device's parser under random bytes and random requests, with the sanitizers on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fuzz_link import fuzz as libfuzz
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


def has_libfuzzer(folder: Path) -> bool:
    """Whether clang is here with what it links for -fsanitize=fuzzer."""
    if shutil.which("clang") is None:
        return False
    empty = "int LLVMFuzzerTestOneInput(const char *data, long size) { return data == 0 && size != 0; }"
    command = ["clang", "-fsanitize=fuzzer,address,undefined", "-x", "c", "-", "-o", str(folder / "empty")]
    return subprocess.run(command, input=empty, text=True, capture_output=True, check=False).returncode == 0


def test_libfuzzer_finds_nothing(tmp_path: Path) -> None:
    """Briefly; `make fuzz` takes ten million inputs."""
    if not has_libfuzzer(tmp_path):
        pytest.skip("no clang with libFuzzer (Debian: libclang-rt-dev)")
    said = libfuzz(5_000, tmp_path)
    assert int(re.findall(r"stat::number_of_executed_units: (\d+)", said)[0]) >= 5_000
    assert int(re.findall(r"cov: (\d+)", said)[-1]) > 200, "the inputs do not get past the checks"
