"""Frames of the serial protocol: bytes to frames and back. docs/protocol.md is the specification.

A frame is `00, COBS(body), 00`; a body is header, payload and CRC-32. What lies between two zeros and is no frame is
text that the device printed, or a frame that the line damaged.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from cobs import cobs

from rlx_edge.device.device_text import printable

_HEADER = struct.Struct("<BBHI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
OVERHEAD_BYTES = HEADER_BYTES + _CRC.size

# Longer runs without a zero are no frame of any device: the largest payload is 32 KB.
_LONGEST_CHUNK = 40_000


@dataclass(frozen=True)
class Frame:
    """One frame: `kind` is a command, a reply (command + 0x80) or an unsolicited message; `status` is 0 in requests;
    a reply repeats `sequence` and `session` of its request."""

    kind: int
    status: int
    sequence: int
    session: int
    payload: bytes


@dataclass(frozen=True)
class Text:
    """Bytes outside frames that read as text, without the line's end; control characters are spelled out."""

    line: str


@dataclass(frozen=True)
class Damaged:
    """Bytes that are neither a frame nor text."""

    data: bytes


Item = Frame | Text | Damaged


def encode(frame: Frame) -> bytes:
    """The bytes to send for a frame, with both delimiters."""
    body = _HEADER.pack(frame.kind, frame.status, frame.sequence, frame.session) + frame.payload
    encoded: bytes = cobs.encode(body + _CRC.pack(zlib.crc32(body)))
    return b"\0" + encoded + b"\0"


def decode(chunk: bytes) -> Frame | None:
    """The frame in a chunk that came between two delimiters, or None when it is not a whole and undamaged one."""
    try:
        data = cobs.decode(chunk)
    except cobs.DecodeError:
        return None
    if len(data) < OVERHEAD_BYTES:
        return None
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if zlib.crc32(body) != _CRC.unpack(crc)[0]:
        return None
    kind, status, sequence, session = _HEADER.unpack_from(body)
    return Frame(kind, status, sequence, session, body[HEADER_BYTES:])


class FrameReader:
    """Cuts the received stream into frames, lines of text and damaged chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Item]:
        """Takes received bytes and returns the items that they complete, in order."""
        chunks = (self._rest + data).split(b"\0")
        self._rest = chunks.pop()
        items = [item for chunk in chunks for item in _classify(chunk)]
        if len(self._rest) > _LONGEST_CHUNK:
            items += self.flush()
        return items

    def flush(self) -> list[Item]:
        """What arrived after the last delimiter: a program's last words, or the head of a frame that was cut off."""
        rest, self._rest = self._rest, b""
        return _classify(rest)


def _classify(chunk: bytes) -> list[Item]:
    if not chunk:
        return []
    frame = decode(chunk)
    if frame is not None:
        return [frame]
    if _is_text(chunk):
        lines = chunk.decode("utf-8", "replace").splitlines()
        return [Text(printable(line.expandtabs())) for line in lines if line.strip()]
    return [Damaged(chunk)]


def _is_text(chunk: bytes) -> bool:
    """Whether nearly all of it is text, or escape sequences, which are colors in a program's text. A damaged frame is
    short of that, and if not, does no harm as a line."""
    printable = sum(byte in b"\t\r\n\x1b" or 0x20 <= byte < 0x7F for byte in chunk)
    return printable >= 0.9 * len(chunk)
