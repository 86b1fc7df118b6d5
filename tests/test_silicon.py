"""Boards that exist: their own image, run on an emulated core with stubbed peripherals up to its first frames.

It writes to the chip's registers what the manuals allow, and a wrong number in a board's file does not go unnoticed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bench_device import make_bundle
from elftools.elf.elffile import ELFFile

from rlx_edge.device.boards import Board, load_board, load_boards
from rlx_edge.device.build import Firmware, build_firmware
from rlx_edge.device.frames import Frame, FrameReader, encode
from rlx_edge.device.protocol import FROM_DEVICE, Command, read_hello

pytest.importorskip("unicorn", reason="runs images on an emulated core: pip install unicorn")
from sheets import MHZ, Clocks, Sheet, field
from sheets_nordic import Nrf
from sheets_rp import RP2040, RP2350
from sheets_stm32 import F1, F4
from sheets_stm32v2 import H743, L4R5, U575
from silicon import CYCCNT, SYST_CVR, Answer, Silicon

SHEETS: dict[str, Sheet] = {
    "microbit": Nrf(core=16 * MHZ, tx=24, rx=25, cache=False),
    "microbit-v2": Nrf(core=64 * MHZ, tx=6, rx=32 + 8, cache=True),
    "nano33ble": Nrf(core=64 * MHZ, tx=32 + 3, rx=32 + 10, cache=True),
    "netduinoplus2": F4(25 * MHZ, False, False, port=1, tx=6, rx=7, enable=(0x44, 4), apb=2),
    "nrf52840dk": Nrf(core=64 * MHZ, tx=6, rx=8, cache=True),
    "nucleo-f446re": F4(8 * MHZ, True, True, port=0, tx=2, rx=3, enable=(0x40, 17), apb=1, usb=45),
    "nucleo-h743zi": H743(),
    "nucleo-l4r5zi": L4R5(),
    "nucleo-u575zi": U575(),
    "pico": RP2040,
    "pico2": RP2350,
    "stm32f4discovery": F4(8 * MHZ, False, False, port=0, tx=2, rx=3, enable=(0x40, 17), apb=1),
    "stm32vldiscovery": F1(),
}


BOOT2 = 256  # bytes of flash before the vector table on the RP2040


@dataclass(frozen=True)
class Image:
    """A board's parity firmware with the model `toy`."""

    board: Board
    firmware: Firmware
    data: bytes

    def vectors(self) -> tuple[int, int]:
        """The top of the stack and the address of the first instruction, as the vector table has them."""
        top, reset = struct.unpack_from("<2I", self.data, BOOT2 if self.board.chip.image == "rp2040" else 0)
        return top, reset

    def symbol(self, name: str) -> int:
        with self.firmware.elf.open("rb") as stream:
            (found,) = ELFFile(stream).get_section_by_name(".symtab").get_symbol_by_name(name)
            return int(found["st_value"])

    def started(self, data: bytes | None = None, more: Mapping[int, Answer] | None = None) -> Silicon:
        """The image, or another of its size, run until it waits for its first byte. `more` answers of registers."""
        sheet = SHEETS[self.board.name]
        chip = Silicon(self.board, data or self.data, {**sheet.answers, **(more or {})}, sheet.resets)
        chip.start(self.vectors()[1])
        return chip


def build(name: str, folder: Path, baud: int | None = None) -> Image:
    board = load_board(name)
    board = replace(board, baud=baud or board.baud)
    firmware = build_firmware(make_bundle(folder / "bundle"), ["toy"], board, folder / "out", warnings_are_errors=True)
    return Image(board, firmware, firmware.binary.read_bytes())


HARDWARE = [board for board in load_boards() if board.hardware]


