"""Requests and replies over a port: repeated when lost, each bounded in time. transfers.py has several in flight."""

from __future__ import annotations

import secrets
import struct
import time
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

import serial

from rlx_edge.device import faults
from rlx_edge.device.device_text import TextLimit
from rlx_edge.device.frames import OVERHEAD_BYTES, Damaged, Frame, FrameReader, Item, Text, encode
from rlx_edge.device.link_errors import FaultError, NoAnswerError, RefusedError, RestartedError
from rlx_edge.device.protocol import BUSY, EXPLAIN, FAULT, FROM_DEVICE, NO_STEP, Command, Status, read_fault
from rlx_edge.errors import DeviceError

# Seconds that a device gets beyond the time on the wire before a request is repeated, and after a damaged frame, which
# may have been the reply, or text in front of it.
_ANSWER_TIME = 0.3
_AFTER_DAMAGE = 0.1
# Repeats wait 1.5, then 2 times that: a slow device, say an emulator on a busy computer, is not slowed down further.
_SLOWER, _SLOWEST = 1.5, 2.0
# While the device computes: seconds of grace, and per multiply-accumulate (80 cycles of a slow 16 MHz core).
_BUSY_GRACE = 2.0
_BUSY_PER_MAC = 5e-6


@dataclass
class Wait:
    """When to repeat a request, and when to give up; moved on by what arrives."""

    repeat_at: float
    give_up_at: float
    repeats: int = 0
    busy_step: int | None = None
    heard_bytes: bool = False
    heard_frame: bool = False


