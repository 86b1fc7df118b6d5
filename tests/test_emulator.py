"""The emulator as a process: what it says when it cannot start, and that it never outlives us."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench_device import Bench, build_bench, running
from link_device import wait_until

from rlx_edge.device.boards import Board, Emulation, load_board
from rlx_edge.device.build import Firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link
from rlx_edge.errors import DeviceError, EdgeError, ToolError

BOARD = load_board("mps2-an386")


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    return build_bench(tmp_path_factory.mktemp("emulator"), BOARD)


def start_fails(board: Board, elf: Path) -> str:
    with pytest.raises(EdgeError) as caught, Emulator(board, elf):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_machine_is_told(firmware: Firmware) -> None:
    board = replace(BOARD, emulation=Emulation(machine="toaster", args=()))
    assert "ended with code 1: " in (said := start_fails(board, firmware.elf))
    assert "unsupported machine type" in said


def test_a_missing_image_is_told(tmp_path: Path) -> None:
    assert "no.elf: cannot be read: No such file" in start_fails(BOARD, tmp_path / "no.elf")
    (tmp_path / "text.elf").write_text("hello")
    assert "text.elf: is not an ELF file" in start_fails(BOARD, tmp_path / "text.elf")


def test_a_board_without_emulator_is_told(firmware: Firmware) -> None:
    board = replace(BOARD, hardware=True, emulation=None)
    assert start_fails(board, firmware.elf).startswith("mps2-an386: no emulator runs this board; `rlx-edge boards`")


def test_a_missing_qemu_is_told(firmware: Firmware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "qemu-system-arm is not there: install it" in start_fails(BOARD, firmware.elf)


def test_the_reason_of_an_early_end_is_kept(firmware: Firmware) -> None:
    with running(BOARD, firmware.elf) as (emulator, bench):
        assert emulator.failure() == ""
        bench.exit(3)
        assert emulator.wait_exit(60) == 3
        assert emulator.failure() == "qemu-system-arm for mps2-an386 ended with code 3: it said nothing"


def test_without_semihosting_a_program_has_no_calls_into_this_computer(firmware: Firmware) -> None:
    """Not even the one that ends the emulator: it is a fault, as on hardware without a debugger."""
    with Emulator(BOARD, firmware.elf, semihosting=False) as emulator:
        bench = Bench(emulator.port)
        record = bench.fault(b"X" + struct.pack("<I", 3))
        assert firmware.binary.read_bytes()[record.pc :].startswith(b"\xab\xbe")  # bkpt 0xab
        bench.wake()
        assert emulator.failure() == ""
        bench.close()


def test_the_end_of_qemu_explains_a_lost_port(firmware: Firmware) -> None:
    def lose_it() -> None:
        with Emulator(BOARD, firmware.elf) as emulator, Link.open(emulator.port, timeout=5) as link:
            for pid in emulator_of(firmware):
                os.kill(int(pid), signal.SIGKILL)
            link.hello()

    with pytest.raises(ToolError, match=r"^qemu-system-arm for mps2-an386 ended with code 137: ") as caught:
        lose_it()
    assert isinstance(caught.value.__cause__, DeviceError)


def test_a_running_qemu_explains_nothing(firmware: Firmware) -> None:
    with pytest.raises(DeviceError, match="silent"), Emulator(BOARD, firmware.elf):
        raise DeviceError("silent")


def test_a_temporary_folder_with_a_comma(firmware: Firmware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a,b"))
    (tmp_path / "a,b").mkdir()
    with Emulator(BOARD, firmware.elf, gdb=True) as emulator:
        wait_until(Path(emulator.gdb_target).is_socket)


def test_waiting_for_a_program_that_does_not_end(firmware: Firmware) -> None:
    with Emulator(BOARD, firmware.elf) as emulator, pytest.raises(EdgeError, match=r"did not end in 0.1 s"):
        emulator.wait_exit(0.1)


def test_an_exception_ends_qemu(firmware: Firmware) -> None:
    def interrupted() -> None:
        with Emulator(BOARD, firmware.elf):
            assert emulator_of(firmware)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert not emulator_of(firmware)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_qemu_does_not_outlive_this_process(firmware: Firmware, ending: signal.Signals | None) -> None:
    program = (
        "import signal, sys, time\nfrom pathlib import Path\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # A shell's background jobs have it ignored.
        "from rlx_edge.device.boards import load_board\nfrom rlx_edge.device.emulator import Emulator\n"
        "emulator = Emulator(load_board(), Path(sys.argv[1]))\nemulator.start()\nprint(emulator.port, flush=True)\n"
        + ("time.sleep(60)" if ending else "sys.exit(0)")
    )
    root = Path(__file__).parent.parent
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(firmware.elf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith(b"/dev/")
    if ending is not None:
        assert emulator_of(firmware)
        child.send_signal(ending)
    child.wait(timeout=60)
    child.stdout.close()
    deadline = time.monotonic() + 5
    while emulator_of(firmware) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not emulator_of(firmware)


def emulator_of(firmware: Firmware) -> list[str]:
    """Processes of QEMU that run this image."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if words[0].endswith(b"qemu-system-arm") and str(firmware.elf).encode() in words:
            found.append(process.name)
    return found
