"""The UART's interrupt on boards that exist, in their own images on an emulated core: the ring, and lost bytes."""

from __future__ import annotations

import struct

import pytest

from rlx_edge.device.buffers import ring_bytes

pytest.importorskip("unicorn", reason="runs images on an emulated core: pip install unicorn")
from silicon import UARTS
from test_silicon import BOOT2, Image, build

# One board for each way to drive a UART, and the one with the most interrupts.
BOARDS = ("microbit", "nrf52840dk", "pico", "pico2", "stm32vldiscovery", "nucleo-h743zi", "nucleo-l4r5zi")


@pytest.fixture(scope="module", params=BOARDS)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(request.param, tmp_path_factory.mktemp("image"))


def test_the_vector_table_names_the_handler(image: Image) -> None:
    at = 4 * (16 + image.board.uart.irq) + (BOOT2 if image.board.chip.image == "rp2040" else 0)
    assert struct.unpack_from("<I", image.data, at)[0] == image.symbol("rlx_uart_handler") | 1


def test_the_interrupt_fills_the_ring(image: Image) -> None:
    """It holds what arrived, in order, and across its end."""
    chip, ring = image.started(), image.symbol("ring")
    room = ring_bytes(image.board)
    chip.set_word(image.symbol("put"), room - 3)
    chip.set_word(image.symbol("taken"), room - 3)
    chip.arrive(b"abcdefg")
    chip.call(image.symbol("rlx_uart_handler"))
    assert not chip.interrupting
    assert chip.word(image.symbol("put")) == room + 4
    assert chip.memory(ring + room - 3, 3) + chip.memory(ring, 4) == b"abcdefg"


def test_a_full_ring_asks_for_no_more(image: Image) -> None:
    chip, room = image.started(), ring_bytes(image.board)
    chip.arrive(bytes(room + 10))
    chip.call(image.symbol("rlx_uart_handler"))
    assert chip.interrupting
    assert chip.word(image.symbol("put")) - chip.word(image.symbol("taken")) == room
    irq = image.board.uart.irq
    assert chip.writes[-1] == (0xE000_E180 + 4 * (irq // 32), 1 << irq % 32)  # ICER


@pytest.mark.parametrize("waiting", [b"", b"\0\0"])
def test_a_lost_byte_does_not_interrupt_for_ever(image: Image, waiting: bytes) -> None:
    """The overrun is noticed with a byte that waits, or alone. No byte is made up."""
    chip = image.started()
    if not UARTS[image.board.uart.driver].overrun:
        pytest.skip("its overrun asks for no interrupt")
    chip.overrun = True
    chip.arrive(waiting)
    before = chip.word(image.symbol("put"))
    chip.call(image.symbol("rlx_uart_handler"))
    assert not chip.interrupting
    assert chip.word(image.symbol("put")) - before == len(waiting)
