"""The parity firmware on emulated boards, over the emulator's pty: numbers, faults with their source lines, resets."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.device.boards import load_board
from rlx_edge.device.build import Firmware, build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.firmware import ExpectedFirmware
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import FaultError, NoAnswerError
from rlx_edge.device.parity import run_parity
from rlx_edge.device.scope import Scope
from rlx_edge.errors import DeviceError
from rlx_edge.resources import firmware_dir

BUS_ERROR, UNDEFINED, HANG, DEEP = 1, 2, 3, 4
PROBE = Path(__file__).parent / "link" / "probe"
PROBE_HASH = "0f" + "00" * 15

# Each core once, some in long runs only.
BOARDS = ("mps2-an386", "mps3-an547", "netduinoplus2", "microbit")
MORE = ("mps2-an385", "mps2-an500", "mps2-an505")


Build = Callable[[str], Firmware]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds a board's firmware with the probe on it, once."""
    bundle = tmp_path_factory.mktemp("bundle")
    shutil.copytree(firmware_dir() / "kernels", bundle / "rlx")
    shutil.copytree(PROBE, bundle / "probe")

    @functools.cache
    def build(name: str) -> Firmware:
        out = tmp_path_factory.mktemp(name)
        rows = "10" if name == "microbit" else "15"
        return build_firmware(bundle, ["probe"], load_board(name), out, defines={"PROBE_ROWS": rows})

    return build


class Device:
    """A board in the emulator with the probe on it."""

    def __init__(self, name: str, firmware: Firmware, link: Link) -> None:
        self.name = name
        self.firmware = firmware
        self.link = link

    def provoke(self, what: int) -> None:
        probe = self.link.model("probe")
        sample = {"what": np.array([what], np.int8), "data": np.zeros(probe.inputs[1].shape, np.int8)}
        self.link.write_inputs(probe, sample)
        self.link.run(probe)


@pytest.fixture(scope="module", params=[*BOARDS, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def device(request: pytest.FixtureRequest, build: Build) -> Iterator[Device]:
    board, firmware = load_board(request.param), build(request.param)
    with (
        Emulator(board, firmware.elf) as emulator,
        Link.open(emulator.port, board.baud, elf=firmware.elf, on_text=lambda line: None) as link,
    ):
        yield Device(request.param, firmware, link)


def reference(sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"t": sample["data"], "out": sample["data"] * np.int8(2), "acted": sample["what"]}


def probe_inputs(link: Link, samples: int = 2) -> dict[str, np.ndarray]:
    shape = link.model("probe").inputs[1].shape
    data = np.random.default_rng(7).integers(-128, 128, (samples, *shape), dtype=np.int8)
    return {"what": np.zeros((samples, 1), np.int8), "data": data}


def test_the_device_checks_its_own_image(device: Device) -> None:
    hello = device.link.hello()
    assert hello.device == device.name
    assert (hello.image_bytes, hello.image_crc) == (device.firmware.image_bytes, device.firmware.image_crc32)
    assert hello.count_hz > 0


@pytest.mark.parametrize("layers", [False, True])
def test_parity_is_exact(device: Device, layers: bool) -> None:
    expected = ExpectedFirmware({"probe": PROBE_HASH}, device.firmware.image_crc32)
    device.link.hello()
    inputs = probe_inputs(device.link)
    result = run_parity(device.link, "probe", inputs, {"numpy": reference}, scope=Scope(layers), firmware=expected)
    size = inputs["data"].nbytes
    assert result.exact
    assert result.board == device.name
    assert result.compared_bytes == (2 * size + 2 if layers else size)


def test_a_stale_firmware_is_refused(device: Device) -> None:
    expected = ExpectedFirmware({"probe": PROBE_HASH}, device.firmware.image_crc32 ^ 1)
    device.link.hello()
    with pytest.raises(DeviceError, match=r"firmware is not the build's .* flash the build again"):
        run_parity(device.link, "probe", probe_inputs(device.link), {"numpy": reference}, firmware=expected)


def test_a_profile_measures_every_step(device: Device) -> None:
    device.link.hello()
    steps = device.link.profile(device.link.model("probe"))
    assert [step.layer.name for step in steps] == ["t", "acted", "out"]
    assert all(0 < step.stack_bytes < 1024 for step in steps)


def test_an_undefined_instruction_is_told_with_its_line(device: Device) -> None:
    device.link.hello()
    with pytest.raises(FaultError, match=r"in step 1: .* in \w+ \(bundle/probe/probe.c:\d+\)"):
        device.provoke(UNDEFINED)
    hello = device.link.hello()
    assert hello.reset_reason == 5


def test_a_bus_error_is_told_with_its_line(device: Device) -> None:
    if device.name != "mps2-an386":
        pytest.skip("where nothing lies differs from board to board")
    device.link.hello()
    line = 1 + next(
        index for index, text in enumerate((PROBE / "probe.c").read_text().splitlines()) if "wants named" in text
    )
    place = rf"bus error at address 0xa0000000 in read_nowhere\S* \(bundle/probe/probe.c:{line}\), called from step"
    with pytest.raises(FaultError, match=place):
        device.provoke(BUS_ERROR)


def test_a_stack_overflow_is_told(device: Device) -> None:
    device.link.hello()
    with pytest.raises(FaultError, match=r"fault while running probe, in step 1: stack overflow"):
        device.provoke(DEEP)
    device.link.hello()
    assert run_parity(device.link, "probe", probe_inputs(device.link, 1), {"numpy": reference}).exact


def test_a_reset_gives_a_new_boot(device: Device) -> None:
    before = device.link.hello()
    after = device.link.reset()
    assert after.boot_id != before.boot_id
    assert after.reset_reason == 3


def test_a_hang_is_told_with_its_step(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.device.session._BUSY_GRACE", 0.5)
    board, firmware = load_board("mps2-an386"), build("mps2-an386")
    with (
        Emulator(board, firmware.elf) as emulator,
        Link.open(emulator.port, board.baud, timeout=2, elf=firmware.elf) as link,
        pytest.raises(NoAnswerError, match="stopped answering in step 0 or later while running probe"),
    ):
        Device(board.name, firmware, link).provoke(HANG)
