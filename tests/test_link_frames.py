"""Frames: bytes to frames and back, whatever surrounds them."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.device.frames import Damaged, Frame, FrameReader, Text, decode, encode
from rlx_edge.device.link import Link
from rlx_edge.device.protocol import (
    Command,
    ModelInfo,
    Payload,
    TensorInfo,
    read_hello,
    read_model,
    read_tensor_info,
)
from rlx_edge.device.session import Session
from rlx_edge.errors import DeviceError

TENSOR = TensorInfo(0, "t", np.dtype("int8"), (200,), 200, None, True, 0, 1.0, 0)

frames = st.builds(
    Frame,
    kind=st.integers(0, 255),
    status=st.integers(0, 255),
    sequence=st.integers(0, 0xFFFF),
    session=st.integers(0, 0xFFFFFFFF),
    payload=st.binary(max_size=600),
)


@given(frames)
def test_a_frame_comes_back(frame: Frame) -> None:
    encoded = encode(frame)
    assert encoded[0] == 0
    assert encoded[-1] == 0
    assert 0 not in encoded[1:-1]
    assert decode(encoded[1:-1]) == frame


def test_the_bytes_of_one_frame_are_as_documented() -> None:
    frame = Frame(kind=7, status=0, sequence=0x0201, session=0xDDCCBBAA, payload=b"\x00")
    assert encode(frame).hex() == "00" + "0207" + "07" + "0102aabbccdd" + "05" + "02491035" + "00"


@given(st.lists(frames, max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_any_cutting_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    reader, got, at = FrameReader(), [], 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        got += reader.feed(stream[at : at + size])
        at += size
    assert got == sent


@given(frames, st.integers(0), st.integers(1, 255))
def test_a_damaged_frame_is_no_frame(frame: Frame, at: int, flip: int) -> None:
    encoded = bytearray(encode(frame))
    at = 1 + at % (len(encoded) - 2)
    encoded[at] ^= flip
    assert not [item for item in FrameReader().feed(bytes(encoded)) if isinstance(item, Frame)]


@given(st.binary(max_size=300))
def test_noise_never_raises(noise: bytes) -> None:
    reader = FrameReader()
    items = reader.feed(noise) + reader.flush()
    assert all(isinstance(item, Text | Damaged | Frame) for item in items)


def test_text_before_between_and_after_frames() -> None:
    frame = Frame(kind=0x87, status=0, sequence=1, session=2, payload=b"abc")
    reader = FrameReader()
    items = reader.feed(b"hello\r\nworld" + encode(frame) + b"more\n" + encode(frame) + b"last words")
    assert items == [Text("hello"), Text("world"), frame, Text("more"), frame]
    assert reader.flush() == [Text("last words")]


def test_text_cannot_steer_a_terminal() -> None:
    r"""Colors, a title, bells, C1 controls and changes of the writing direction are spelled out."""
    said = (
        "\x1b[31mred\x1b[0m\ttab \x07 \x9b2J \u202e é \x1b]0;title\x07 and words enough to be text"
        + " and more words" * 5
        + "\r\n"
    )
    (item,) = FrameReader().feed(said.encode() + b"\0")
    assert isinstance(item, Text)
    assert item.line.isprintable()
    assert item.line.startswith(r"\x1b[31mred\x1b[0m")
    assert r"\x07 \x9b2J \u202e é \x1b]0;title\x07 and" in item.line


def test_names_cannot_steer_a_terminal() -> None:
    text = b"a\x1b[2Jb"
    assert Payload(bytes([len(text), len(text)]) + text).string() == (r"a\x1b[2Jb", False)


def test_a_cut_frame_is_damaged() -> None:
    frame = encode(Frame(kind=0x87, status=0, sequence=1, session=0xFFEEDDCC, payload=bytes(range(128, 200))))
    assert FrameReader().feed(frame[:40] + b"\0") == [Damaged(frame[1:40])]


@pytest.mark.parametrize("length", [0, 1, 253, 254, 255, 508, 509, 1024])
@pytest.mark.parametrize("byte", [0, 1, 255])
def test_lengths_around_the_block_of_cobs(length: int, byte: int) -> None:
    frame = Frame(kind=1, status=0, sequence=0x0101, session=0x01010101, payload=bytes([byte]) * length)
    assert FrameReader().feed(encode(frame)) == [frame]


class Answering:
    """A port with a device that answers each request with frames of given kinds and payloads, whole and in its session,
    but otherwise any bytes at all."""

    def __init__(self, answers: list[tuple[int, int, bytes]]) -> None:
        self._answers = iter(answers)
        self._reader = FrameReader()
        self._sent = b""

    def write(self, data: bytes) -> None:
        for request in self._reader.feed(data):
            assert isinstance(request, Frame)
            kind, status, payload = next(self._answers, (request.kind, 2, b""))
            kind = kind if kind > 0xBF else request.kind | 0x80
            if request.kind == Command.HELLO:  # a device of this version, or none of the rest is reached
                status, payload = 0, struct.pack("<HHI", 3, 128, 0) + payload
            self._sent += encode(Frame(kind, status, request.sequence, request.session, payload))

    @property
    def in_waiting(self) -> int:
        return len(self._sent)

    def read(self, size: int) -> bytes:
        data, self._sent = self._sent[:size], self._sent[size:]
        return data


payloads = st.one_of(
    st.binary(max_size=128), st.builds(lambda head, tail: head + bytes(40) + tail, *[st.binary(max_size=30)] * 2)
)
answers = st.tuples(st.sampled_from([0, 0, 0, 0, 0, 0xC1]), st.sampled_from([0, 0, 0, 0, 0, 9, 12, 14, 99]), payloads)


@given(st.lists(answers, max_size=12))
def test_no_answer_of_a_device_ends_in_a_traceback(answers: list[tuple[int, int, bytes]]) -> None:
    session = Session(Answering(answers), "port", 115200, timeout=0.1, on_text=lambda line: None)  # type: ignore[arg-type]
    link = Link(session)
    with contextlib.suppress(DeviceError):
        link.hello()
        model = ModelInfo(0, "m", "", "", 0, 1, True, False, (TENSOR,))
        link.write_input(model, TENSOR, np.zeros(200, np.int8))
        link.run(model)
        link.step(model, 0)
        link.read_tensor(model, TENSOR)
        link.models()
        link.layers(model)


@pytest.mark.parametrize("read", [read_hello, lambda data: read_model(data, 0), lambda data: read_tensor_info(data, 0)])
@given(data=st.binary(max_size=128))
def test_payloads_are_read_or_refused(read: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(ValueError, struct.error):
        read(data)
