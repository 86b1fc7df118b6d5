"""Every board in QEMU: start-up, UART, counter, faults, resets, as a program over the serial port sees them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from bench_device import BENCH, Bench, build_bench, running

from rlx_edge.device.boards import DEFAULT_BOARD, Board, load_board, load_boards
from rlx_edge.device.build import Firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.flash_gdb import flash_gdb
from rlx_edge.device.symbols import find_source_line

POWER_ON, PIN, SOFTWARE, FAULT = 1, 2, 3, 5
STACK_OVERFLOW_BITS = (1 << 4) | (1 << 12) | (1 << 20)  # MSTKERR, STKERR, STKOF


@pytest.fixture(scope="module", params=[b.name for b in load_boards() if b.emulation is not None])
def firmware(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    return build_bench(tmp_path_factory.mktemp("bench"), load_board(request.param))


@pytest.fixture(scope="module")
def board(firmware: Firmware) -> Board:
    return load_board(firmware.board)


@pytest.fixture(scope="module")
def bench(board: Board, firmware: Firmware) -> Iterator[Bench]:
    with running(board, firmware.elf) as (_, bench):
        yield bench


def test_reports_the_image_and_the_chip_that_the_files_name(bench: Bench, board: Board, firmware: Firmware) -> None:
    state = bench.state()
    assert state.image_start == board.placement.code.start
    assert state.image_bytes == firmware.image_bytes == firmware.binary.stat().st_size
    assert state.cpuid & board.chip.id.mask == board.chip.id.value
    assert 0 < state.stack_unused < board.stack_bytes


def test_echoes_without_a_lost_byte(bench: Bench, board: Board) -> None:
    """Short, for a UART without a queue takes 0.1 ms a byte and more in QEMU; the long test sends 64 KiB to each."""
    data = random.Random(1).randbytes(16384 if board.name == DEFAULT_BOARD else 4096)
    assert bench.echo(data) == data


@pytest.mark.long
def test_echoes_64_kib_without_a_lost_byte(bench: Bench) -> None:
    data = random.Random(2).randbytes(65536)
    assert bench.echo(data) == data


def test_counts_instructions_exactly_and_repeatably(board: Board, firmware: Firmware) -> None:
    with running(board, firmware.elf, icount=True) as (_, bench):
        once = bench.loop_instructions(1)
        around = once - 3  # what the compiler puts around the loop
        assert 0 <= around <= 4
        for rounds in (2, 1000, 300_000, 3_000_000):  # the last ones pass 2**24 ticks
            assert bench.loop_instructions(rounds) == 3 * rounds + around
        steps = bench.step_instructions(2)
    with running(board, firmware.elf, icount=True) as (_, bench):
        assert bench.step_instructions(2) == steps


def test_a_fault_names_its_source_line_and_restarts(bench: Bench, firmware: Firmware) -> None:
    before = bench.state()
    fault = bench.fault(b"U")
    line = find_source_line(firmware.elf, fault.pc)
    assert line is not None
    assert (line.file, line.function) == ("app/bench/bench.c", "bench_read_nowhere")
    assert "the line that the test looks for" in (BENCH / "bench.c").read_text().splitlines()[line.line - 1]
    assert fault.bfar in (0x2400_0000, 0)
    bench.wake()
    after = bench.state()
    assert after.reset_reason == FAULT
    assert after.boot_id != before.boot_id


def test_a_stack_overflow_is_reported_as_such(bench: Bench, board: Board) -> None:
    fault = bench.fault(b"S")
    assert fault.pc == 0
    assert fault.sp <= board.placement.data.start
    assert board.chip.cpu == "cortex-m0" or fault.cfsr & STACK_OVERFLOW_BITS
    bench.wake()
    assert bench.state().reset_reason == FAULT


def test_boot_ids_differ_and_reset_reasons_are_told(board: Board, firmware: Firmware) -> None:
    ids = []
    for _ in range(2):
        with running(board, firmware.elf) as (_, bench):
            state = bench.state()
            assert state.reset_reason == POWER_ON
            assert bench.state().boot_id == state.boot_id
            bench.reset()
            again = bench.state()
            assert again.reset_reason == SOFTWARE
            ids += [state.boot_id, again.boot_id]
    assert len(set(ids)) == 4


def test_exit_code_reaches_the_computer(board: Board, firmware: Firmware) -> None:
    with running(board, firmware.elf) as (emulator, bench):
        bench.exit(42)
        assert emulator.wait_exit(timeout=10) == 42


def test_flashing_an_empty_board_and_again_while_the_port_is_open(board: Board, firmware: Firmware) -> None:
    with Emulator(board, None, gdb=True, halted=True) as emulator:
        flash_gdb(firmware.elf, emulator.gdb_target)
        bench = Bench(emulator.port)
        assert bench.state().reset_reason == POWER_ON
        flash_gdb(firmware.elf, emulator.gdb_target)
        bench.wake()
        assert bench.state().reset_reason == PIN
        bench.close()
