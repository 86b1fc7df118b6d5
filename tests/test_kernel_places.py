"""Kernels are right wherever the linker puts them: ADR counts from a multiple of 4, which a function must begin at."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from rlx_edge.resources import firmware_dir

COMPILER, OBJDUMP = "arm-none-eabi-gcc", "arm-none-eabi-objdump"
CORES = {"v6m": "cortex-m0", "v7m": "cortex-m3", "dsp": "cortex-m4", "mve": "cortex-m55"}
ADR = re.compile(r"\tadd[sw.]*\t?.*\bpc, #|\tadr")
"""How it is shown when taken apart."""


def kernels(isa: str) -> list[Path]:
    found = sorted((firmware_dir() / "kernels").glob(f"rlx_*_{isa}*.c"))
    assert found, isa
    return found


@pytest.mark.parametrize("level", ["-O0", "-Og", "-Os", "-O3"])
@pytest.mark.parametrize("isa", CORES)
def test_sections_that_count_from_pc_begin_at_words(isa: str, level: str, tmp_path: Path) -> None:
    flags = ["-std=c11", f"-mcpu={CORES[isa]}", "-mthumb", "-mfloat-abi=softfp", level, "-ffunction-sections"]
    subprocess.run([COMPILER, *flags, "-c", *map(str, kernels(isa))], check=True, cwd=tmp_path)
    counting = 0
    for made in sorted(tmp_path.glob("*.o")):
        text = subprocess.run([OBJDUMP, "-d", made], check=True, capture_output=True, text=True).stdout
        sections = text.split("Disassembly of section ")[1:]
        with made.open("rb") as stream:
            aligned = {section.name: section["sh_addralign"] for section in ELFFile(stream).iter_sections()}
        for section in sections:
            name = section.split(":", 1)[0]
            if ADR.search(section):
                counting += 1
                assert aligned[name] % 4 == 0, f"{made.name}, {name}"
    assert counting, "or this test shows nothing"
