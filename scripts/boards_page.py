"""Builds the digits example for every board, warnings as errors, and writes the tables of docs/boards.md."""

from __future__ import annotations

import tempfile
from pathlib import Path

from board_page import PAGE, facts_table, replaced, sizes_table

import rlx_edge
from rlx_edge.api import target_of
from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.target import get_target
from rlx_edge.device.boards import Board, load_boards
from rlx_edge.device.build import BUNDLE, Firmware, build_firmware
from rlx_edge.device.toolchain import find_compiler
from rlx_edge.ir import Graph
from rlx_edge.resources import digits_dir


def digits() -> Graph:
    """The example, quantized as the README does it."""
    folder = digits_dir()
    graph = rlx_edge.load(folder / "digits.onnx")
    data = rlx_edge.load_data(folder / "digits_calibration.npz", graph)
    return rlx_edge.quantize(graph, rlx_edge.calibrate(graph, data))


def build(graph: Graph, board: Board, folder: Path) -> Firmware:
    generate({"digits": graph}, folder / BUNDLE, get_target(target_of(board)))
    return build_firmware(folder / BUNDLE, ["digits"], board, folder, warnings_are_errors=True)


def main() -> None:
    graph = digits()
    boards, sizes = load_boards(), {}
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        for board in boards:
            sizes[board.name] = build(graph, board, Path(scratch) / board.name).sizes
            print(board.name, sizes[board.name])
    page = replaced(PAGE.read_text(encoding="utf-8"), "boards", facts_table(boards))
    note = f"\nBuilt by {find_compiler().version}.\n"
    PAGE.write_text(replaced(page, "sizes", sizes_table(sizes) + note), encoding="utf-8")


if __name__ == "__main__":
    main()
