"""Devices that fault, restart, hang or speak another version, and ports that cannot be used: one clear line each."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from link_device import HostDevice, wait_until

from rlx_edge.device.frames import Frame, FrameReader, encode
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import FaultError, NoAnswerError, RestartedError
from rlx_edge.device.ports import holders
from rlx_edge.errors import DeviceError

FAULT, RESET, HANG, TEXT = 1, 2, 3, 4


@pytest.fixture
def device() -> Iterator[HostDevice]:
    with HostDevice() as device:
        yield device


def provoke(link: Link, how: int) -> None:
    crash = link.model("crash")
    link.write_inputs(crash, {"how": np.array([how], np.int8)})
    link.run(crash)


def test_a_fault_is_told_with_its_place(device: HostDevice) -> None:
    with Link.open(device.port, 1_000_000, on_text=lambda line: None) as link:
        with pytest.raises(FaultError) as caught:
            provoke(link, FAULT)
        assert (
            str(caught.value) == f"{device.port}: fault while running crash, in step 1: "
            "bus error at address 0xdead0000 in code at 0x00000123, called from code at 0x00000454"
        )
        fault = caught.value.fault
        assert (fault.pc, fault.lr, fault.cfsr, fault.model, fault.step) == (0x123, 0x457, 0x8200, 3, 1)
        with pytest.raises(RestartedError, match=r"restarted while pinging the device \(reset by a fault\)"):
            link.ping()
        assert link.ping(b"again") == b"again"


def test_a_reset_in_the_middle_is_told_with_its_reason(device: HostDevice) -> None:
    with Link.open(device.port, 1_000_000, on_text=lambda line: None) as link:
        with pytest.raises(RestartedError) as caught:
            provoke(link, RESET)
        assert str(caught.value) == f"{device.port}: the device restarted while running crash (reset by the watchdog)"


def test_a_hang_is_told_with_its_step(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.device.session._BUSY_GRACE", 0.3)
    words: list[str] = []
    told = pytest.raises(NoAnswerError, match="stopped answering in step 0 or later while running crash")
    with Link.open(device.port, 1_000_000, timeout=0.5, on_text=words.append) as link, told:
        provoke(link, HANG)
    assert words == ["going to sleep"]


def test_text_from_the_device_is_shown(device: HostDevice) -> None:
    words: list[str] = []
    with Link.open(device.port, 1_000_000, on_text=words.append) as link:
        provoke(link, TEXT)
    assert words == ["hello from the step", "and again"]


def test_text_is_printed_with_its_origin(device: HostDevice, capsys: pytest.CaptureFixture[str]) -> None:
    with Link.open(device.port, 1_000_000) as link:
        provoke(link, TEXT)
    assert capsys.readouterr().err == "device: hello from the step\ndevice: and again\n"


def test_another_protocol_version_is_told(device: HostDevice) -> None:
    reader = FrameReader()

    def version_nine(to_device: bool, data: bytes) -> list[bytes]:
        if to_device:
            return [data]
        frames = [item for item in reader.feed(data) if isinstance(item, Frame)]
        return [encode(replace(frame, payload=b"\x09\x00" + frame.payload[2:])) for frame in frames]

    device.wire.line = version_nine
    with Link.open(device.port, 1_000_000) as link, pytest.raises(DeviceError, match="speaks protocol version 9, this"):
        link.hello()


def test_a_device_that_dies_is_told(device: HostDevice) -> None:
    with Link.open(device.port, 1_000_000, timeout=0.5) as link:
        link.hello()
        device.kill()
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.5 s"):
            link.ping()


def test_a_port_that_vanishes_is_told() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    link = Link.open(os.ttyname(slave), timeout=0.5)
    os.close(slave)
    os.close(master)
    with link, pytest.raises(DeviceError, match="the port is gone"):
        link.hello()


def test_a_missing_port_is_told() -> None:
    with pytest.raises(
        DeviceError, match=r"^/dev/ttyNONE7: there is no such port; (these exist: |this computer has no)"
    ):
        Link.open("/dev/ttyNONE7")


def test_a_file_is_no_port(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    kind = r"cannot be opened as a serial port \(it is a file or device of another kind\)"
    with pytest.raises(DeviceError, match=kind):
        Link.open(str(file))
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL) as holder:  # holds /dev/null open
        try:
            with pytest.raises(DeviceError, match=f"^/dev/null: {kind}"):
                Link.open("/dev/null")
        finally:
            holder.kill()


def test_a_busy_port_names_its_holder(device: HostDevice) -> None:
    script = f"import time; port = open({device.port!r}, 'r+b', buffering=0); print('open', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(DeviceError, match=rf"in use by python\S* \(pid {holder.pid}\); close that first"):
            Link.open(device.port)
    finally:
        holder.kill()
        holder.communicate()
    wait_until(lambda: all(str(holder.pid) not in who for who in holders(device.port)))
    Link.open(device.port).close()


def test_a_port_is_opened_once_only(device: HostDevice) -> None:
    with Link.open(device.port), pytest.raises(DeviceError, match=rf"in use by \S+ \(pid {os.getpid()}\)"):
        Link.open(device.port)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become a user who may not open the port")
def test_missing_permission_is_told(device: HostDevice) -> None:
    script = f"""
import os
from rlx_edge.device.link import Link
os.setgid(65534); os.setuid(65534)
try:
    Link.open({device.port!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    Path(device.port).chmod(0o600)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"DeviceError {device.port}: no permission to open the port; ")
