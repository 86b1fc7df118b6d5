"""Board and chip files: all load, and every way to write one wrongly is answered in one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from board_page import PAGE, facts_table, table_of

from rlx_edge.device.boards import DEFAULT_BOARD, board_names, load_board, load_boards, read_board
from rlx_edge.device.build import soc_parts
from rlx_edge.device.linker import linker_script
from rlx_edge.device.sources import board_header
from rlx_edge.errors import EdgeError
from rlx_edge.resources import boards_dir, firmware_dir


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    """A copy of the board files, to spoil."""
    return Path(shutil.copytree(boards_dir(), tmp_path / "boards"))


def spoil(boards: Path, file: str, old: str, new: str) -> str:
    """Replaces text in a file of the copy, reads the board mps2-an386 or microbit, and returns the error."""
    path = boards / file
    text = path.read_text()
    assert re.search(old, text, flags=re.MULTILINE), f"{file} has no {old}"
    path.write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE))
    board = "microbit" if "nrf51" in file or "microbit" in file else "mps2-an386"
    with pytest.raises(EdgeError) as caught:
        read_board(boards / f"{board}.toml", boards / "chips")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_all_boards_load() -> None:
    boards = load_boards()
    assert len(boards) >= 8
    assert load_board().name == DEFAULT_BOARD == "mps2-an386"
    for board in boards:
        assert not board.hardware_tested  # set it only with a record of the test in docs/boards.md
        assert board.emulation is not None or board.setup
        assert board.flash is not None and board.flash.method in board.flash.methods
        assert board.flash.method != "gdb" or not board.hardware


def test_the_readme_counts_the_boards() -> None:
    found = re.search(r"lists (\d+) boards; (\d+) run in QEMU", (boards_dir().parent / "README.md").read_text())
    assert found is not None
    boards = load_boards()
    assert [int(n) for n in found.groups()] == [len(boards), sum(b.emulation is not None for b in boards)]


def test_the_page_lists_all_boards() -> None:
    page = PAGE.read_text(encoding="utf-8")
    boards = load_boards()
    assert table_of(page, "boards") == facts_table(boards), "run make boards"
    sizes = dict(re.findall(r"^\| `([^`]+)` \| ([\d,]+) ", table_of(page, "sizes"), re.MULTILINE))
    assert sizes.keys() == {board.name for board in boards}, "run make boards"
    assert all(int(sizes[b.name].replace(",", "")) < b.placement.code.bytes for b in boards)


def test_every_chip_file_belongs_to_a_board() -> None:
    used = {board.chip.name for board in load_boards()}
    assert used == {path.stem for path in (boards_dir() / "chips").glob("*.toml")}


@pytest.mark.parametrize("name", board_names())
def test_each_board_has_its_drivers(name: str) -> None:
    board = load_board(name)
    for part in soc_parts(board):
        assert (firmware_dir() / "soc" / f"{part}.c").is_file()
    assert f"ORIGIN = 0x{board.placement.code.start:08x}" in linker_script(board)
    assert f"0x{board.uart.address:08x}u" in board_header(board)


def test_unknown_board_lists_the_known_ones() -> None:
    with pytest.raises(
        EdgeError,
        match=r"unknown board microbot \(did you mean microbit\?\); known boards: microbit, microbit-v2, mps2",
    ):
        load_board("microbot")


def test_a_board_name_is_not_a_path() -> None:
    with pytest.raises(EdgeError, match="unknown board"):
        load_board("chips/nrf51822")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("mps2-an386.toml", "^title", "titel", "mps2-an386.toml: the key title is missing"),
        ("mps2-an386.toml", "^title", 'titel = "x"\ntitle', "unknown key titel; did you mean title?"),
        ("mps2-an386.toml", r'^title = ".*"', "title = 7", "title must be a text, found 7"),
        ("mps2-an386.toml", r"^core_hz = \S+", 'core_hz = "fast"', "[clock]: core_hz must be a whole number"),
        ("mps2-an386.toml", r"^core_hz = \S+", "core_hz = 0", "[clock]: core_hz must be a whole number from 1"),
        ("mps2-an386.toml", r"^baud", "speed = 1\nbaud", "[link]: unknown key speed"),
        ("mps2-an386.toml", "^hardware = false", "hardware = 0", "hardware must be true or false, found 0"),
        ("mps2-an386.toml", r"^usb = \[\]", "usb = [1]", "usb must be a list of texts"),
        ("mps2-an386.toml", r"^args = \[\]", 'args = ""', "[emulator]: args must be a list of texts"),
        ("mps2-an386.toml", r"^\[clock\]", "[clok]", "the key clock is missing"),
        ("mps2-an386.toml", r"^\[clock\]", "[[clock]]", "clock must be a table"),
        ("mps2-an386.toml", r"^\[clock\]", "[clock", "mps2-an386.toml: is not valid TOML"),
        ("mps2-an386.toml", r'^chip = ".*"', 'chip = "z80"', "unknown chip z80; known chips: mps2-an385"),
        ("mps2-an386.toml", r'^uart = ".*"', 'uart = "uart9"', "mps2-an386 has no UART uart9; it has uart0"),
        ("mps2-an386.toml", r'^code = ".*"', 'code = "ram"', "code must name a flash region of mps2-an386: flash"),
        ("mps2-an386.toml", r'^arena = ".*"', 'arena = "flash"', "arena must name a ram region of mps2-an386: ram"),
        ("mps2-an386.toml", r"^stack_bytes = \d+", "stack_bytes = 1001", "stack_bytes must be a multiple of 8"),
        (
            "mps2-an386.toml",
            r'^method = ".*"',
            'method = "magic"',
            "[flash]: method must be one of daplink, gdb",
        ),
        (
            "mps2-an386.toml",
            r'^method = ".*"',
            'method = "uf2"',
            "method uf2 needs uf2 (labels of its drive) and",
        ),
        ("microbit.toml", r'^probe = ".*"', 'prob = "stlink"', "[flash]: unknown key prob; did you mean probe?"),
        (
            "microbit.toml",
            r'^probe = ".*"',
            'probe = "spoon"',
            "probe must be one of cmsis-dap, jlink, stlink",
        ),
        ("microbit.toml", r'^method = ".*"\nprobe = ".*"', 'method = "openocd"', "[flash]: method openocd needs probe"),
        ("microbit.toml", r"^daplink = .*", 'daplink = "MICROBIT"', "[flash]: daplink must be a list of texts"),
        ("microbit.toml", r"^daplink = .*", "", "[flash]: method daplink needs daplink (labels of its drive)"),
        ("microbit.toml", r"^drive_ids = .*", 'usb = ["0d28"]', "[flash]: usb must hold ids such as 0d28:0204"),
        ("chips/nrf51822.toml", r"^pyocd = .*", 'pyocd = ""', "[tools]: pyocd must be a text"),
        ("chips/nrf51822.toml", r"^pyocd = .*", "uf2_family = 1", "[tools]: the key uf2_board_id is missing"),
        ("chips/nrf51822.toml", r"^pyocd = .*", "part = { address = 0 }", "[part]: the key manual is missing"),
        ("mps2-an386.toml", r"^\[emulator\]\n.*\n.*\n", "", "needs hardware = true or an [emulator] table"),
        ("microbit.toml", r"^tx_pin = 24\nrx_pin = 25\n", "", "the keys tx_pin and rx_pin are missing"),
        (
            "chips/mps2-an386.toml",
            r'^counter = ".*"',
            'counter = "abacus"',
            "counter must be one of dwt, nrf51, systick",
        ),
        ("chips/mps2-an386.toml", "^manual", 'family = "stm32"\nmanual', "unknown key family"),
        ("chips/mps2-an386.toml", "^manual = .*", "", "the key manual is missing"),
        ("chips/nrf51822.toml", r"^software = \S+\n", "", "[reset_cause]: the key software is missing"),
        ("chips/mps2-an386.toml", r"^bytes = \S+", "bytes = -1", "[regions]: [flash]: bytes must be a whole number"),
        ("chips/mps2-an386.toml", r"^bytes", "size = 1\nbytes", "unknown key size"),
        (
            "microbit.toml",
            r"write = \"GPIO_OUTSET\"",
            'write = "GPIO_OUTSIT"',
            "number 1: GPIO_OUTSIT is not in the chip's",
        ),
        (
            "microbit.toml",
            r"write = \"GPIO_OUTSET\"",
            'poke = "GPIO_OUTSET"',
            "number 1: a step is one of write, set, clear",
        ),
        ("microbit.toml", r"write = \"GPIO_PIN_CNF24\"", 'set = "GPIO_PIN_CNF24"', "number 2: the key bits is missing"),
        ("microbit.toml", r", why = \"P0.24 \(TX", ', reason = "', "number 2: the key why is missing"),
        ("microbit.toml", r"^steps = \[", "steps = 1\nmore = [", "[setup]: steps must be a list of tables"),
        ("chips/nrf51822.toml", r"mask = 0x1, value = 0x1", "mask = 0x1, value = 0x2", "leaves no room for value 0x2"),
        (
            "chips/nrf51822.toml",
            r"0x4000_0100, manual = .* }",
            "0x4000_0100 }",
            "[CLOCK_HFCLKSTARTED]: the key manual is",
        ),
        ("chips/nrf51822.toml", r"0x4000_0100, ", "0x4000_0102, ", "address must be a multiple of 4, found 0x40000102"),
        (
            "chips/nrf51822.toml",
            r'^driver = ".*"',
            'driver = "usb"',
            "driver must be one of cmsdk, nrf51, pl011, stm32, stm32v2",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(boards: Path, file: str, old: str, new: str, message: str) -> None:
    assert message in spoil(boards, file, old, new)
