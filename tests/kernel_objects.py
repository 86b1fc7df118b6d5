"""Kernels as objects for a core, by the compiler's level of optimization: each made once a test session."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from once import once

from rlx_edge.resources import firmware_dir

COMPILER = "arm-none-eabi-gcc"
CORES = {"v6m": "cortex-m0", "v7m": "cortex-m3", "dsp": "cortex-m4", "mve": "cortex-m55"}
"""The smallest core that has an instruction set."""
PORTABLE = "portable"
FLAGS = ("-std=c11", "-mthumb", "-mfloat-abi=softfp", "-ffreestanding", "-ffunction-sections", "-fstack-usage")


def kernel_sources(isa: str) -> list[Path]:
    """Files of the kernels that are written for an instruction set, or for none."""
    of_isa = {name: set((firmware_dir() / "kernels").glob(f"rlx_*_{name}*.c")) for name in CORES}
    of_isa[PORTABLE] = set((firmware_dir() / "kernels").glob("*.c")).difference(*of_isa.values())
    assert of_isa[isa], isa
    return sorted(of_isa[isa])


def kernel_objects(factory: pytest.TempPathFactory, isa: str, core: str, level: str) -> Path:
    """A folder with an object (.o) and a list of frames (.su) of each of these files."""

    def make(folder: Path) -> None:
        command = [COMPILER, *FLAGS, level, f"-mcpu={core}", "-c", *map(str, kernel_sources(isa))]
        subprocess.run(command, check=True, cwd=folder)

    return once(factory, f"kernels-{isa}-{core}{level}", make)
