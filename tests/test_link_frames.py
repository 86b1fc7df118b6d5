"""Frames: bytes to frames and back, whatever surrounds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.device.frames import Damaged, Frame, FrameReader, Text, decode, encode
from rlx_edge.device.protocol import Payload

frames = st.builds(
    Frame,
    kind=st.integers(0, 255),
    status=st.integers(0, 255),
    sequence=st.integers(0, 0xFFFF),
    boot_id=st.integers(0, 0xFFFFFFFF),
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
    frame = Frame(kind=7, status=0, sequence=0x0201, boot_id=0xDDCCBBAA, payload=b"\x00")
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
    frame = Frame(kind=0x87, status=0, sequence=1, boot_id=2, payload=b"abc")
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
    frame = encode(Frame(kind=0x87, status=0, sequence=1, boot_id=0xFFEEDDCC, payload=bytes(range(128, 200))))
    assert FrameReader().feed(frame[:40] + b"\0") == [Damaged(frame[1:40])]


@pytest.mark.parametrize("length", [0, 1, 253, 254, 255, 508, 509, 1024])
@pytest.mark.parametrize("byte", [0, 1, 255])
def test_lengths_around_the_block_of_cobs(length: int, byte: int) -> None:
    frame = Frame(kind=1, status=0, sequence=0x0101, boot_id=0x01010101, payload=bytes([byte]) * length)
    assert FrameReader().feed(encode(frame)) == [frame]
