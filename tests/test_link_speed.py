"""Throughput at 115200 baud behind an adapter that holds answers back for 16 ms: at least 85% of the line is payload.

The long tests measure it, on a line that is paced byte by byte; what another process on this computer takes away, the
next try may get. The other one sees, whatever the computer's speed, that requests do not wait for answers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import serial
from link_device import HostDevice
from timed_line import BYTES_PER_SECOND, ForwardChannel, PacedChannel, TimedLine, WithheldChannel

from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link
from rlx_edge.device.protocol import ModelInfo
from rlx_edge.resources import firmware_dir

LATENCY = 0.016
TRIES = 6
T = TypeVar("T")


def timed(size: int, transfer: Callable[[], T]) -> tuple[float, T]:
    """Payload over what the line carries meanwhile, and the transfer's result."""
    started = time.monotonic()
    result = transfer()
    return size / BYTES_PER_SECOND / (time.monotonic() - started), result


def speeds(link: Link, model: ModelInfo, at: int, tries: int = TRIES) -> tuple[float, float]:
    """The best shares of writing and of reading an input, which is read after it is whole."""
    tensor = model.inputs[at]
    data = np.random.default_rng(1).integers(-128, 128, tensor.shape).astype(np.int8)
    best = np.zeros(2)
    for _ in range(tries):
        link.clear(model)
        write, _ = timed(data.nbytes, lambda: link.write_input(model, tensor, data))
        back, got = timed(data.nbytes, lambda: link.read_tensor(model, tensor))
        np.testing.assert_array_equal(got, data)
        best = np.maximum(best, (write, back))
        print(f"{data.nbytes} bytes: {write:.1%} writing, {back:.1%} reading")
        if min(best) >= 0.9:
            break
    return float(best[0]), float(best[1])


def test_another_request_is_always_on_its_way() -> None:
    """But for the first and the last of a transfer, whose answers are awaited."""
    requests = ForwardChannel()
    answers = WithheldChannel(requests)
    with (
        HostDevice(payload=128) as device,
        serial.Serial(device.port, exclusive=True) as far,
        TimedLine(far.fileno(), requests, answers) as line,
        Link.open(line.port) as link,
    ):
        model = link.model("bytes")
        tensor = model.inputs[0]
        data = np.random.default_rng(2).integers(-128, 128, tensor.shape).astype(np.int8)
        link.clear(model)
        for transfer in (lambda: link.write_input(model, tensor, data), lambda: link.read_tensor(model, tensor)):
            answers.withhold()
            transfer()
            assert answers.frames > 30
            assert answers.rests < answers.frames / 2  # all of them, if each request waited for the answer before
        np.testing.assert_array_equal(link.read_tensor(model, tensor), data)


@pytest.mark.long
def test_the_line_does_not_rest() -> None:
    with (
        HostDevice(payload=1024) as device,
        serial.Serial(device.port, exclusive=True) as far,
        TimedLine(far.fileno(), PacedChannel(), PacedChannel(LATENCY)) as line,
        Link.open(line.port) as link,
    ):
        write, read = speeds(link, link.model("bytes"), 0)
        assert write >= 0.85
        assert read >= 0.85


@pytest.mark.long
@pytest.mark.parametrize(("name", "rows"), [("mps2-an386", 200), ("netduinoplus2", 200), ("microbit", 35)])
def test_the_line_does_not_rest_on_boards(name: str, rows: int, tmp_path: Path) -> None:
    """Tensors of 100 bytes a row; of the largest that fit on the microbit, with its small frames and small ring."""
    bundle = tmp_path / "bundle"
    shutil.copytree(firmware_dir() / "kernels", bundle / "rlx")
    shutil.copytree(Path(__file__).parent / "link" / "probe", bundle / "probe")
    board = load_board(name)
    firmware = build_firmware(bundle, ["probe"], board, tmp_path / "out", defines={"PROBE_ROWS": str(rows)})
    with (
        Emulator(board, firmware.elf) as emulator,
        serial.Serial(emulator.port, exclusive=True) as far,
        TimedLine(far.fileno(), PacedChannel(), PacedChannel(LATENCY)) as line,
        Link.open(line.port) as link,
    ):
        write, read = speeds(link, link.model("probe"), 1, 20)
        assert write >= 0.85
        assert read >= 0.85