@pytest.fixture(scope="module", params=[board.name for board in HARDWARE])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(request.param, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module", params=[board.name for board in HARDWARE if board.chip.counter == "dwt"])
def dwt_image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(request.param, tmp_path_factory.mktemp("dwt"))


@pytest.fixture(scope="module")
def chip(image: Image) -> Silicon:
    return image.started()


def baud(chip: Silicon, clocks: Clocks) -> float:
    """The bits a second that the UART's divider gives."""
    uart, base = chip.board.uart, chip.board.uart.address
    if uart.driver in ("stm32", "stm32v2"):
        return clocks.uart * clocks.divider / chip.register(base + (0x08 if uart.driver == "stm32" else 0x0C))
    if uart.driver == "pl011":
        return clocks.uart / 16 / (chip.register(base + 0x24) + chip.register(base + 0x28) / 64)
    assert uart.driver == "nrf51"
    return chip.register(base + 0x524) * clocks.uart / 2**32


def check(image: Image, chip: Silicon) -> Clocks:
    """All that the manuals say. Raises `AssertionError`."""
    clocks = SHEETS[image.board.name].check(chip)
    assert (clocks.core, clocks.uart) == (image.board.core_hz, image.board.uart_hz)
    assert abs(baud(chip, clocks) / image.board.baud - 1) < 0.01
    return clocks


def test_every_board_that_exists_has_a_sheet() -> None:
    assert set(SHEETS) == {board.name for board in HARDWARE}


def test_vector_table_and_memory_map(image: Image) -> None:
    placement = image.board.placement
    stack_top, reset = image.vectors()
    assert stack_top == placement.data.start + image.board.stack_bytes
    assert reset & 1 and placement.code.start < reset < placement.code.start + len(image.data)
    with image.firmware.elf.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if section["sh_flags"] & 2 and section["sh_size"]:  # SHF_ALLOC
                start, end = section["sh_addr"], section["sh_addr"] + section["sh_size"]
                assert any(r.start <= start and end <= r.start + r.bytes for r in image.board.chip.regions.values())


def test_registers_hold_what_the_manuals_allow(image: Image, chip: Silicon) -> None:
    check(image, chip)


@pytest.mark.parametrize("name", [board.name for board in HARDWARE])
def test_a_fast_line_is_within_a_percent(name: str, tmp_path: Path) -> None:
    image = build(name, tmp_path, 921_600)
    chip = image.started()
    assert abs(baud(chip, SHEETS[name].check(chip)) / 921_600 - 1) < 0.01


def test_answers_its_first_frames(image: Image) -> None:
    chip = image.started()
    items = FrameReader().feed(chip.run(encode(Frame(Command.HELLO, 0, 1, 0x64656573, b""))))
    replies = [item for item in items if isinstance(item, Frame) and item.kind == Command.HELLO | FROM_DEVICE]
    assert len(replies) == 1
    hello = read_hello(replies[0].payload)
    assert (hello.device, hello.image_crc) == (image.board.name, image.firmware.image_crc32)
    assert hello.count_hz == image.board.core_hz
    assert hello.model_count == 1


def crc32_mpeg2(data: bytes) -> int:
    """The check of the RP2040's boot ROM (RP2040 Datasheet, 2.8.1.3.1), bit by bit."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C1_1DB7 if crc >> 31 else 0)) & 0xFFFF_FFFF
    return crc


def test_the_rp2040_boots_by_way_of_its_first_256_bytes(tmp_path: Path) -> None:
    """As its boot ROM does: checked, copied to the end of RAM, run there; then flash can be read, and main() runs."""
    assert crc32_mpeg2(b"123456789") == 0x0376_E6E7
    image = build("pico", tmp_path)
    crc = crc32_mpeg2(image.data[: BOOT2 - 4])
    assert image.data[BOOT2 - 4 : BOOT2] == crc.to_bytes(4, "little"), f"CRC in image_rp2040.c must be {crc:#010x}"
    chip = Silicon(image.board, image.data, RP2040.answers, RP2040.resets)
    chip.load(0x2004_1F00, image.data[:BOOT2])
    chip.start(0x2004_1F00)
    check(image, chip)
    ssi = [(address - 0x1800_0000, value) for address, value in chip.writes if address < 0x2000_0000]
    assert ssi[0] == (0x08, 0) and ssi[-1] == (0x08, 1)  # SSIENR: off during changes, then on
    settings = dict(ssi[1:-1])
    assert settings.keys() == {0x00, 0x04, 0x14, 0xF4}
    assert image.board.core_hz / settings[0x14] <= 50 * MHZ and settings[0x14] % 2 == 0  # W25Q16JV: read 03h
    assert field(settings[0x00], 20, 16) == 31 and field(settings[0x00], 9, 8) == 3 and settings[0x04] == 0
    spi = settings[0xF4]
    assert (field(spi, 31, 24), field(spi, 9, 8), field(spi, 5, 2) * 4, field(spi, 1, 0)) == (0x03, 2, 24, 0)
    assert (0xE000_ED08, 0x1000_0100) in chip.writes  # VTOR


def test_the_rp2350_finds_its_image_definition(tmp_path: Path) -> None:
    """RP2350 Datasheet, 5.9.5.1: five words, somewhere in the first 4 KiB, aligned to words."""
    data = build("pico2", tmp_path).data
    block = struct.pack("<5I", 0xFFFF_DED3, 0x1021_0142, 0x0000_01FF, 0, 0xAB12_3579)
    assert data.count(block) == 1 and data.index(block) % 4 == 0 and data.index(block) + len(block) <= 4096


def test_caches_are_emptied_before_they_are_used(image: Image, chip: Silicon) -> None:
    """Cortex-M7: all sets and ways of the data cache by DCISW, the instruction cache by ICIALLU, then CCR.DC and IC."""
    emptied = {value for address, value in chip.writes if address == 0xE000_EF60}
    enabled = [value for address, value in chip.writes if address == 0xE000_ED14]
    if image.board.chip.cpu != "cortex-m7":
        assert not emptied and not enabled
        return
    assert emptied == {way << 30 | line << 5 for way in range(4) for line in range(128)}
    assert enabled == [1 << 17, 1 << 17 | 1 << 16]
    order = [address for address, _ in chip.writes]
    last_emptied = len(order) - 1 - order[::-1].index(0xE000_EF60)
    assert order.index(0xE000_EF50) < order.index(0xE000_ED14)
    assert last_emptied < len(order) - 1 - order[::-1].index(0xE000_ED14)


def test_a_chip_that_does_not_get_ready_starts_all_the_same(image: Image) -> None:
    """It tells which wait was the first in vain, and answers: the set-up goes on."""
    waits = [(i, step) for i, step in enumerate(image.board.setup, 1) if step.kind == "wait"]
    first = next(i for i, step in waits if step.value and step.register.name != "FLASH_ACR")  # which reads as written
    chip = Silicon(image.board, image.data, patience=10**9)
    chip.start(image.vectors()[1])
    assert chip.word(image.symbol("first_failed")) == first
    assert chip.run(encode(Frame(Command.HELLO, 0, 1, 0x64656573, b"")))


def test_the_cycle_counter_is_turned_on(dwt_image: Image) -> None:
    chip = dwt_image.started()
    assert chip.register(0xE000_EDFC) == 1 << 24  # DEMCR.TRCENA
    assert (0xE000_1FB0, 0xC5AC_CE55) in chip.writes  # the Cortex-M7's lock
    assert chip.register(0xE000_1000) == 1  # DWT_CTRL.CYCCNTENA
    assert chip.word(dwt_image.symbol("cyccnt_counts")) == 1


@pytest.mark.parametrize("lacks", [{CYCCNT: lambda value, chip: 77}, {0xE000_1000: lambda value, chip: 1 << 25}])
def test_without_a_cycle_counter_systick_counts(dwt_image: Image, lacks: dict[int, Answer]) -> None:
    """CYCCNT stands still, or DWT_CTRL.NOCYCCNT says that there is none."""
    assert counted(dwt_image, dwt_image.started(more=lacks), cycles=5_000_000_000, systick=123_456_789) == 123_456_789


@pytest.mark.parametrize("cycles", [100_000, 2**24 + 5, 2**32 - 1, 2**32, 5 * 2**32 + 17])
@pytest.mark.parametrize("late", [-9, 0, 9])
def test_wraps_of_32_bits_are_counted(dwt_image: Image, cycles: int, late: int) -> None:
    """SysTick, read some cycles earlier or later, supplies the upper bits."""
    assert counted(dwt_image, dwt_image.started(), cycles=cycles, systick=cycles + late) == cycles


def counted(image: Image, chip: Silicon, *, cycles: int, systick: int) -> int:
    """What the firmware counts while CYCCNT and SysTick advance so far, with its own overhead added again."""
    empty, per_wrap = (chip.word(image.symbol(name)) for name in ("ticks_when_empty", "ticks_per_wrap"))
    wraps, left = divmod(systick, 1 << 24)
    chip.cycles = 0xFFFF_0000
    chip.call(image.symbol("rlx_soc_count_start"))
    chip.cycles = (0xFFFF_0000 + cycles) % 2**32
    chip.set_register(SYST_CVR, ((1 << 24) - left) % (1 << 24))
    chip.set_word(image.symbol("wraps"), wraps)
    return chip.call(image.symbol("rlx_soc_count_stop")) + empty + wraps * per_wrap


def spoiled(image: Image) -> Iterator[tuple[str, bytes]]:
    """The image with each step of its set-up spoiled in turn: a bit of the value less or more, or the step left out."""
    table = image.symbol("rlx_setup_steps") - image.board.placement.code.start
    for number, step in enumerate(image.board.setup):
        at = table + 16 * number
        _, address, mask, value = struct.unpack_from("<4I", image.data, at)
        assert (address, mask, value) == (step.register.address, step.mask, step.value)
        bits = [1 << i for i in range(32) if mask >> i & 1]
        for flipped in bits if step.kind == "change" else [b for b in bits if value & b] + bits[:1]:
            yield f"{step.register.name} ^ {flipped:#x}", edited(image.data, at + 12, value ^ flipped)
        if step.kind != "wait":
            yield f"{step.register.name} not written", edited(image.data, at + 4, image.board.placement.data.start)


def edited(data: bytes, at: int, word: int) -> bytes:
    return data[:at] + struct.pack("<I", word) + data[at + 4 :]


def test_a_wrong_number_is_noticed(image: Image) -> None:
    missed = []
    for what, data in spoiled(image):
        try:
            check(image, image.started(data))
        except AssertionError:
            continue
        missed.append(what)
    assert not missed
