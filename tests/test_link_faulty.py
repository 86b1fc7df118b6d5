"""Devices behind a line that harms frames both ways: every answer is right, or a clear error comes.

Each fault of `timed_line.FAULTS` hits 1% of the frames; separately one byte in 10,000 arrives as another.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import serial
from link_device import HostDevice
from models import ModelMaker, tiny_model
from timed_line import FAULTS, FaultyChannel, TimedLine

from rlx_edge import api
from rlx_edge.cgen.host import HostModel
from rlx_edge.device import session
from rlx_edge.device.build import Firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.frames import Frame, decode, encode
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import RestartedError
from rlx_edge.device.protocol import Command
from rlx_edge.formats.load import load
from rlx_edge.ir import Array, Graph

SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"
BOARD = "mps2-an386"
PERCENT = 0.01
BYTE_RATE = 1e-4
SAMPLES = 50


@dataclass
class Case:
    """A model in firmware, samples of its input, and the outputs that host C computes for them."""

    firmware: Firmware
    samples: Array
    outputs: Array

    def infer(self, link: Link, count: int) -> None:
        """Runs samples on the device, in turn. Raises `AssertionError` on a wrong answer."""
        model = link.model("model")
        for at in range(count):
            at %= len(self.samples)
            link.write_input(model, model.inputs[0], self.samples[at])
            link.run(model)
            (got,) = link.read_outputs(model).values()
            np.testing.assert_array_equal(got.ravel(), self.outputs[at].ravel())


def make_case(graph: Graph, folder: Path) -> Case:
    firmware = api.build({"model": graph}, BOARD, folder)
    (bundled,) = api.open_models(folder)
    (x,) = graph.inputs
    samples = np.random.default_rng(5).integers(-128, 128, (SAMPLES, *x.type.shape)).astype(np.int8)
    (outputs,) = HostModel(bundled).run({x.name: samples}).values()
    return Case(firmware, samples, outputs)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tiny_model(), tmp_path_factory.mktemp("build"))


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU answers within milliseconds: there is no need to wait as long as for a real device before repeating."""
    monkeypatch.setattr(session, "_ANSWER_TIME", 0.06)
    monkeypatch.setattr(session, "_AFTER_DAMAGE", 0.02)
    monkeypatch.setattr(session, "_BUSY_GRACE", 0.2)


@dataclass
class Faulty:
    """A board behind a faulty line. `port` may be opened any number of times, one after the other."""

    port: str
    to_device: FaultyChannel
    to_computer: FaultyChannel

    def open(self) -> Link:
        return Link.open(self.port, 4_000_000, timeout=30, on_text=lambda line: None)


@contextlib.contextmanager
def faulty(port: str, *ways: FaultyChannel, rate: float = PERCENT, byte_rate: float = 0.0) -> Iterator[Faulty]:
    """The device at a port behind a faulty line. Afterwards every fault must have happened, unless its rate is 0."""
    ways = ways or (FaultyChannel(1, rate, byte_rate), FaultyChannel(2, rate, byte_rate))
    with serial.Serial(port, exclusive=True) as far, TimedLine(far.fileno(), *ways) as line:
        started = time.monotonic()
        yield Faulty(line.port, *ways)
    hits = {kind: sum(way.hits[kind] for way in ways) for kind in FAULTS}
    damaged, frames = sum(way.damaged_bytes for way in ways), sum(way.frames for way in ways)
    print(f"{frames:,} frames in {time.monotonic() - started:.0f} s: {hits}, {damaged} bytes damaged")


def check(port: str, case: Case, count: int, *, rate: float = PERCENT, byte_rate: float = 0.0) -> int:
    """Infers over a faulty line; returns how many frames passed."""
    with faulty(port, rate=rate, byte_rate=byte_rate) as line, line.open() as link:
        case.infer(link, count)
        print(f"{count} inferences, all exact, {link.repeats} requests repeated:", end=" ")
    ways = line.to_device, line.to_computer
    if rate:
        assert all(ways[0].hits[kind] + ways[1].hits[kind] for kind in FAULTS), "a fault never happened"
    assert bool(sum(way.damaged_bytes for way in ways)) == bool(byte_rate)
    return sum(way.frames for way in ways)