class Session:
    """The exchange of frames over an open port; Link gives them meaning. Not for several threads.

    `max_payload` and `ring_bytes` are the device's: the longest payload, and the received bytes that it keeps while it
    works on a request (0: it may lose what comes then). `repeats` counts requests that were sent again.
    """

    def __init__(
        self, port: serial.SerialBase, name: str, baud: int, *, timeout: float, on_text: Callable[[str], None]
    ) -> None:
        self.name = name
        self.max_payload = 128  # until HELLO tells more
        self.ring_bytes = 0
        self.elf: Path | None = None
        self.repeats = 0
        self.timeout = timeout
        self._port = port
        self._baud = baud
        self._text = TextLimit(on_text)
        self._reader = FrameReader()
        self._items: deque[Item] = deque()
        self._answered = False
        self._sequence = secrets.randbelow(0x10000)
        self._nonce = 1 + secrets.randbelow(0xFFFFFFFF)
        self._session = 0

    def close(self) -> None:
        self._port.close()

    def opened(self, boot_id: int, max_payload: int, ring_bytes: int) -> None:
        """The device has answered HELLO: what follows is meant for this boot of it, in this session."""
        self._session = self._nonce ^ boot_id
        self.max_payload = max_payload
        self.ring_bytes = ring_bytes

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
        frame = self._frame(command, payload)
        answer_time = self.answer_time(len(frame))
        now = time.monotonic()
        wait = Wait(now + answer_time, now + self.timeout)
        self._send(frame)
        while True:
            reply = self.await_reply(command, (self._sequence,), wait, what)
            if reply is not None:
                return self.checked(command, reply, what)
            self.repeats += 1
            wait.repeats += 1
            self._send(frame)
            wait.repeat_at = time.monotonic() + min(_SLOWER * wait.repeats, _SLOWEST) * answer_time

    def post(self, command: Command, payload: bytes) -> tuple[int, int]:
        """Sends a request; returns its sequence and its bytes on the line."""
        frame = self._frame(command, payload)
        self._send(frame)
        return self._sequence, len(frame)

    def frame_bytes(self, payload_bytes: int) -> int:
        """The most bytes on the line of a frame with such a payload."""
        body = payload_bytes + OVERHEAD_BYTES
        return body + body // 254 + 3

    def answer_time(self, in_flight: int) -> float:
        """Seconds in which a reply should come, with so many bytes on their way to the device."""
        return _ANSWER_TIME + 10.0 * (in_flight + self.frame_bytes(self.max_payload)) / self._baud

    def tell(self, line: str) -> None:
        """Shows a line to whoever reads what the device prints."""
        self._text.show(line)

    def end_request(self) -> None:
        """What the device prints from here on belongs to the next request."""
        self._text.end_request()

    def await_reply(self, command: Command, sequences: Container[int], wait: Wait, what: str) -> Frame | None:
        """The next reply to one of these requests, or None when it is time to repeat them.

        Raises NoAnswerError when it is time to give up, RestartedError and FaultError.
        """
        while True:
            self._receive(wait)
            reply = self._next_reply(command, sequences, wait, what)
            if reply is not None:
                return reply
            now = time.monotonic()
            if now >= wait.give_up_at:
                raise self.silence(wait, what)
            if now >= wait.repeat_at:
                return None

    def _frame(self, command: Command, payload: bytes) -> bytes:
        self._sequence = (self._sequence + 1) & 0xFFFF
        return encode(Frame(command, 0, self._sequence, self._session_of(command), payload))

    def _session_of(self, command: Command) -> int:
        """What requests carry, and their replies repeat: HELLO cannot know the boot yet."""
        return self._nonce if command is Command.HELLO else self._session

    def _send(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except serial.SerialTimeoutException as error:
            raise NoAnswerError(
                f"{self.name}: the device takes no bytes: is it halted, or is flow control on?"
            ) from error
        except OSError as error:
            raise self._gone(error) from error

    def _receive(self, wait: Wait) -> None:
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

    def _next_reply(self, command: Command, sequences: Container[int], wait: Wait, what: str) -> Frame | None:
        """Goes through what arrived until a reply to one of the requests, if it is there."""
        ours = self._session_of(command)
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Text):
                self._text.show(item.line)
            elif isinstance(item, Damaged):
                longest = 10.0 * self.frame_bytes(self.max_payload) / self._baud
                wait.repeat_at = min(wait.repeat_at, time.monotonic() + _AFTER_DAMAGE + longest)
            elif item.kind == FAULT and item.session == ours:
                raise self._fault(item, what)
            elif item.session == ours and item.kind == BUSY and item.sequence in sequences:
                self._note_busy(item, wait)
            elif item.session == ours and item.kind == command | FROM_DEVICE and item.sequence in sequences:
                return item
            else:  # a late copy, or an answer to somebody else
                wait.heard_frame |= item.kind >= FROM_DEVICE
        return None

    def _note_busy(self, item: Frame, wait: Wait) -> None:
        """The request arrived and is being worked on: no repeating until the work must be done."""
        wait.heard_frame = True
        step = int.from_bytes(item.payload[0:4], "little")
        macs = int.from_bytes(item.payload[4:8], "little")
        wait.busy_step = None if step == NO_STEP else step
        wait.repeat_at = time.monotonic() + _BUSY_GRACE + _BUSY_PER_MAC * macs
        wait.give_up_at = max(wait.give_up_at, wait.repeat_at + self.timeout)

    def checked(self, command: Command, reply: Frame, what: str) -> Frame:
        """The reply, unless it is a refusal, which is raised."""
        self._answered = True
        if reply.status == Status.NO_SESSION:
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

    def _fault(self, item: Frame, what: str) -> DeviceError:
        try:
            fault = read_fault(item.payload)
        except struct.error:
            return DeviceError(f"{self.name}: fault while {what}, but what the device says of it cannot be read")
        where = "" if fault.step is None else f", in step {fault.step}"
        return FaultError(f"{self.name}: fault while {what}{where}: {faults.describe(fault, self.elf)}", fault)

    def silence(self, wait: Wait, what: str) -> NoAnswerError:
        """What to tell a person when nothing comes, by what was heard before."""
        for item in self._reader.flush():
            if isinstance(item, Text):  # a program's last words
                self._text.show(item.line)
        if wait.busy_step is not None:
            return NoAnswerError(
                f"{self.name}: the device stopped answering in step {wait.busy_step} or later while {what}"
            )
        if wait.heard_frame or (wait.heard_bytes and self._answered):
            return NoAnswerError(
                f"{self.name}: no whole answer within {self.timeout:g} s while {what}: is the line disturbed?"
            )
        if wait.heard_bytes:
            return NoAnswerError(
                f"{self.name}: bytes came, but no frames, while {what}: is the baud rate {self._baud}, "
                "and is the board flashed with firmware that speaks this protocol?"
            )
        if self._answered:
            return NoAnswerError(
                f"{self.name}: no answer within {self.timeout:g} s while {what}, though the device answered before: "
                "is it still powered and connected?"
            )
        return NoAnswerError(
            f"{self.name}: no answer within {self.timeout:g} s while {what}: is the board powered, "
            f"flashed with this firmware, and the baud rate {self._baud}?"
        )

    def _gone(self, error: OSError) -> DeviceError:
        return DeviceError(f"{self.name}: the port is gone ({error}): was the board unplugged?")
