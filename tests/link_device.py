"""The link's C code on the host, behind a real pty: what the link's fast tests talk to.

Bytes pass through a thread of this process, which can damage them on their way.
"""

from __future__ import annotations

import hashlib
import os
import pty
import random
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

from rlx_edge.resources import firmware_dir

SOURCES = Path(__file__).parent / "link"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")

# What happens to bytes on their way: (to_device, bytes) -> the chunks to pass on, one after the other.
Line = Callable[[bool, bytes], list[bytes]]


def compile_program(main: str, payload: int = 1024) -> Path:
    """Compiles tests/link/<main>.c with the test models and the link, under the sanitizers; cached by content."""
    link, kernels = firmware_dir() / "link", firmware_dir() / "kernels"
    sources = [SOURCES / f"{main}.c", SOURCES / "models.c", kernels / "rlx_crc32.c", *sorted(link.glob("*.c"))]
    headers = [SOURCES / "models.h", kernels / "rlx.h", kernels / "rlx_crc32.h", *sorted(link.glob("*.h"))]
    text = b"".join(path.read_bytes() for path in [*sources, *headers])
    digest = hashlib.sha256(text).hexdigest()[:16]
    program = Path(tempfile.gettempdir()) / f"rlx-edge-tests-{os.getuid()}" / f"{main}-{payload}-{digest}"
    if program.exists():
        return program
    program.parent.mkdir(mode=0o700, exist_ok=True)
    scratch = program.with_name(f"{program.name}.{os.getpid()}")
    includes = [f"-I{folder}" for folder in (kernels, link, SOURCES)]
    define = f"-DRLX_LINK_MAX_PAYLOAD={payload}"
    command = ["gcc", "-std=gnu11", "-g", "-O1", *SANITIZE, *WARNINGS, define, *includes, *sources, "-o", scratch]
    subprocess.run([str(part) for part in command], check=True)
    scratch.replace(program)
    return program


def clean_line(to_device: bool, data: bytes) -> list[bytes]:
    return [data]


class BadLine:
    """Damages some of the chunks that pass, one in `rarity` on average, in one way."""

    KINDS = ("corrupt", "drop_bytes", "drop_all", "insert", "text", "repeat_bytes", "repeat_all", "split", "merge")

    def __init__(self, kind: str, seed: int, rarity: int = 5) -> None:
        self.kind = kind
        self.rarity = rarity
        self.random = random.Random(seed)
        self.damaged = 0
        self.kept: dict[bool, bytes] = {True: b"", False: b""}

    def __call__(self, to_device: bool, data: bytes) -> list[bytes]:
        if not data or self.random.randrange(self.rarity):
            kept, self.kept[to_device] = self.kept[to_device], b""
            return [kept + data]
        self.damaged += 1
        at = self.random.randrange(len(data))
        return [chunk for chunk in self._damage(to_device, data, at) if chunk]

    def _damage(self, to_device: bool, data: bytes, at: int) -> list[bytes]:
        few = self.random.randrange(1, 20)
        match self.kind:
            case "corrupt":
                return [data[:at] + bytes([data[at] ^ (1 << self.random.randrange(8))]) + data[at + 1 :]]
            case "drop_bytes":
                return [data[:at] + data[at + few :]]
            case "insert":
                return [data[:at] + self.random.randbytes(few) + data[at:]]
            case "text":
                return [b"some words\r\n", data, b"and others\r\n"]
            case "repeat_bytes":
                return [data[:at] + data[max(0, at - few) :]]
            case "repeat_all":
                return [data, data, data]
            case "split":
                return [data[:at], data[at:]]
            case "merge":  # held back, to arrive late and in front of the next bytes
                self.kept[to_device] += data
        return []


class Wire:
    """A pty, and a thread that passes bytes between it and a device's file descriptor. `port` opens like a serial
    port; `line` may be replaced at any time."""

    def __init__(self, device: int, line: Line = clean_line) -> None:
        self.line = line
        self.woken = threading.Event()  # the device has said something
        self._device = device
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._master)
        os.close(self._slave)

    def send_to_computer(self, data: bytes) -> None:
        """As if the device had sent it."""
        os.write(self._master, data)

    def _pump(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._master, self._device], [], [], 0.02)
            for source, target in ((self._master, self._device), (self._device, self._master)):
                if source in ready and not self._pass_on(source, target):
                    return

    def _pass_on(self, source: int, target: int) -> bool:
        try:
            data = os.read(source, 4096)
            for chunk in self.line(target == self._device, data):
                os.write(target, chunk)
        except OSError:
            return False
        if source == self._device:
            self.woken.set()
        return bool(data)


class HostDevice:
    """A running device; `port` opens like a serial port. `bare` leaves out all that a port may leave out."""

    def __init__(self, *, payload: int = 1024, bare: bool = False) -> None:
        self._program = compile_program("device", payload)
        self._bare = bare

    def __enter__(self) -> HostDevice:
        self._socket, theirs = socket.socketpair()
        command = [str(self._program), str(theirs.fileno()), *(["bare"] if self._bare else [])]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.wire = Wire(self._socket.fileno())
        self.port = self.wire.port
        assert self.wire.woken.wait(10), "the device does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()
        self._socket.close()
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it was told to hang
            self._process.kill()
            code = self._process.wait()
        assert code in (0, -signal.SIGKILL), f"the device ended with {code}: see the sanitizer's words above"

    def kill(self) -> None:
        """As if the power were cut."""
        self._process.kill()


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
