"""A bundle with the link, in firmware that owes nothing to ours: docs/own-firmware.md, for real."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from models import samples, tiny_model

from rlx_edge import api
from rlx_edge.certificate.issue import certify
from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.target import TARGETS
from rlx_edge.data import Data
from rlx_edge.device.boards import load_board
from rlx_edge.device.emulator import Emulator
from rlx_edge.errors import DeviceError
from rlx_edge.resources import firmware_dir

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "own_firmware"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "bundle"
    generate({"digits": tiny_model()}, folder, TARGETS["cortex-m4"], with_link=True)
    return folder


@pytest.fixture(scope="module")
def own_elf(bundle: Path) -> Path:
    """Compiled as the page says, with the compiler's strictest warnings on top."""
    elf = bundle.parent / "own.elf"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    flags = ("-mcpu=cortex-m4", "-mthumb", "-O2", "-ffreestanding", "-nostdlib", "-Wl,--gc-sections")
    includes = (f"-I{bundle}", f"-I{bundle / 'rlx'}", "-T", str(EXAMPLE / "mps2.ld"))
    sources = [EXAMPLE / "main.c", *sorted(bundle.glob("*/*.c")), firmware_dir() / "runtime" / "rlx_memory.c"]
    command = ["arm-none-eabi-gcc", *strict, *flags, *includes, *map(str, sources), "-lgcc", "-o", str(elf)]
    subprocess.run(command, check=True)
    return elf


def test_parity_with_ones_own_firmware(bundle: Path, own_elf: Path) -> None:
    data = Data(samples(tiny_model(), 5))
    with Emulator(load_board("mps2-an386"), own_elf) as emulator:
        result = api.parity(bundle, data, port=emulator.port, layers=True)
    assert result.exact
    assert (result.board, result.inputs) == ("my-own-board", 5)


def test_another_model_of_the_same_name_is_noticed(bundle: Path, own_elf: Path, tmp_path: Path) -> None:
    generate({"digits": tiny_model(seed=9)}, tmp_path / "other", TARGETS["cortex-m4"])
    data = Data({"x": np.zeros((1, 6, 6, 2), np.int8)})
    with (
        Emulator(load_board("mps2-an386"), own_elf) as emulator,
        pytest.raises(DeviceError, match="another version of 'digits'"),
    ):
        api.parity(tmp_path / "other", data, port=emulator.port)


def test_a_bundle_needs_a_port(bundle: Path) -> None:
    with pytest.raises(DeviceError, match="--port"):
        api.parity(bundle, Data({"x": np.zeros((1, 6, 6, 2), np.int8)}))


def test_no_certificate_of_firmware_that_does_not_tell_its_image(bundle: Path, own_elf: Path, tmp_path: Path) -> None:
    """It has the build's model, and nobody knows what else: here its own start-up and main program."""
    api.build({"digits": tiny_model()}, "mps2-an386", tmp_path / "build")
    data = Data(samples(tiny_model(), 2))
    with Emulator(load_board("mps2-an386"), own_elf) as emulator:
        assert api.parity(tmp_path / "build", data, port=emulator.port).exact
        with pytest.raises(DeviceError, match=r"my-own-board.* does not tell its image in flash"):
            certify(tmp_path / "build", data, port=emulator.port)
