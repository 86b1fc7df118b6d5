"""The rules of a session, frame by frame: a request is executed at most once, whatever is repeated, late or foreign."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
import serial
from link_device import HostDevice

from rlx_edge.device.frames import Frame, FrameReader, encode
from rlx_edge.device.protocol import BUSY, Command, Status, read_hello

RUN, HELLO, WRITE, READ, PING = Command.RUN, Command.HELLO, Command.WRITE, Command.READ, Command.PING


class Raw:
    """Sends frames as they are told and returns every frame that comes back."""

    def __init__(self, port: str) -> None:
        self.port = serial.Serial(port, 1_000_000, timeout=0.02)
        self.reader = FrameReader()
        self.session = 0

    def send(self, command: int, sequence: int, payload: bytes = b"", *, session: int | None = None) -> list[Frame]:
        session = self.session if session is None else session
        replies = self.send_bytes(encode(Frame(command, 0, sequence, session, payload)))
        assert all(reply.session == session for reply in replies)
        return replies

    def send_bytes(self, data: bytes) -> list[Frame]:
        self.port.write(data)
        return self.receive()

    def receive(self) -> list[Frame]:
        items, quiet_at = [], time.monotonic() + 0.15
        while time.monotonic() < quiet_at:
            data = self.port.read(4096)
            if data:
                quiet_at = time.monotonic() + 0.05
            items += self.reader.feed(data)
        return [item for item in items if isinstance(item, Frame) and item.kind != BUSY]

    def hello(self, sequence: int, nonce: int = 77) -> None:
        (reply,) = self.send(HELLO, sequence, session=nonce)
        assert reply.status == Status.OK
        self.session = nonce ^ read_hello(reply.payload).boot_id

    def load(self, sequence: int) -> None:
        """Fills the input of the model "crash", with a value that does nothing."""
        (reply,) = self.send(WRITE, sequence, struct.pack("<BBHIB", 1, 0, 0, 0, 5) + bytes(7))
        assert reply.status == Status.OK

    def count(self, sequence: int) -> int:
        """How often the model "other" has run."""
        (reply,) = self.send(READ, sequence, struct.pack("<BBHIH", 1, 0, 2, 0, 1))
        assert reply.status == Status.OK
        return reply.payload[0]


@pytest.fixture
def raw() -> Iterator[Raw]:
    with HostDevice() as device:
        raw = Raw(device.port)
        yield raw
        raw.port.close()


def test_a_repeated_request_is_answered_again_but_not_executed_again(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    first = raw.send(RUN, 12, b"\x01")
    again = raw.send(RUN, 12, b"\x01")
    assert [reply.status for reply in first] == [Status.OK]
    assert again == first
    assert raw.count(13) == 1


def test_requests_that_arrive_in_one_piece_are_all_answered(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    run = encode(Frame(RUN, 0, 12, raw.session, b"\x01"))
    replies = raw.send_bytes(run + run + run + encode(Frame(PING, 0, 13, raw.session, b"abc")))
    assert [(reply.sequence, reply.status) for reply in replies] == [(12, 0), (12, 0), (12, 0), (13, 0)]
    assert raw.count(14) == 1


def test_an_older_request_is_refused(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    raw.send(RUN, 12, b"\x01")
    raw.load(13)
    assert [reply.status for reply in raw.send(RUN, 12, b"\x01")] == [Status.OLD_SEQUENCE]
    assert [reply.status for reply in raw.send(RUN, 13, b"\x01")] == [Status.OLD_SEQUENCE]  # the number of the write
    assert [reply.status for reply in raw.send(RUN, 14, b"\x01")] == [Status.OK]
    assert raw.count(15) == 2


def test_a_refusal_leaves_the_kept_reply_alone(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    first = raw.send(RUN, 12, b"\x01")
    assert raw.send(RUN, 5, b"\x01")[0].status == Status.OLD_SEQUENCE
    assert raw.send(RUN, 12, b"\x01", session=1)[0].status == Status.WRONG_SESSION
    assert raw.send(RUN, 12, b"\x01") == first


def test_the_sequence_wraps(raw: Raw) -> None:
    raw.hello(0xFFFE)
    assert [raw.send(PING, sequence & 0xFFFF, b"x")[0].status for sequence in (0xFFFF, 0x10000, 0x10001)] == [0, 0, 0]
    assert raw.send(PING, 0xFFFF, b"x")[0].status == Status.OLD_SEQUENCE


def test_nothing_is_done_before_hello(raw: Raw) -> None:
    assert raw.send(PING, 1)[0].status == Status.NO_SESSION
    assert raw.send(HELLO, 1, session=0)[0].status == Status.NO_SESSION  # no nonce


def test_a_request_for_another_boot_is_refused(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    assert raw.send(RUN, 12, b"\x01", session=raw.session + 1)[0].status == Status.WRONG_SESSION
    assert raw.send(RUN, 12, b"\x01")[0].status == Status.OK


def test_a_new_computer_opens_a_session_at_any_number(raw: Raw) -> None:
    raw.hello(1000)
    raw.hello(3, nonce=78)
    raw.load(4)
    assert raw.send(RUN, 5, b"\x01")[0].status == Status.OK


def test_a_late_copy_of_hello_does_not_open_the_session_again(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    assert raw.send(HELLO, 10, session=77)[0].status == Status.OLD_SEQUENCE
    assert raw.send(RUN, 12, b"\x01")[0].status == Status.OK


def test_a_later_hello_forgets_the_inputs(raw: Raw) -> None:
    raw.hello(10)
    raw.load(11)
    raw.hello(12)
    assert raw.send(RUN, 13, b"\x01")[0].status == Status.NO_INPUT


def test_requests_of_the_session_before_do_nothing(raw: Raw) -> None:
    """A port was closed and opened again, and what was on the line arrives late: HELLO, a write, a run."""
    raw.hello(10)
    raw.load(11)
    before = raw.session
    raw.hello(5, nonce=78)
    raw.load(6)
    assert raw.send(HELLO, 12, session=77)[0].status == Status.WRONG_SESSION
    late = struct.pack("<BBHIB", 1, 0, 0, 0, 9) + bytes(7)
    assert raw.send(WRITE, 13, late, session=before)[0].status == Status.WRONG_SESSION
    assert raw.send(RUN, 14, b"\x01", session=before)[0].status == Status.WRONG_SESSION
    assert raw.send(RUN, 7, b"\x01")[0].status == Status.OK
    assert raw.count(8) == 1


def test_what_is_no_request_gets_no_answer(raw: Raw) -> None:
    raw.hello(10)
    assert raw.send(PING | 0x80, 11) == []  # its own voice, echoed
    assert raw.send_bytes(b"\0hello\0\x05ab\0" + b"x" * 5000 + b"\0") == []
    assert raw.send(99, 12)[0].status == Status.BAD_COMMAND
    assert raw.send(0, 13)[0].status == Status.BAD_COMMAND
    assert raw.send(PING, 14, b"ok")[0].payload == b"ok"
