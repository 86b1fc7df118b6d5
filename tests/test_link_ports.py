"""Ports of every kind: the URLs of pyserial with a real device behind them, control lines, a set-up that failed."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import socket
import subprocess
import threading
import time
import tty
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import serial
from bench_device import make_bundle
from link_device import HostDevice
from serial import rfc2217

from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.emulator import QEMU, Emulator
from rlx_edge.device.link import Link
from rlx_edge.device.ports import open_port
from rlx_edge.errors import DeviceError


class Lines(serial.Serial):
    """A port that remembers what DTR and RTS were set to. A pty has no such lines, nor those that come in."""

    cts = dsr = ri = cd = False

    def __init__(self, port: str) -> None:
        self.said: list[tuple[str, bool]] = []
        super().__init__(port, timeout=0)
        self.said.clear()

    def _update_dtr_state(self) -> None:
        self.said.append(("dtr", self._dtr_state))

    def _update_rts_state(self) -> None:
        self.said.append(("rts", self._rts_state))


class PortServer:
    """Serves a serial port to one computer by RFC 2217, with pyserial's own manager of the protocol."""

    def __init__(self, port: str) -> None:
        self.lines = Lines(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rfc2217://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> PortServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._listener.close()
        self.lines.close()

    def write(self, data: bytes) -> None:
        """What the manager says to the computer."""
        self._client.sendall(data)

    def _serve(self) -> None:
        self._client, _ = self._listener.accept()
        manager = rfc2217.PortManager(self.lines, self)
        with self._client, contextlib.suppress(ConnectionError):
            while True:
                ready, _, _ = select.select([self._client, self.lines], [], [])
                if self._client in ready:
                    data = self._client.recv(4096)
                    if not data:
                        return
                    self.lines.write(b"".join(manager.filter(data)))
                if self.lines in ready:
                    self.write(b"".join(manager.escape(self.lines.read(4096))))


def check_chain(link: Link) -> None:
    """Large tensors both ways, every byte value among them: 255 is special to Telnet."""
    chain = link.model("chain")
    x = np.arange(1500).astype(np.int8).reshape(15, 100)
    link.write_inputs(chain, {"x": x, "b": np.zeros(4, np.int8)})
    np.testing.assert_array_equal(link.read_tensor(chain, chain.tensors[0]), x)
    link.run(chain)
    assert link.read_outputs(chain)["out"][0] == (x * np.int8(3)).sum(dtype=np.int32)


@pytest.mark.parametrize("state", [True, False])
def test_rfc2217_serves_models_and_sets_control_lines(state: bool) -> None:
    board = replace(load_board("microbit"), dtr=state, rts=not state)
    with HostDevice() as device, PortServer(device.port) as server, Link.open(server.url, board=board) as link:
        check_chain(link)
        assert (server.lines.said[-2:], server.lines.baudrate) == ([("dtr", state), ("rts", not state)], 115200)


def test_a_board_that_does_not_care_leaves_control_lines_on() -> None:
    with HostDevice() as device, PortServer(device.port) as server, Link.open(server.url) as link:
        link.hello()
        assert {state for _, state in server.lines.said} == {True}


@pytest.mark.parametrize("state", [True, False, None])
def test_a_pty_has_no_control_lines_and_opens_all_the_same(state: bool | None) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    with open_port(os.ttyname(slave), 115200, dtr=state, rts=state) as port:
        port.write(b"x")
        assert os.read(master, 1) == b"x"
    os.close(slave)
    os.close(master)


def free_tcp_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_socket_reaches_an_emulated_board(tmp_path: Path) -> None:
    board = load_board()
    assert board.emulation is not None
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], board, tmp_path / "out")
    number = free_tcp_port()
    command = [QEMU, "-M", board.emulation.machine, "-display", "none", "-monitor", "none", "-kernel", firmware.elf]
    command += ["-serial", f"tcp:127.0.0.1:{number},server=on,wait=off"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as qemu:
        try:
            with opened(f"socket://127.0.0.1:{number}") as link:
                assert link.hello().device == board.name
                assert link.ping(bytes(range(256)) * 4) == bytes(range(256)) * 4
        finally:
            qemu.kill()


def opened(url: str) -> Link:
    """A link, once the other side listens."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return Link.open(url)
        except DeviceError:
            assert time.monotonic() < deadline, f"nobody listens at {url}"
            time.sleep(0.1)


@pytest.mark.parametrize("url", ["socket://127.0.0.1:{}", "rfc2217://127.0.0.1:{}"])
def test_nobody_listens(url: str) -> None:
    url = url.format(free_tcp_port())
    with pytest.raises(DeviceError, match=rf"^{url}: cannot be opened as a serial port \(.*\)$"):
        Link.open(url)


def test_a_set_up_that_failed_is_told(tmp_path: Path) -> None:
    """QEMU has no clocks, so that the first wait is in vain; of a real board it is told, once."""
    board = load_board("netduinoplus2")
    firmware = build_firmware(make_bundle(tmp_path / "bundle"), ["toy"], board, tmp_path / "out")
    number, wait = next((n, step) for n, step in enumerate(board.setup, 1) if step.kind == "wait")
    said: list[str] = []
    with Emulator(board, firmware.elf) as emulator:
        with Link.open(emulator.port, board.baud, board=board, on_text=said.append) as link:
            assert link.hello().setup_failed == number
            link.hello()
        with Link.open(emulator.port, board.baud, on_text=said.append) as link:
            link.hello()
    assert said == [
        f"step {number} of its set-up waited in vain ({wait.register.name}, {wait.why}): "
        "its clock, baud rate and counts may be wrong"
    ]
