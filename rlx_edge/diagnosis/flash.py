"""What differs between the firmware in a device's flash and the build that should be there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from rlx_edge.cgen.emit_steps import collect_weights
from rlx_edge.cgen.plan import Plan
from rlx_edge.device.causes import Cause
from rlx_edge.device.link import Link
from rlx_edge.engines import Progress

BLOCK = 4096
PROBE = 64
MANY = 1024
"""Differing bytes after which the image counts as another build's."""


@dataclass(frozen=True)
class Place:
    """Bytes [first, end) of an image and what they are; `weights` where they are constants of a model."""

    first: int
    end: int
    name: str
    weights: bool = False


def places_of(elf: Path, plans: Mapping[str, Plan]) -> list[Place]:
    """The functions and objects of an image in flash; the constants of models one by one. By their first byte."""
    found = []
    with elf.open("rb") as stream:
        image = ELFFile(stream)
        base = min(s["p_paddr"] for s in image.iter_segments("PT_LOAD") if s["p_filesz"] > 0)
        symbols = image.get_section_by_name(".symtab")
        for symbol in symbols.iter_symbols() if isinstance(symbols, SymbolTableSection) else ():
            kind, size = symbol["st_info"]["type"], symbol["st_size"]
            first = (symbol["st_value"] & ~1) - base if kind == "STT_FUNC" else symbol["st_value"] - base
            model = symbol.name.removesuffix("_weights")
            if kind == "STT_OBJECT" and symbol.name.endswith("_weights") and model in plans:
                found += _constants(plans[model], first)
            elif kind in ("STT_FUNC", "STT_OBJECT") and size and first >= 0:
                found.append(Place(first, first + size, symbol.name))
    return sorted(found, key=lambda place: place.first)


def _constants(plan: Plan, first: int) -> list[Place]:
    """As the generator writes them: one after the other, without gaps."""
    found = []
    for constant in collect_weights(plan)[0]:
        found.append(Place(first, first + constant.values.nbytes, f"{constant.name}{constant.note}", True))
        first += constant.values.nbytes
    return found


def flash_difference(link: Link, image: bytes, places: list[Place], progress: Progress | None = None) -> Cause:
    """Reads the device's flash and says what differs from `image`. Raises DeviceError for trouble on the link."""
    if link.device.image_bytes != len(image):
        text = f"its firmware has {link.device.image_bytes:,} bytes in flash, the build's has {len(image):,}"
        return Cause("stale firmware", text)
    return _compared(_read(link, len(image), progress), image, places)


def weights_difference(link: Link, plan: Plan, progress: Progress | None = None) -> Cause:
    """The same for the constants of one model, in firmware of which nothing else is known: they are looked for."""
    wanted = b"".join(c.values.astype(c.values.dtype.newbyteorder("<")).tobytes() for c in collect_weights(plan)[0])
    found = _read(link, link.device.image_bytes, progress)
    for at in range(0, len(wanted), PROBE):
        place = found.find(wanted[at : at + PROBE])
        if place >= at:
            there = found[place - at : place - at + len(wanted)]
            return _compared(there, wanted[: len(there)], _constants(plan, 0))
    return Cause("different weights", "the constants of the model are not in its flash")


def _read(link: Link, size: int, progress: Progress | None) -> bytes:
    parts = []
    for at in range(0, size, BLOCK):
        parts.append(link.read_image(at, min(BLOCK, size - at)))
        if progress is not None:
            progress(min(size, at + BLOCK), size)
    return b"".join(parts)


def _compared(found: bytes, wanted: bytes, places: list[Place]) -> Cause:
    differing = [(at, got) for at, (got, want) in enumerate(zip(found, wanted, strict=True)) if got != want]
    if not differing:
        return Cause("not repeatable", "read again, its flash has the bytes of the build")
    if len(differing) > MANY:
        return Cause("stale firmware", f"{len(differing):,} bytes in flash are not those of the build")
    return _described(differing, wanted, places)


def _described(differing: list[tuple[int, int]], image: bytes, places: list[Place]) -> Cause:
    starts = [place.first for place in places]

    def place(at: int) -> Place:
        index = bisect_right(starts, at) - 1
        inside = index >= 0 and at < places[index].end
        return places[index] if inside else Place(at, at + 1, f"flash + 0x{at:x}")

    hit = {place(at).name: place(at) for at, _ in differing}
    at, got = differing[0]
    first = place(at)
    text = f"byte {at - first.first} of {first.name} is 0x{got:02x} in flash, 0x{image[at]:02x} in the build"
    if len(differing) > 1:
        others = ", ".join(list(hit)[:4]) + (" and others" if len(hit) > 4 else "")
        text += f"; in all {len(differing):,} bytes differ, in {others}"
    return Cause("different weights" if all(p.weights for p in hit.values()) else "damaged flash", text)
