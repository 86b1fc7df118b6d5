"""Kernels are right wherever the linker puts them: ADR counts from a multiple of 4, which a function must begin at."""

from __future__ import annotations

import re
import subprocess

import pytest
from elftools.elf.elffile import ELFFile
from kernel_objects import CORES, kernel_objects

OBJDUMP = "arm-none-eabi-objdump"
ADR = re.compile(r"\tadd[sw.]*\t?.*\bpc, #|\tadr")
"""How it is shown when taken apart."""


@pytest.mark.parametrize("level", ["-O0", pytest.param("-Og", marks=pytest.mark.long), "-Os", "-O3"])
@pytest.mark.parametrize("isa", CORES)
def test_sections_that_count_from_pc_begin_at_words(
    isa: str, level: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    counting = 0
    for made in sorted(kernel_objects(tmp_path_factory, isa, CORES[isa], level).glob("*.o")):
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
