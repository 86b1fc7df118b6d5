"""Boards in QEMU: started and ended with a `with` block, spoken to over a pty that opens like any serial port."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType

from rlx_edge.device.boards import Board
from rlx_edge.errors import DeviceError, ToolError

QEMU = "qemu-system-arm"
START_SECONDS = 20.0

# Under icount one instruction takes 2**7 = 128 ns of the board's time.
ICOUNT_SHIFT = 7

# QEMU never ends by itself and takes a whole core, so it must not outlive this process, however that ends. This shell
# script reads from a pipe that only this process holds, and kills QEMU when the pipe closes.
_LEASH = """
exec 3<&0
"$@" </dev/null 3<&- &
qemu=$!
(read -r never <&3; kill -9 $qemu) >/dev/null 2>&1 &
leash=$!
exec 3<&-
wait $qemu
code=$?
kill $leash
exit $code
"""

_PTY = re.compile(r"redirected to (/dev/\S+)")
_running: weakref.WeakSet[Emulator] = weakref.WeakSet()


class Emulator:
    """A board running in QEMU.

        with Emulator(board, firmware.elf) as emulator:
            serial.Serial(emulator.port)

    `elf`: the image, or None to start with empty memory (then flash it through gdb). `icount`: run with a clock that
    counts instructions, for profiles. `gdb`: offer a gdb server at `gdb_target`. `halted`: wait for gdb before the
    first instruction. `semihosting`: let the program end the emulator; it can then also open files of this computer, so
    that an image of somebody else's is run without.

    Entering raises `ToolError` when QEMU is missing, does not know the machine, or ends at once. So does leaving with a
    `DeviceError` whose cause is that QEMU has ended.
    """

    def __init__(
        self,
        board: Board,
        elf: Path | None,
        *,
        icount: bool = False,
        gdb: bool = False,
        halted: bool = False,
        semihosting: bool = True,
    ) -> None:
        self.board = board
        self.port = ""
        self.gdb_target = ""
        self._elf = elf
        self._icount = icount
        self._gdb = gdb
        self._halted = halted
        self._semihosting = semihosting
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Emulator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = self._awaited_failure() if isinstance(error, DeviceError) else ""
        self.stop()
        if failure:
            raise ToolError(failure) from error

    def start(self) -> None:
        """Starts QEMU and returns when `port` can be opened."""
        self._folder = tempfile.TemporaryDirectory(prefix="rlx-edge-qemu-")
        _running.add(self)
        try:
            with self._log().open("wb") as log, contextlib.ExitStack() as held:
                listener = held.enter_context(self._listener()) if self._gdb else None
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _LEASH, "sh", *self._command(listener)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C reaches this process, which then ends QEMU in order
                    pass_fds=() if listener is None else (listener.fileno(),),
                )
            self.port = self._await_port(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends QEMU. Does nothing when it has ended already."""
        _running.discard(self)
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            self._process.wait(timeout=10)
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def failure(self) -> str:
        """Why QEMU has ended by itself, in one line; empty while it runs."""
        if self._process is None or self._process.poll() is None:
            return ""
        lines = self._log().read_text(errors="replace").strip().splitlines()
        said = next((line for line in lines if "fatal" in line.lower() or "error" in line.lower()), "")
        said = said or (lines[0] if lines else "it said nothing")
        return f"{QEMU} for {self.board.name} ended with code {self._process.returncode}: {said}"

    def _awaited_failure(self) -> str:
        """The port closes a moment before QEMU is seen to have ended."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1)
        return self.failure()

    def wait_exit(self, timeout: float) -> int:
        """The code given to `rlx_soc_exit`, once the program has called it. Raises `ToolError` after `timeout` s."""
        if self._process is None:
            raise ToolError(f"the emulator of {self.board.name} is not running")
        try:
            return self._process.wait(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"the program on the emulated {self.board.name} did not end in {timeout:g} s") from error

    def _listener(self) -> socket.socket:
        """The gdb server's socket. QEMU would make it after it names its pty, when gdb may be there."""
        self.gdb_target = str(self._log().with_name("gdb"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.gdb_target)
        listener.listen()
        return listener

    def _command(self, gdb: socket.socket | None) -> list[str]:
        emulation = self.board.emulation
        if emulation is None:
            raise ToolError(
                f"{self.board.name}: no emulator runs this board; `rlx-edge boards` lists those that run in one"
            )
        qemu = shutil.which(QEMU)
        if qemu is None:
            raise ToolError(
                f"{QEMU} is not there: install it (Debian: apt-get install --no-install-recommends qemu-system-arm)"
            )
        command = [qemu, "-M", emulation.machine, *emulation.args, "-display", "none", "-monitor", "none"]
        command += ["-serial", "pty"]
        if self._semihosting:
            command += ["-semihosting-config", "enable=on,target=native"]
        if self._elf is not None:
            _check_image(self._elf)
            command += ["-kernel", str(self._elf)]
        if self._icount:
            command += ["-icount", f"shift={ICOUNT_SHIFT}"]
        if gdb is not None:
            command += ["-chardev", f"socket,id=gdb,fd={gdb.fileno()},server=on,wait=off", "-gdb", "chardev:gdb"]
        return [*command, "-S"] if self._halted else command

    def _log(self) -> Path:
        if self._folder is None:
            raise ToolError(f"the emulator of {self.board.name} is not running")
        return Path(self._folder.name) / "stderr"

    def _await_port(self, process: subprocess.Popen[bytes]) -> str:
        """Reads what QEMU prints until it names its pty."""
        assert process.stdout is not None
        printed = b""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not select.select([process.stdout], [], [], 0.2)[0]:
                continue
            chunk = os.read(process.stdout.fileno(), 4096)
            printed += chunk
            match = _PTY.search(printed.decode(errors="replace"))
            if match:
                return match[1]
            if not chunk:
                process.wait(timeout=10)
                raise ToolError(self.failure())
        raise ToolError(f"{QEMU} for {self.board.name} named no serial port in {START_SECONDS:g} s")


def _check_image(elf: Path) -> None:
    """QEMU names its pty before it looks at the image, so a bad one must be found here."""
    try:
        with elf.open("rb") as stream:
            good = stream.read(4) == b"\x7fELF"
    except OSError as error:
        raise ToolError(f"{elf}: cannot be read: {error.strerror}; build it again") from error
    if not good:
        raise ToolError(f"{elf}: is not an ELF file; build it again")


@atexit.register
def _stop_all() -> None:
    for emulator in list(_running):
        emulator.stop()
