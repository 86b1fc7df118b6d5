"""The bench firmware (tests/firmware/bench) on an emulated board: building it, and speaking to it."""

from __future__ import annotations

import shutil
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import serial

from rlx_edge.device.boards import Board
from rlx_edge.device.build import Firmware, build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.profile import ticks_to_instructions
from rlx_edge.resources import firmware_dir

SOURCES = Path(__file__).parent / "firmware"
BENCH = SOURCES / "bench"


def make_bundle(folder: Path) -> Path:
    """A bundle with the model `toy`, as `generate` would lay it out."""
    (folder / "rlx").mkdir(parents=True, exist_ok=True)
    for name in ("rlx.h", "rlx_crc32.h", "rlx_crc32.c"):  # what the link needs; the toy needs no kernels
        shutil.copy(firmware_dir() / "kernels" / name, folder / "rlx")
    shutil.copytree(SOURCES / "toy", folder / "toy", dirs_exist_ok=True)
    return folder


def build_bench(folder: Path, board: Board) -> Firmware:
    """The bench firmware. It may end the emulator on boards that exist as hardware too."""
    bundle = make_bundle(folder / "bundle")
    return build_firmware(bundle, ["toy"], board, folder / board.name, app=BENCH, defines={"RLX_SEMIHOSTING": "1"})


@dataclass(frozen=True)
class State:
    """The answer to '?'."""

    reset_reason: int
    boot_id: int
    count_hz: int
    image_start: int
    image_bytes: int
    stack_unused: int
    cpuid: int


@dataclass(frozen=True)
class FaultRecord:
    """rlx_fault_t."""

    pc: int
    lr: int
    psr: int
    cfsr: int
    hfsr: int
    bfar: int
    r0: int
    sp: int


class Bench:
    """The computer's side of tests/firmware/bench/bench.c."""

    def __init__(self, port: str) -> None:
        self.port = serial.Serial(port, 115200, timeout=5, write_timeout=5)
        self.wake()

    def wake(self) -> None:
        """Waits until the firmware runs. Bytes that come earlier may be lost, so it sends more than one."""
        self.port.timeout = 0.02
        sent, received = 0, 0
        deadline = time.monotonic() + 10
        while received == 0:
            assert time.monotonic() < deadline, "the bench firmware does not answer"
            sent += self.port.write(b"!")
            received += self.port.read(64).count(b"!")
        self.port.timeout = 0.3
        while received < sent and (more := self.port.read(1)):
            received += len(more)
        self.port.timeout = 5

    def read(self, size: int) -> bytes:
        data: bytes = self.port.read(size)
        assert len(data) == size, f"{len(data)} of {size} bytes"
        return data

    def state(self) -> State:
        self.port.write(b"?")
        return State(*struct.unpack("<7I", self.read(28)))

    def echo(self, data: bytes) -> bytes:
        """What comes back for `data`; reads while it writes, or both ends would wait for ever."""
        self.port.write(b"E" + struct.pack("<I", len(data)))
        self.port.timeout = self.port.write_timeout = 60
        writer = threading.Thread(target=self._write_all, args=(data,))
        writer.start()
        back: bytes = self.port.read(len(data))
        writer.join()
        self.port.timeout = self.port.write_timeout = 5
        return back

    def _write_all(self, data: bytes) -> None:
        for start in range(0, len(data), 1024):
            self.port.write(data[start : start + 1024])

    def loop_instructions(self, rounds: int) -> int:
        """Instructions of a loop of `rounds` times three; needs an emulator with icount."""
        hz = self.state().count_hz
        self.port.write(b"L" + struct.pack("<I", rounds))
        return self._instructions(hz)

    def step_instructions(self, steps: int) -> list[int]:
        hz = self.state().count_hz
        self.port.write(b"M")
        return [self._instructions(hz) for _ in range(steps)]

    def _instructions(self, count_hz: int) -> int:
        self.port.timeout = 60
        (ticks,) = struct.unpack("<Q", self.read(8))
        self.port.timeout = 5
        return ticks_to_instructions(ticks, count_hz)

    def fault(self, command: bytes) -> FaultRecord:
        self.port.write(command)
        assert self.read(1) == b"F"
        return FaultRecord(*struct.unpack("<8I", self.read(32)))

    def reset(self) -> None:
        self.port.write(b"R")
        time.sleep(0.1)  # or the waking bytes may reach it before it resets
        self.wake()

    def exit(self, code: int) -> None:
        self.port.write(b"X" + struct.pack("<I", code))

    def close(self) -> None:
        self.port.close()


@contextmanager
def running(board: Board, elf: Path, *, icount: bool = False) -> Iterator[tuple[Emulator, Bench]]:
    with Emulator(board, elf, icount=icount) as emulator:
        bench = Bench(emulator.port)
        try:
            yield emulator, bench
        finally:
            bench.close()