@pytest.fixture
def board(tiny: Case) -> Iterator[str]:
    """The port of a board in the emulator with the tiny model."""
    with Emulator(api.load_board(BOARD), tiny.firmware.elf) as emulator:
        yield emulator.port


def test_thousands_of_frames(board: str, tiny: Case) -> None:
    assert check(board, tiny, 280) > 2000


def test_damaged_bytes(board: str, tiny: Case) -> None:
    check(board, tiny, 200, rate=0, byte_rate=BYTE_RATE)


def test_noise_before_the_first_frame(board: str, tiny: Case) -> None:
    noise = random.Random(3)
    with faulty(board) as line:
        line.to_computer.inject(b"\r\n\x1b[1mbooting\r\n" + noise.randbytes(3000))
        line.to_device.inject(noise.randbytes(3000))
        with line.open() as link:
            tiny.infer(link, 3)


def chain_run(link: Link, seed: int) -> int:
    """Runs the host device's model `chain` and checks its answer; returns how often the device has run it."""
    chain, random = link.model("chain"), np.random.default_rng(seed)
    x, b = random.integers(-128, 128, (15, 100), dtype=np.int8), random.integers(-128, 128, 4, dtype=np.int8)
    link.write_inputs(chain, {"x": x, "b": b})
    np.testing.assert_array_equal(link.read_tensor(chain, chain.tensors[0]), x)
    link.step(chain, 0)
    np.testing.assert_array_equal(link.read_tensor(chain, chain.tensors[2]), x + b[0])
    link.run(chain)
    total, runs = link.read_outputs(chain)["out"]
    assert total == ((x + b[0]) * np.int8(3)).sum(dtype=np.int32)
    return int(runs)


def test_several_requests_in_flight() -> None:
    """Tensors of many frames: some overtake others. The real C code, on the host, where that takes no time."""
    with HostDevice(payload=128) as device:
        with faulty(device.port, rate=2 * PERCENT, byte_rate=BYTE_RATE) as line, line.open() as link:
            assert [chain_run(link, seed) for seed in range(15)] == list(range(1, 16))
            assert link.repeats > 15
        assert line.to_device.frames > 600


def test_a_port_that_is_closed_and_opened_again() -> None:
    """What one program left on the line arrives late, in the middle of what the next one does."""
    with HostDevice(payload=128) as device, faulty(device.port, rate=3 * PERCENT) as line:
        for seed in range(4):
            with line.open() as link:
                chain_run(link, seed)
                for offset in range(0, 100 * seed, 100):
                    link._session.post(Command.WRITE, struct.pack("<BBHI", 0, 0, 0, offset) + bytes(100))
                link._session.post(Command.RUN, b"\0")
        assert line.to_device.hits["reordering"] + line.to_device.hits["delay"] > 0


@dataclass
class Resetting(FaultyChannel):
    """To a device, which is reset when so many writes have passed."""

    writes: int = 3

    def _send(self, now: float, frame: bytes) -> None:
        super()._send(now, frame)
        sent = decode(frame[1:-1])
        self.writes -= sent is not None and sent.kind == Command.WRITE
        if sent is not None and self.writes == 0:
            self.writes = -1
            super()._send(now, encode(Frame(Command.RESET, 0, (sent.sequence + 9) & 0xFFFF, sent.session, b"")))


def test_a_reset_in_the_middle_of_a_tensor_is_told(tmp_path: Path) -> None:
    maker = ModelMaker("wide", 4)
    wide = make_case(maker.builder.build([maker.dense(maker.input((1, 4000)), 3)]), tmp_path)
    with (
        Emulator(api.load_board(BOARD), wide.firmware.elf) as emulator,
        faulty(emulator.port, Resetting(1, 0), FaultyChannel(2, 0)) as line,
        line.open() as link,
    ):
        with pytest.raises(RestartedError, match=r"restarted while sending input .* \(reset by software\)"):
            wide.infer(link, 1)
        wide.infer(link, 2)


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [("hello_world", 10_000), ("kws", 200)])
def test_public_models(name: str, count: int, tmp_path: Path) -> None:
    case = make_case(load(SHARED / f"{name}_int8.tflite"), tmp_path)
    with Emulator(api.load_board(BOARD), case.firmware.elf) as emulator:
        check(emulator.port, case, count, byte_rate=BYTE_RATE)
