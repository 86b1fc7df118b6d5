"""Memory of an emulated board that nobody may read: watchpoints of QEMU, set through its gdb server.

QEMU compares the address and size of every load of the program with them, however long they are. Two things of QEMU 7.2
a user must know:
- an unaligned load is done, and compared, as the two aligned ones that cover it, so on cores that have such loads a
  watchpoint must leave out the rest of the last word (4 bytes) of memory that may be read;
- an unaligned store is compared as if it covered most of its page, so watchpoints for stores are of no use.

The packets are those of https://sourceware.org/gdb/current/onlinedocs/gdb.html/Remote-Protocol.html.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ON_READ = 3
PC = 15
INTERRUPT = b"\x03"
SECONDS = 600.0
"""For a run of a model, which the link bounds by itself."""


@dataclass(frozen=True)
class Read:
    """A load from watched memory: where its span begins, and the address of the instruction."""

    first: int
    pc: int


def first_read(gdb: str, spans: Iterable[tuple[int, int]], action: Callable[[], object]) -> Read | None:
    """Who first reads from addresses [first, end) of `spans` while `action` speaks to the board; None: nobody.

    gdb: the emulator's `gdb_target`, once its program answers. After a read the board goes on, no longer watched.
    """
    with socket.socket(socket.AF_UNIX) as stream, ThreadPoolExecutor(1) as pool:
        stream.settimeout(SECONDS)
        stream.connect(gdb)
        server = _Server(stream)
        server.packet()  # that the board is halted now
        for first, end in spans:
            assert server.ask(f"Z{ON_READ},{first:x},{end - first:x}") == "OK"
        server.send("c")
        watching = pool.submit(server.watch)
        try:
            action()
        finally:
            if server.found is None:
                stream.sendall(INTERRUPT)
        watching.result()
        return server.found


class _Server:
    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._received = b""
        self.found: Read | None = None

    def watch(self) -> None:
        """Waits until the board is halted, by a read or because the action has ended, and lets it go."""
        at = re.search(r"rwatch:([0-9a-f]+)", self.packet())
        if at:
            registers = bytes.fromhex(self.ask("g"))
            self.found = Read(int(at[1], 16), int.from_bytes(registers[4 * PC : 4 * PC + 4], "little"))
        assert self.ask("D") == "OK"

    def ask(self, text: str) -> str:
        self.send(text)
        return self.packet()

    def send(self, text: str) -> None:
        self._stream.sendall(f"${text}#{sum(text.encode()) & 0xFF:02x}".encode())

    def packet(self) -> str:
        """The next packet; acknowledgments (+) before it are passed over. While the board runs, any byte but that which
        acknowledges a packet would halt it."""
        while not (found := re.search(rb"\$([^#]*)#..", self._received)):
            self._received += self._stream.recv(4096)
        self._received = self._received[found.end() :]
        self._stream.sendall(b"+")
        return found[1].decode()
