"""Requests and replies over a port: one at a time, repeated when lost, each bounded in time."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import serial

from rlx_edge.device import faults
from rlx_edge.device.device_text import TextLimit
from rlx_edge.device.frames import OVERHEAD_BYTES, Damaged, Frame, FrameReader, Item, Text, encode
from rlx_edge.device.link_errors import FaultError, NoAnswerError, RefusedError, RestartedError
from rlx_edge.device.protocol import BUSY, EXPLAIN, FAULT, FROM_DEVICE, NO_STEP, Command, Status, read_fault
from rlx_edge.errors import DeviceError

# Seconds that a device gets beyond the time on the wire before a request is repeated, and after a damaged frame.
_ANSWER_TIME = 0.3
_AFTER_DAMAGE = 0.1
# Repeats wait 1.5, then 2 times that: a slow device, say an emulator on a busy computer, is not slowed down further.
_SLOWER, _SLOWEST = 1.5, 2.0
# While the device computes: seconds of grace, and per multiply-accumulate (80 cycles of a slow 16 MHz core).
_BUSY_GRACE = 2.0
_BUSY_PER_MAC = 5e-6


@dataclass
class _Wait:
    """When to repeat a request, and when to give up; moved on by what arrives."""

    repeat_at: float
    give_up_at: float
    repeats: int = 0
    busy_step: int | None = None
    heard_bytes: bool = False
    heard_frame: bool = False


class Session:
    """The exchange of frames over an open port; Link gives them meaning. Not for several threads."""

    def __init__(
        self, port: serial.SerialBase, name: str, baud: int, *, timeout: float, on_text: Callable[[str], None]
    ) -> None:
        self.name = name
        self.boot_id = 0
        self.max_payload = 128  # until HELLO tells more
        self.elf: Path | None = None
        self.repeats = 0
        self._port = port
        self._baud = baud
        self._timeout = timeout
        self._text = TextLimit(on_text)
        self._reader = FrameReader()
        self._items: deque[Item] = deque()
        self._answered = False
        self._sequence = secrets.randbelow(0x10000)

    def close(self) -> None:
        self._port.close()

    def request(self, command: Command, payload: bytes = b"", *, what: str) -> Frame:
        """Sends a request and returns its reply, whose status is OK.

        `what` completes "while ..." in messages. A device that says it is busy is given longer than the timeout, by
        the work that it announces. Raises NoAnswerError, RefusedError, RestartedError or FaultError.
        """
        try:
            return self._exchange(command, payload, what)
        finally:
            self._text.end_request()

    def _exchange(self, command: Command, payload: bytes, what: str) -> Frame:
        self._sequence = (self._sequence + 1) & 0xFFFF
        frame = encode(Frame(command, 0, self._sequence, self.boot_id, payload))
        answer_time = _ANSWER_TIME + 10.0 * (len(frame) + self.max_payload + OVERHEAD_BYTES) / self._baud
        now = time.monotonic()
        wait = _Wait(now + answer_time, now + self._timeout)
        self._send(frame)
        while True:
            self._receive(wait)
            reply = self._next_reply(command, wait, what)
            if reply is not None:
                return self._checked(command, reply, what)
            now = time.monotonic()
            if now >= wait.give_up_at:
                raise self._silence(wait, what)
            if now >= wait.repeat_at:
                self.repeats += 1
                wait.repeats += 1
                self._send(frame)
                wait.repeat_at = now + min(_SLOWER * wait.repeats, _SLOWEST) * answer_time

    def _send(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except serial.SerialTimeoutException as error:
            raise NoAnswerError(
                f"{self.name}: the device takes no bytes: is it halted, or is flow control on?"
            ) from error
        except OSError as error:
            raise self._gone(error) from error

    def _receive(self, wait: _Wait) -> None:
        """Waits for bytes, for a short while, unless some items are left from before."""
        if self._items:
            return
        try:
            data = self._port.read(1)
            data += self._port.read(self._port.in_waiting) if data else b""
        except OSError as error:
            raise self._gone(error) from error
        wait.heard_bytes |= bool(data)
        self._items.extend(self._reader.feed(data))

    def _next_reply(self, command: Command, wait: _Wait, what: str) -> Frame | None:
        """Goes through what arrived until the reply to the current request, if it is there."""
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Text):
                self._text.show(item.line)
            elif isinstance(item, Damaged):
                wait.repeat_at = min(wait.repeat_at, time.monotonic() + _AFTER_DAMAGE)
            elif item.kind == FAULT:
                raise self._fault(item, what)
            elif item.kind == BUSY and item.sequence == self._sequence:
                self._note_busy(item, wait)
            elif item.kind == command | FROM_DEVICE and item.sequence == self._sequence:
                return item
            else:
                wait.heard_frame |= item.kind >= FROM_DEVICE
        return None

    def _note_busy(self, item: Frame, wait: _Wait) -> None:
        """The request arrived and is being worked on: no repeating until the work must be done."""
        wait.heard_frame = True
        step = int.from_bytes(item.payload[0:4], "little")
        macs = int.from_bytes(item.payload[4:8], "little")
        wait.busy_step = None if step == NO_STEP else step
        wait.repeat_at = time.monotonic() + _BUSY_GRACE + _BUSY_PER_MAC * macs
        wait.give_up_at = max(wait.give_up_at, wait.repeat_at + self._timeout)

    def _checked(self, command: Command, reply: Frame, what: str) -> Frame:
        self._answered = True
        if reply.status in (Status.WRONG_BOOT, Status.NO_SESSION):
            raise RestartedError(f"{self.name}: the device restarted while {what}")
        if command is not Command.HELLO and reply.boot_id != self.boot_id:
            raise RestartedError(f"{self.name}: the device restarted while {what}")
        if reply.status != Status.OK:
            raise self._refusal(reply, what)
        return reply

    def _refusal(self, reply: Frame, what: str) -> DeviceError:
        detail = int.from_bytes(reply.payload[:4], "little")
        try:
            status = Status(reply.status)
        except ValueError:
            return DeviceError(f"{self.name}: the device answered with the unknown error {reply.status} while {what}")
        return RefusedError(f"{self.name}: while {what}: {EXPLAIN[status].format(detail=detail)}", status, detail)

    def _fault(self, item: Frame, what: str) -> FaultError:
        fault = read_fault(item.payload)
        where = "" if fault.step is None else f", in step {fault.step}"
        return FaultError(f"{self.name}: fault while {what}{where}: {faults.describe(fault, self.elf)}", fault)

    def _silence(self, wait: _Wait, what: str) -> NoAnswerError:
        for item in self._reader.flush():
            if isinstance(item, Text):  # a program's last words
                self._text.show(item.line)
        if wait.busy_step is not None:
            return NoAnswerError(
                f"{self.name}: the device stopped answering in step {wait.busy_step} or later while {what}"
            )
        if wait.heard_frame or (wait.heard_bytes and self._answered):
            return NoAnswerError(
                f"{self.name}: no whole answer within {self._timeout:g} s while {what}: is the line disturbed?"
            )
        if wait.heard_bytes:
            return NoAnswerError(
                f"{self.name}: bytes came, but no frames, while {what}: is the baud rate {self._baud}, "
                "and is the board flashed with firmware that speaks this protocol?"
            )
        if self._answered:
            return NoAnswerError(
                f"{self.name}: no answer within {self._timeout:g} s while {what}, though the device answered before: "
                "is it still powered and connected?"
            )
        return NoAnswerError(
            f"{self.name}: no answer within {self._timeout:g} s while {what}: is the board powered, "
            f"flashed with this firmware, and the baud rate {self._baud}?"
        )

    def _gone(self, error: OSError) -> DeviceError:
        return DeviceError(f"{self.name}: the port is gone ({error}): was the board unplugged?")
