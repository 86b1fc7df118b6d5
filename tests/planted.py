"""Firmware with one fault planted: the C of a bundle, changed in one place, built for the emulated M4."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from models import ModelMaker, samples

from rlx_edge import api
from rlx_edge.cgen.bundle import bundle_files, generate, seal
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.target import TARGETS
from rlx_edge.data import Data
from rlx_edge.device.boards import Board, load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.parity import ParityResult
from rlx_edge.ir import Graph

Edits = Mapping[str, Iterable[tuple[str, str]]]
"""By file of the bundle: patterns and what takes their place."""
BOARD = "mps2-an386"


def skip_model() -> Graph:
    """`a` lives while `b` and `c` are made, and is then added to `c`; ReLU on `b`."""
    maker = ModelMaker("skip", 11)
    a = maker.conv(maker.input((1, 7, 6, 3)), 5, name="a")
    c = maker.conv(maker.conv(a, 5, name="b"), 5, name="c")
    return maker.builder.build([maker.add(a, c, "sum")])


def stage_model() -> Graph:
    """With a RAM budget of 0, step 2 is a stage that reads `pre`, which step 1 reads too."""
    maker = ModelMaker("stage", 4)
    pre = maker.conv(maker.input((1, 16, 10, 3)), 3, 1, name="pre")
    mean = maker.mean(pre)
    x = maker.conv(maker.conv(maker.conv(pre, 6, name="a"), 6, groups=6, name="d"), 8, 3, 2, name="b")
    return maker.builder.build([mean, maker.dense(maker.flatten(x), 3)])


def make_bundle(folder: Path, graph: Graph | None = None, options: Options = DEFAULT) -> Path:
    """In portable C, whose text is the plainest to plant faults in."""
    generate({"skip": graph or skip_model()}, folder, TARGETS["portable"], options=options)
    return folder


@contextmanager
def device_with(bundle: Path, edits: Edits, board: Board | None = None) -> Iterator[str]:
    """The port of an emulated device that runs the bundle with these edits. Each must change something."""
    board = board or load_board(BOARD)
    changed = bundle.parent / "changed"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(bundle, changed)
    for file, changes in edits.items():
        text = (changed / file).read_text()
        for pattern, new in changes:
            text, count = re.subn(pattern, new, text)
            assert count, f"{pattern} is not in {file}"
        (changed / file).write_text(text)
    files = [name for name in bundle_files(bundle) if name != "bundle.json"]
    seal(changed, {name: (changed / name).read_bytes() for name in files})
    shutil.rmtree(bundle.parent / "build", ignore_errors=True)
    firmware = build_firmware(changed, ["skip"], board, bundle.parent / "build")
    with Emulator(board, firmware.elf) as emulator:
        yield emulator.port


def parity_with(bundle: Path, edits: Edits, board: Board | None = None, **asked: bool) -> ParityResult:
    """Parity of the bundle as it was generated, with a device that has the fault."""
    with device_with(bundle, edits, board) as port:
        return api.parity(bundle, Data(samples(skip_model(), 2, seed=3)), port=port, **asked)


def arena_below_stack(arena_bytes: int, stack_bytes: int) -> Board:
    """The board with the arena in memory of its own that ends where the stack does: a stack that is too small then
    overwrites the arena instead of faulting."""
    board = load_board(BOARD)
    ram = board.placement.data
    size = -(-arena_bytes // 16) * 16
    low = replace(ram, name="low", bytes=size)
    high = replace(ram, start=ram.start + size, bytes=ram.bytes - size)
    chip = replace(board.chip, regions={**board.chip.regions, "low": low, ram.name: high})
    placement = replace(board.placement, data=high, arena=low)
    return replace(board, chip=chip, placement=placement, stack_bytes=stack_bytes)
