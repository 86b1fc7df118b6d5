"""A board's image on an emulated core with stubbed peripherals: every register write is recorded, the UART is a queue.

The core is Unicorn's. Nothing here knows what a register should hold: reads give what was last written, passed through
`answers` (what the silicon adds, such as a ready bit after an enable bit), which the tests write from the manuals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import unicorn as uc
from unicorn import arm_const as arm

from rlx_edge.device.boards import Board

Answer = Callable[[int, "Silicon"], int]
"""What a register reads: given what was last written to it, and the chip."""

CORES = {
    "cortex-m0": arm.UC_CPU_ARM_CORTEX_M0,
    "cortex-m0plus": arm.UC_CPU_ARM_CORTEX_M0,
    "cortex-m3": arm.UC_CPU_ARM_CORTEX_M3,
    "cortex-m4": arm.UC_CPU_ARM_CORTEX_M4,
    "cortex-m7": arm.UC_CPU_ARM_CORTEX_M7,
    "cortex-m33": arm.UC_CPU_ARM_CORTEX_M33,
}
PERIPHERALS = (0x4000_0000, 0x2000_0000)
SSI = (0x1800_0000, 0x1000)  # of the RP2040
SYSTEM = (0xE000_0000, 0x0010_0000)
CYCCNT, SYST_CVR = 0xE000_1004, 0xE000_E018
LONGEST_RUN = 20_000_000  # instructions; a start takes some 100,000


@dataclass(frozen=True)
class UartStub:
    """Where a UART has its data and its states: offset -> word, by whether a byte waits. Ready to send at all times.

    `overrun` is the bit of the state that says that a byte was lost, and asks for the interrupt until it is cleared: by
    reading data after the state, or where there is one by writing the bit to the register `clear`. 0: it asks for none.
    """

    receive: int
    send: int
    states: Mapping[int, tuple[int, int]]
    overrun: int = 0
    clear: int | None = None


UARTS = {
    "stm32": UartStub(0x04, 0x04, {0x00: (0xC0, 0xE0)}, overrun=8),  # SR: TXE, TC; RXNE; ORE (RM0090 30.6.1)
    "stm32v2": UartStub(0x24, 0x28, {0x1C: (0xC0, 0xE0)}, overrun=8, clear=0x20),  # ISR; ICR (RM0432 chapter 46)
    "pl011": UartStub(0x00, 0x00, {0x18: (0x10, 0x00)}),  # FR: RXFE
    "nrf51": UartStub(0x518, 0x51C, {0x108: (0, 1), 0x11C: (1, 1)}),  # RXDRDY, TXDRDY
}


@dataclass
class Silicon:
    """An image that is about to start. `writes` are (address, value) of peripheral and system registers, in order."""

    board: Board
    image: bytes
    answers: Mapping[int, Answer] = field(default_factory=dict)
    resets: Mapping[int, int] = field(default_factory=dict)
    writes: list[tuple[int, int]] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)
    patience: int = 1000
    """Reads of the same register, one after the other, after which the firmware waits in vain."""
    cycles: int = 0
    """What CYCCNT reads next; one more with each read while the firmware runs by itself."""
    overrun: bool = False
    """Whether the UART has lost a byte, and says so."""

    def __post_init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._registers: dict[int, int] = dict(self.resets)
        self._core = uc.Uc(uc.UC_ARCH_ARM, uc.UC_MODE_THUMB | uc.UC_MODE_MCLASS)
        self._core.ctl_set_cpu_model(CORES[self.board.chip.cpu])
        placement = self.board.placement
        for region in {placement.code, placement.data, placement.arena}:
            self._core.mem_map(region.start, region.bytes)
        self._core.mem_write(placement.code.start, self.image)
        for start, size in (PERIPHERALS, SSI, SYSTEM):
            self._core.mmio_map(start, size, self._read, start, self._write, start)
        self._pc = 0
        self._alive = 1
        self._state_read = False  # since data was read
        self._polls = (0, 0)  # the register that was read last, and how often since another was

    def register(self, address: int) -> int:
        """What a register holds now: what was last written, or its reset value."""
        return self._registers.get(address, 0)

    def start(self, pc: int) -> None:
        """Runs from this address until the firmware waits for a byte."""
        self._pc = pc | 1
        self.run()

    def run(self, received: bytes = b"") -> bytes:
        """Runs on until the firmware has taken these bytes and sleeps. Returns what it has sent meanwhile.

        Raises `AssertionError` when it waits in vain.
        """
        self._waiting.extend(received)
        before = len(self.sent)
        while True:
            self._core.emu_start(self._pc, 0xFFFF_FFFE, count=LONGEST_RUN)
            assert self._polls[1] < self.patience, f"waits in vain for {self._polls[0]:#x}"
            self._pc = self._core.reg_read(arm.UC_ARM_REG_PC) | 1
            if not self._waiting:
                return bytes(self.sent[before:])

    def arrive(self, received: bytes) -> None:
        """Bytes that wait in the UART while the firmware does something else."""
        self._waiting.extend(received)

    @property
    def interrupting(self) -> bool:
        """Whether the UART asks for its interrupt."""
        return bool(self._waiting) or self.overrun

    def call(self, function: int) -> int:
        """Calls a function of the image without arguments, CYCCNT frozen; returns its 64-bit result."""
        self._alive = 0
        back = self.board.placement.code.start + 16  # never run: emulation stops there
        self._core.reg_write(arm.UC_ARM_REG_LR, back | 1)
        self._core.emu_start(function | 1, back, count=LONGEST_RUN)
        assert self._core.reg_read(arm.UC_ARM_REG_PC) == back
        low, high = self._core.reg_read(arm.UC_ARM_REG_R0), self._core.reg_read(arm.UC_ARM_REG_R1)
        return int(high << 32 | low)

    def load(self, address: int, data: bytes) -> None:
        """Puts bytes into RAM, as a boot ROM would."""
        self._core.mem_write(address, data)

    def set_register(self, address: int, value: int) -> None:
        self._registers[address] = value

    def set_word(self, address: int, value: int) -> None:
        self._core.mem_write(address, value.to_bytes(4, "little"))

    def word(self, address: int) -> int:
        return int.from_bytes(self._core.mem_read(address, 4), "little")

    def memory(self, address: int, size: int) -> bytes:
        return bytes(self._core.mem_read(address, size))

    def _read(self, _core: uc.Uc, offset: int, _size: int, base: int) -> int:
        address = base + offset
        uart, at = UARTS[self.board.uart.driver], address - self.board.uart.address
        if at == uart.receive:
            self.overrun &= uart.clear is not None or not self._state_read
            self._state_read = False
            return self._waiting.popleft() if self._waiting else 0
        if at in uart.states:
            self._state_read = self.overrun  # only a read that has shown the overrun counts
            return uart.states[at][bool(self._waiting)] | (uart.overrun if self.overrun else 0)
        self._polls = (address, self._polls[1] + 1 if self._polls[0] == address else 0)
        if self._polls[1] >= self.patience:
            self._core.emu_stop()
        value = self._registers.get(address, 0)
        if address == CYCCNT:
            value = self.cycles
            self.cycles += self._alive
        return self.answers[address](value, self) if address in self.answers else value

    def _write(self, _core: uc.Uc, offset: int, size: int, value: int, base: int) -> None:
        address = base + offset
        assert size == 4, f"{size} bytes written to {address:#x}"
        self.writes.append((address, value))
        self._registers[address] = value
        uart, at = UARTS[self.board.uart.driver], address - self.board.uart.address
        if at == uart.clear and value & uart.overrun:
            self.overrun = False
        if at == uart.send:
            self.sent.append(value)
