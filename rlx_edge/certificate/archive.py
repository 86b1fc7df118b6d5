"""A zip file of one fixed form: the same members give the same bytes, and any other byte is found and named.

Members are stored, not compressed: their bytes then do not depend on a version of zlib, and the file cannot unpack to
more than it is. Fields are those of PKWARE's APPNOTE.TXT, 4.3.7 (local headers), 4.3.12 (directory), 4.3.16 (its end);
all that could vary is fixed, dates to the earliest that the format has.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.errors import EdgeError

MAX_BYTES = 256 << 20
MAX_MEMBERS = 4096
MAX_NAME = 200
LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_VERSION, _STORED, _MIDNIGHT, _FIRST_DAY = 20, 0, 0, 1 << 5 | 1  # 1980-01-01 00:00
_MADE_ON_UNIX, _MODE = 3 << 8 | _VERSION, 0o100644 << 16
_PART = "[A-Za-z0-9][A-Za-z0-9_.-]*"
_NAME = re.compile(f"{_PART}(/{_PART})*", re.ASCII)


@dataclass(frozen=True)
class Archive:
    """What could be read. `damage` is empty for a file as it was written, else a line for each place that is not."""

    members: Mapping[str, bytes]
    damage: tuple[str, ...]


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """The zip file of these members, in their order. Raises EdgeError for one that would not be read again."""
    pieces: list[bytes] = []
    directory: list[bytes] = []
    at = 0
    for name, content in members.items():
        if not _is_name(name):
            raise EdgeError(f"{name!r} cannot be the name of a file in a certificate")
        sizes = (zlib.crc32(content), len(content), len(content), len(name), 0)
        times = (0, _STORED, _MIDNIGHT, _FIRST_DAY)
        pieces += [_LOCAL.pack(LOCAL, _VERSION, *times, *sizes), name.encode(), content]
        more = (0, 0, 0, _MODE, at)  # no comment, first disk, binary
        directory += [_CENTRAL.pack(CENTRAL, _MADE_ON_UNIX, _VERSION, *times, *sizes, *more), name.encode()]
        at += _LOCAL.size + len(name) + len(content)
        if at > MAX_BYTES or len(members) > MAX_MEMBERS:
            raise EdgeError(
                f"a certificate holds at most {MAX_BYTES:,} bytes in {MAX_MEMBERS:,} files: name fewer samples"
            )
    listed = b"".join(directory)
    end = _END.pack(END, 0, 0, len(members), len(members), len(listed), at, 0)
    return b"".join((*pieces, listed, end))


def read_archive(data: bytes) -> Archive:
    """The members of a file, and where it is not what `write_archive` writes. Raises EdgeError for no zip file at all,
    or one that is too large."""
    if len(data) > MAX_BYTES + (1 << 20) or not data.startswith(LOCAL):
        raise EdgeError("is no certificate that rlx-edge wrote")
    members: dict[str, bytes] = {}
    damage: list[str] = []
    at = 0
    while data[at : at + 4] == LOCAL and len(members) < MAX_MEMBERS:
        found = _read_member(data, at)
        if isinstance(found, str) or found[0] in members:
            what = found if isinstance(found, str) else f"a second file {found[0]}"
            return Archive(members, (*damage, f"{what}, at byte {at}"))
        name, content, crc, at = found
        members[name] = content
        if zlib.crc32(content) != crc:
            damage.append(name)
    if data[at : at + 4] != CENTRAL:
        return Archive(members, (*damage, f"what follows {next(reversed(members))}, at byte {at}"))
    return Archive(members, tuple(damage) or _parted(data, members))


def _read_member(data: bytes, at: int) -> tuple[str, bytes, int, int] | str:
    """Name, content, the checksum that goes with it, and where it ends; or what is wrong with it."""
    start = at + _LOCAL.size
    if start > len(data):
        return "a header that is cut short"
    *_, crc, _, size, length, _ = _LOCAL.unpack_from(data, at)
    raw = data[start : start + min(length, MAX_NAME + 1)]
    name = raw.decode("ascii", "replace")
    if not _is_name(name):
        return "a file whose name is not allowed"
    content = data[start + length : start + length + size]
    if len(content) != size:
        return f"{name}, which is cut short"
    return name, content, crc, start + length + size


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _parted(data: bytes, members: Mapping[str, bytes]) -> tuple[str, ...]:
    """Where the file parts from the one that these members make: in a header, the directory, or behind its end."""
    right = write_archive(members)
    if data == right:
        return ()
    both = min(len(data), len(right))
    unequal = np.frombuffer(data, np.uint8, both) != np.frombuffer(right, np.uint8, both)
    at = int(unequal.argmax()) if unequal.any() else both
    end = 0
    for name, content in members.items():
        start, end = end, end + _LOCAL.size + len(name) + len(content)
        if at < end:
            return (f"the header of {name}, at byte {at} ({at - start} of it)",)
    where = "the zip file's directory" if at < len(right) else "what follows the zip file's end"
    return (f"{where}, at byte {at}",)
