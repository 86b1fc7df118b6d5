"""Large tensors over a session: several requests in flight, so that the line does not rest while answers travel.

Requests of a transfer may be executed again, so one that got lost is sent anew, under a new sequence. docs/protocol.md
("Several requests in flight") says why that is safe.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rlx_edge.device.frames import Frame
from rlx_edge.device.protocol import Command, Status
from rlx_edge.device.session import Session, Wait
from rlx_edge.errors import DeviceError

# Requests in flight, at most, to a device with a ring: writes fill the line by themselves, answers to reads do.
_MOST_WRITES = 4
_MOST_READS = 8
# Answers in a row that bring nothing new, before the timeout counts.
_FRUITLESS = 100


class _Flight:
    """The requests of one transfer. Each stands for an offset; those without an answer are in flight, oldest first."""

    def __init__(self, session: Session, command: Command, what: str, most: int, most_bytes: int | None) -> None:
        self._session = session
        self._command = command
        self._what = what
        self._most = most
        self._most_bytes = most_bytes  # in flight; None: any number
        self._offsets: dict[int, int] = {}  # by sequence, of all that were sent
        self._sizes: dict[int, int] = {}  # bytes on the line, by sequence, of those in flight
        self._total = 0
        self._silences = 0  # since the last progress
        self._fruitless = 0  # answers since then
        self._wait = Wait(0.0, time.monotonic() + session.timeout)

    def has_room(self, frame_bytes: int) -> bool:
        """Whether one more may be sent. After a silence one alone is, so as not to bury a slow device in repeats."""
        if not self._sizes or self._silences:
            return not self._sizes
        fits = self._most_bytes is None or sum(self._sizes.values()) + frame_bytes <= self._most_bytes
        return len(self._sizes) < self._most and fits

    def post(self, offset: int, payload: bytes) -> None:
        sequence, size = self._session.post(self._command, payload)
        self._offsets[sequence] = offset
        self._sizes[sequence] = size

    def progress(self, total: int) -> int:
        """So much has got through by now, which is returned. More than before: the timeout starts anew."""
        if total > self._total:
            self._total = total
            self._silences = self._fruitless = 0
            self._wait.give_up_at = time.monotonic() + self._session.timeout
        return self._total

    def receive(self) -> Frame | None:
        """The next answer, a late one perhaps, or None when none comes in time. Raises as `Session.request` does."""
        now = time.monotonic()
        self._fruitless += 1
        if self._fruitless > _FRUITLESS and now >= self._wait.give_up_at:
            raise self._session.silence(self._wait, self._what)
        patience = 2.0 ** min(self._silences, 8) * self._session.answer_time(sum(self._sizes.values()))
        self._wait.repeat_at = now + patience
        reply = self._session.await_reply(self._command, self._offsets, self._wait, self._what)
        self._silences += reply is None
        return reply

    def offset(self, answer: Frame) -> int:
        return self._offsets[answer.sequence]

    def is_late(self, answer: Frame) -> bool:
        """Whether its request was given up as lost."""
        return answer.sequence not in self._sizes

    def take(self, answer: Frame) -> list[int]:
        """Ends the flight of the request that was answered. Returns the offsets of older ones, which it overtook:
        answers come in order, so that theirs are lost, or are late."""
        lost = []
        for sequence in list(self._sizes) if answer.sequence in self._sizes else ():
            del self._sizes[sequence]
            if sequence == answer.sequence:
                break
            lost.append(self._offsets[sequence])
        return lost

    def take_all(self) -> list[int]:
        """Gives up all in flight as lost, and returns their offsets."""
        lost = [self._offsets[sequence] for sequence in self._sizes]
        self._session.repeats += len(lost)
        self._sizes.clear()
        return lost

    def forget(self) -> None:
        """Answers to what was sent so far mean nothing any more."""
        self._offsets.clear()
        self._sizes.clear()


def write(session: Session, make: Callable[[int], bytes], step: int, size: int, what: str, *, fresh: bool) -> None:
    """Sends a tensor of `size` bytes; `make(offset)` gives the payload of the WRITE there, with `step` bytes at most.

    Answers tell how many bytes are there without a gap: after a loss, all is sent again from there. Unless the tensor
    is `fresh`, with no bytes there yet, the first write is answered before any other is sent: were it lost, the next
    ones would continue the old bytes. Raises as `Session.request` does.
    """
    there = 0
    if not fresh or size <= step:
        there = _number(session.request(Command.WRITE, make(0), what=what))
    sent = there
    flight = _Flight(session, Command.WRITE, what, _MOST_WRITES if session.ring_bytes else 1, None)
    try:
        while there < size:
            while sent < size and flight.has_room(0):
                if sent == 0:
                    flight.forget()  # the tensor starts afresh
                flight.post(sent, make(sent))
                sent = min(sent + step, size)
            answer = flight.receive()
            status = Status.GAP if answer is None else answer.status
            if answer is not None and status == Status.GAP:
                there = flight.progress(max(there, _number(answer)))
            elif answer is not None and status != Status.OLD_SEQUENCE:
                there = flight.progress(max(there, _number(session.checked(Command.WRITE, answer, what))))
            if answer is not None and (status == Status.OK or flight.is_late(answer)):
                flight.take(answer)
                sent = max(sent, there)
            else:
                flight.take_all()
                sent = there
    finally:
        session.end_request()


def read(session: Session, command: Command, make: Callable[[int, int], bytes], size: int, what: str) -> bytes:
    """So many bytes of a tensor, or of the image; `make(offset, bytes)` gives the payload of the request for some.

    What an answer overtook is asked for again. Raises as `Session.request` does, and DeviceError on an answer of a
    wrong length.
    """
    step = session.max_payload
    todo = deque(range(0, size, step))
    parts: dict[int, bytes] = {}
    flight = _Flight(session, command, what, _MOST_READS, session.ring_bytes)
    request_bytes = session.frame_bytes(len(make(0, 0)))
    try:
        while len(parts) * step < size:
            while todo and flight.has_room(request_bytes):
                offset = todo.popleft()
                if offset not in parts:
                    flight.post(offset, make(offset, min(step, size - offset)))
            answer = flight.receive()
            if answer is None:
                todo.extendleft(reversed(flight.take_all()))
                continue
            offset, late = flight.offset(answer), flight.is_late(answer)
            lost = flight.take(answer)
            if answer.status != Status.OLD_SEQUENCE:
                part = session.checked(command, answer, what).payload
                if len(part) != min(step, size - offset):
                    raise DeviceError(f"{session.name}: the device sent {len(part)} bytes too many or few while {what}")
                parts[offset] = part
                flight.progress(len(parts))
            elif not late:
                lost.append(offset)
            session.repeats += len(lost)
            todo.extendleft(reversed(lost))
    finally:
        session.end_request()
    return b"".join(parts[offset] for offset in sorted(parts))


def _number(reply: Frame) -> int:
    return int.from_bytes(reply.payload[:4], "little")
