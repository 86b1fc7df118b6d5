"""Profiles: the parity firmware on an emulator whose clock counts instructions."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from bench_device import make_bundle
from command import good
from models import tiny_model

from rlx_edge import api
from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.profile import profile_emulated, ticks_to_instructions
from rlx_edge.device.sizes import sections
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


STARTS = 5
"""Start-up measures once what an empty region costs. Where a busy host stops the emulator's processor within it, that
is more than the layers of a tiny model take, and all of them count 0."""


def test_a_board_on_a_port_is_profiled(tmp_path: Path) -> None:
    """By its own counter; in the emulator its ticks are no cycles, but they are ticks."""
    api.build({"tiny": tiny_model()}, "mps2-an386", tmp_path / "out")
    emulated = api.profile(tmp_path / "out")
    for _ in range(STARTS):
        with Emulator(load_board("mps2-an386"), tmp_path / "out" / "firmware.elf") as emulator:
            made = api.profile_on(emulator.port, tmp_path / "out")
            shown = good("profile", tmp_path / "out", "--port", emulator.port)
            facts = json.loads(good("profile", tmp_path / "out", "--port", emulator.port, "--json"))
        if made.cycles:
            break
    assert (made.board, made.model, made.count_hz) == ("mps2-an386", "tiny", 25_000_000)
    assert [(layer.name, layer.op, layer.macs) for layer in made.layers] == [
        (layer.name, layer.op, layer.macs) for layer in emulated.layers
    ]
    assert [layer.predicted_instructions for layer in made.layers] == [
        layer.predicted_instructions for layer in emulated.layers
    ]
    assert made.stack_bytes == emulated.stack_bytes
    assert made.stack_left_bytes is not None and 0 < made.stack_left_bytes < 4096 - made.stack_bytes
    assert made.cycles == sum(layer.cycles for layer in made.layers) > 0
    assert "cycles of a clock of 25,000,000 Hz" in shown
    assert {section["name"] for section in facts["sections"]} >= {".text", ".rodata", ".bss", ".stack", ".arena"}


def test_sections_add_up_to_the_image(tmp_path: Path) -> None:
    firmware = api.build({"tiny": tiny_model()}, "mps2-an386", tmp_path / "out")
    found = sections(firmware.elf)
    sizes = firmware.sizes
    flash = sum(section.bytes for section in found if "flash" in section.memory)
    ram = sum(section.bytes for section in found if "RAM" in section.memory)
    assert flash <= sizes.flash_bytes + sizes.link_flash_bytes <= flash + 16
    assert ram == sizes.ram_bytes + sizes.link_ram_bytes + sizes.stack_bytes


def test_firmware_of_another_board_is_refused(tmp_path: Path) -> None:
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], load_board("mps2-an385"), tmp_path / "out")
    with pytest.raises(EdgeError, match="was built for mps2-an385, not mps2-an386"):
        profile_emulated(load_board("mps2-an386"), firmware)


@pytest.mark.parametrize("hz", [16_000_000, 20_000_000, 25_000_000, 168_000_000])
def test_ticks_are_rounded_to_whole_instructions(hz: int) -> None:
    for instructions in (0, 1, 7, 1000, 10**9):
        ticks = instructions * 128 * hz // 1_000_000_000
        assert ticks_to_instructions(ticks, hz) == instructions
