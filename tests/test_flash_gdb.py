"""Flashing through gdb: what it says when it cannot (tests/test_emulated_boards.py flashes every board)."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_device import build_bench

from rlx_edge.device.boards import load_board
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.flash_gdb import flash_gdb
from rlx_edge.errors import EdgeError


def test_no_server(tmp_path: Path) -> None:
    firmware = build_bench(tmp_path, load_board())
    with pytest.raises(EdgeError, match=r"flashing firmware.elf over .*/none failed: .*No such file") as caught:
        flash_gdb(firmware.elf, str(tmp_path / "none"))
    assert "\n" not in str(caught.value)


def test_no_image(tmp_path: Path) -> None:
    with (
        Emulator(load_board(), None, gdb=True, halted=True) as emulator,
        pytest.raises(EdgeError, match=r"flashing no.elf over .* failed: .*no.elf: No such file"),
    ):
        flash_gdb(tmp_path / "no.elf", emulator.gdb_target)


def test_an_image_for_another_board_does_not_stay(tmp_path: Path) -> None:
    """STM32 flash lies where this board has nothing, so that what is read back differs."""
    firmware = build_bench(tmp_path, load_board("netduinoplus2"))
    with Emulator(load_board(), None, gdb=True, halted=True) as emulator, pytest.raises(EdgeError, match="failed: "):
        flash_gdb(firmware.elf, emulator.gdb_target)


def test_no_gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EdgeError, match="gdb-multiarch is not there: install it"):
        flash_gdb(tmp_path / "x.elf", "localhost:1")
