"""rlx_requant.h: the high multiply from 32-bit products is the one from a 64-bit product."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rlx_edge.resources import firmware_dir

PROGRAM = """
#include "rlx_requant.h"
#include <stdio.h>

static const int32_t edges[] = {INT32_MIN, INT32_MIN + 1, -65537, -65536, -65535, -32769, -32768, -1, 0, 1, 2, 16383,
    16384, 32767, 32768, 65535, 65536, 65537, 98304, 1 << 29, 1 << 30, (1 << 30) + 1, INT32_MAX - 65536, INT32_MAX};
enum { EDGES = sizeof edges / sizeof edges[0] };
static uint32_t state = 2026;

static int32_t any(void)
{
    state = state * 1664525u + 1013904223u;
    const uint32_t low = state >> 16;
    state = state * 1664525u + 1013904223u;
    const int32_t x = (int32_t)((state & 0xFFFF0000u) | low);
    return x >> (state >> 8 & 31);
}

static int differs(int32_t x, int32_t m)
{
    if (m == INT32_MIN) {
        return 0;
    }
    const int64_t wide = ((int64_t)x * m + (INT64_C(1) << 30)) >> 31;
    return rlx_high_mul_by_halves(x, m) != (int32_t)wide || rlx_high_mul(x, m) != (int32_t)wide;
}

int main(void)
{
    long wrong = 0;
    for (int i = 0; i < EDGES; i++) {
        for (int j = 0; j < EDGES; j++) {
            wrong += differs(edges[i], edges[j]);
        }
        for (int j = 0; j < 100000; j++) {
            const int32_t other = any();
            wrong += differs(edges[i], other) + differs(other, edges[i]);
        }
    }
    for (long i = 0; i < 5000000; i++) {
        const int32_t x = any();
        wrong += differs(x, any());
    }
    printf("%ld", wrong);
    return 0;
}
"""


def test_high_mul_by_halves(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsanitize=undefined"]
    flags += ["-fno-sanitize-recover=all", f"-I{firmware_dir() / 'kernels'}"]
    subprocess.run(["gcc", *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "0"
