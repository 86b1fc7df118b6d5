"""Profiles: the parity firmware on an emulator whose clock counts instructions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from bench_device import make_bundle

from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.profile import profile_emulated, ticks_to_instructions
from rlx_edge.errors import EdgeError


@pytest.mark.parametrize("name", ["mps2-an386", "microbit"])
def test_a_profile_is_exactly_repeatable(tmp_path: Path, name: str) -> None:
    board = load_board(name)
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], board, tmp_path / "out")
    profile = profile_emulated(board, firmware)
    assert profile == profile_emulated(board, firmware, "toy")
    assert [(layer.name, layer.op) for layer in profile.layers] == [("y", "Binary"), ("z", "Binary")]
    assert all(30 < layer.instructions < 300 for layer in profile.layers)
    assert profile.instructions == sum(layer.instructions for layer in profile.layers)
    keys = {"board", "instructions", "flash_bytes", "ram_bytes", "stack_bytes", "link_flash_bytes", "link_ram_bytes"}
    assert keys | {"layers"} <= asdict(profile).keys()
    assert 1000 < profile.link_flash_bytes < 12000


def test_firmware_of_another_board_is_refused(tmp_path: Path) -> None:
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], load_board("mps2-an385"), tmp_path / "out")
    with pytest.raises(EdgeError, match="was built for mps2-an385, not mps2-an386"):
        profile_emulated(load_board("mps2-an386"), firmware)


@pytest.mark.parametrize("hz", [16_000_000, 20_000_000, 25_000_000, 168_000_000])
def test_ticks_are_rounded_to_whole_instructions(hz: int) -> None:
    for instructions in (0, 1, 7, 1000, 10**9):
        ticks = instructions * 128 * hz // 1_000_000_000
        assert ticks_to_instructions(ticks, hz) == instructions
