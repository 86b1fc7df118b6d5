"""What an ELF image takes of a board, and the bytes that lie in its flash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

STACK_SECTION = ".stack"


@dataclass(frozen=True)
class ImageSizes:
    """Bytes. `flash` counts what is loaded, alignment included; `ram` counts all RAM sections but the stack."""

    flash: int
    ram: int
    stack: int


def image_bytes(elf: Path) -> bytes:
    """The image as it lies in flash, from the vector table to the end of .data's initial values.

    Raises `ValueError` when the ELF's loaded segments do not follow each other, which the linker script rules out.
    """
    with elf.open("rb") as stream:
        segments = [s for s in ELFFile(stream).iter_segments("PT_LOAD") if s["p_filesz"] > 0]
        segments.sort(key=lambda segment: int(segment["p_paddr"]))
        image = bytearray()
        for segment in segments:
            if image and segment["p_paddr"] != segments[0]["p_paddr"] + len(image):
                raise ValueError(f"{elf.name}: a gap in the image before {segment['p_paddr']:#x}")
            image += segment.data()
    return bytes(image)


@dataclass(frozen=True)
class Section:
    """A section of an image and where its bytes lie: `memory` is "flash", "RAM", or "flash and RAM" for initial
    values, which start-up copies."""

    name: str
    bytes: int
    memory: str


def sections(elf: Path) -> tuple[Section, ...]:
    """The sections of an image that take memory, in the order of the file."""
    found = []
    with elf.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            flags, size = section["sh_flags"], section["sh_size"]
            if not flags & SH_FLAGS.SHF_ALLOC or not size:
                continue
            loaded = section["sh_type"] != "SHT_NOBITS"
            writable = bool(flags & SH_FLAGS.SHF_WRITE)
            memory = "RAM" if not loaded else "flash and RAM" if writable else "flash"
            found.append(Section(section.name, size, memory))
    return tuple(found)


def image_sizes(elf: Path) -> ImageSizes:
    """Flash, RAM and stack bytes of a linked image."""
    ram = stack = 0
    with elf.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            flags, size = section["sh_flags"], section["sh_size"]
            if section.name == STACK_SECTION:
                stack += size
            elif flags & SH_FLAGS.SHF_ALLOC and flags & SH_FLAGS.SHF_WRITE:
                ram += size
    return ImageSizes(flash=len(image_bytes(elf)), ram=ram, stack=stack)
