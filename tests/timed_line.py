"""Lines between the computer and a device that take time: a pty on the computer's side, a descriptor on the device's.

Each direction is a channel: what goes in comes out later, changed or not. `PacedChannel` is a UART behind a USB
adapter, `FaultyChannel` harms frames as a table of faults says.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import pty
import random
import select
import threading
import time
import tty
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rlx_edge.device.frames import decode
from rlx_edge.device.protocol import BUSY

BYTES_PER_SECOND = 11_520  # 115200 baud, 10 bits a byte


class Channel(Protocol):
    """One direction of a line. Times in seconds, of time.monotonic()."""

    def push(self, now: float, data: bytes) -> None:
        """Takes what was sent."""

    def due(self, now: float) -> bytes:
        """What arrives by now."""

    def next(self) -> float | None:
        """When more will arrive; None: when more is sent."""


class PacedChannel:
    """Bytes at the pace of a UART; each arrives `latency` seconds after its last bit."""

    def __init__(self, latency: float = 0.0, rate: float = BYTES_PER_SECOND) -> None:
        self.latency, self.rate = latency, rate
        self.passed = 0
        self._free = 0.0  # the line carries all bytes so far until then
        self._queue: deque[tuple[float, bytes]] = deque()

    def push(self, now: float, data: bytes) -> None:
        for at in range(0, len(data), 8):  # in pieces of 8 bytes: 0.7 ms at 115200 baud
            piece = data[at : at + 8]
            self._free = max(self._free, now) + len(piece) / self.rate
            self._queue.append((self._free + self.latency, piece))

    def due(self, now: float) -> bytes:
        out = b""
        while self._queue and self._queue[0][0] <= now:
            out += self._queue.popleft()[1]
        self.passed += len(out)
        return out

    def next(self) -> float | None:
        return self._queue[0][0] if self._queue else None


class ForwardChannel:
    """Bytes as they come; counts the frames among them."""

    def __init__(self) -> None:
        self.frames = 0
        self._out = b""
        self._inside = False

    def push(self, now: float, data: bytes) -> None:
        self._out += data
        for byte in data:
            self.frames += self._inside and byte == 0
            self._inside = byte != 0

    def due(self, now: float) -> bytes:
        out, self._out = self._out, b""
        return out

    def next(self) -> float | None:
        return 0.0 if self._out else None


class WithheldChannel:
    """Answers that arrive once another request is on its way, so that the line never rests; where none comes, a little
    later, which counts as a rest. `frames` and `rests` count from the moment when `withhold` is called."""

    SECONDS = 0.2

    def __init__(self, requests: ForwardChannel) -> None:
        self.requests = requests
        self.frames = self.rests = 0
        self._first: int | None = None
        self._rest = b""
        self._queue: deque[tuple[float, bytes]] = deque()

    def withhold(self) -> None:
        """From now on; until then answers pass."""
        self._first = self.requests.frames
        self.frames = self.rests = 0

    def push(self, now: float, data: bytes) -> None:
        *chunks, self._rest = (self._rest + data).split(b"\0")
        self._queue.extend((now, b"\0" + chunk + b"\0") for chunk in chunks if chunk)

    def due(self, now: float) -> bytes:
        out = b""
        while self._queue:
            at, chunk = self._queue[0]
            frame = decode(chunk.strip(b"\0"))
            if self._first is not None and (frame is None or frame.kind != BUSY):
                alone = self.requests.frames - self._first < self.frames + 2
                if alone and now - at < self.SECONDS:
                    break
                self.frames += 1
                self.rests += alone
            out += self._queue.popleft()[1]
        return out

    def next(self) -> float | None:
        return self._queue[0][0] + self.SECONDS if self._queue else None


@dataclass(frozen=True)
class Delivery:
    """A piece of a frame that arrives `after` so many seconds; later frames wait for it where `in_order`."""

    after: float
    data: bytes
    in_order: bool = True


def _flip(frame: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(frame))
    return frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]


def _split(frame: bytes, rng: random.Random) -> list[Delivery]:
    at = rng.randrange(1, len(frame))
    return [Delivery(0, frame[:at]), Delivery(rng.uniform(0, 0.03), frame[at:])]


# What may befall a frame: from its bytes, with both delimiters, to what arrives of it.
FAULTS: dict[str, Callable[[bytes, random.Random], list[Delivery]]] = {
    "loss": lambda frame, rng: [],
    "doubling": lambda frame, rng: [Delivery(0, frame), Delivery(rng.choice((0, 0.02, 0.3)), frame, False)],
    "corruption": lambda frame, rng: [Delivery(0, _flip(frame, rng))],
    "merging": lambda frame, rng: [Delivery(0.01, frame[:-1])],  # its end is lost; so is the next one's beginning
    "splitting": _split,
    "reordering": lambda frame, rng: [Delivery(rng.choice((0.005, 0.05, 0.5)), frame, False)],
    "delay": lambda frame, rng: [Delivery(rng.choice((0.01, 0.1, 0.4)), frame)],
}


@dataclass
class FaultyChannel:
    """Harms frames: each fault hits `rate` of them; then `byte_rate` of all bytes arrive as others."""

    seed: int
    rate: float = 0.01
    byte_rate: float = 0.0
    frames: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    damaged_bytes: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._rest = b""
        self._queue: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._clock = 0.0  # nothing that keeps its place arrives earlier
        self._merging = False

    def withhold(self) -> None:
        """From now on; until then answers pass."""
        self._first = self.requests.frames
        self.frames = self.rests = 0

    def push(self, now: float, data: bytes) -> None:
        *chunks, self._rest = (self._rest + data).split(b"\0")
        for chunk in filter(None, chunks):
            self._send(now, b"\0" + chunk + b"\0")

    def inject(self, data: bytes) -> None:
        """Puts bytes on the line that nobody sent."""
        self._deliver(time.monotonic(), Delivery(0, data))

    def _send(self, now: float, frame: bytes) -> None:
        self.frames += 1
        draw = self._random.random() / self.rate if self.rate else len(FAULTS)
        kind = list(FAULTS)[int(draw)] if draw < len(FAULTS) else None
        if self._merging:
            frame = frame[1:]
        self._merging = kind == "merging"
        if kind is None:
            self._deliver(now, Delivery(0, frame))
            return
        self.hits[kind] += 1
        for delivery in FAULTS[kind](frame, self._random):
            self._deliver(now, delivery)

    def _deliver(self, now: float, delivery: Delivery) -> None:
        at = max(now, self._clock) + delivery.after
        if delivery.in_order:
            self._clock = at
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, delivery.data))

    def due(self, now: float) -> bytes:
        out = bytearray()
        while self._queue and self._queue[0][0] <= now:
            out += heapq.heappop(self._queue)[2]
        for at in range(len(out) if self.byte_rate else 0):
            if self._random.random() < self.byte_rate:
                out[at] = self._random.randrange(256)
                self.damaged_bytes += 1
        return bytes(out)

    def next(self) -> float | None:
        return self._queue[0][0] if self._queue else None


class TimedLine:
    """The line: `port` opens like a serial port, any number of times, one after the other."""

    def __init__(self, device: int, to_device: Channel, to_computer: Channel) -> None:
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)
        self._ways = ((self._master, device, to_device), (device, self._master, to_computer))
        self._backlog = {self._master: b"", device: b""}  # what they do not take at once
        for descriptor in self._backlog:
            os.set_blocking(descriptor, False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TimedLine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._master)
        os.close(self._slave)

    def _run(self) -> None:
        while not self._stop.is_set():
            times = [at for _, _, channel in self._ways if (at := channel.next()) is not None]
            wait = min([0.02, *(at - time.monotonic() for at in times)])
            wait = 0.001 if any(self._backlog.values()) else wait
            ready, _, _ = select.select([source for source, _, _ in self._ways], [], [], max(wait, 0))
            for source, target, channel in self._ways:
                try:
                    if source in ready:
                        channel.push(time.monotonic(), os.read(source, 4096))
                    self._write(target, channel.due(time.monotonic()))
                except OSError:  # the device is gone
                    return

    def _write(self, target: int, data: bytes) -> None:
        self._backlog[target] += data
        with contextlib.suppress(BlockingIOError):
            while self._backlog[target]:
                self._backlog[target] = self._backlog[target][os.write(target, self._backlog[target]) :]
