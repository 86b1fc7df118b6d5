"""The zip file of a certificate: a byte changed anywhere is found and named; files of an enemy are refused, unpacking
nothing."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import zipfile
from collections.abc import Iterator, Mapping

import pytest

from rlx_edge.certificate.archive import MAX_MEMBERS, read_archive, write_archive
from rlx_edge.certificate.facts import CERTIFICATE, CHECKSUM, Certificate, ComparedTensor, Where
from rlx_edge.certificate.issue import sealed
from rlx_edge.certificate.verify import verify
from rlx_edge.errors import EdgeError

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def whole() -> bytes:
    """A certificate of nothing real: twelve files of random bytes, of which one is empty and one large."""
    chosen = random.Random(0)
    sizes = [0, 1, 3, *(chosen.randrange(4, 3000) for _ in range(8)), 100_000]
    files = {f"bundle/rlx/file_{index}.c": chosen.randbytes(size) for index, size in enumerate(sizes)}
    where = Where("mps2-an386", "a board", "cortex-m4", True, False, "none in the emulator", "mps2-an386", 0, 0)
    tensors = (ComparedTensor("out", 10, "0" * 64),)
    facts = Certificate("equal", "m", "h", ("m",), where, {}, ("host C",), True, 1, 10, (), (), tensors, (), {})
    return sealed(facts, files)


@pytest.fixture(scope="module")
def members(whole: bytes) -> Members:
    archive = read_archive(whole)
    assert archive.damage == ()
    return dict(archive.members)


def test_what_was_written_is_read(whole: bytes, members: Members) -> None:
    assert write_archive(members) == whole
    (intact, *_) = verify(read_archive(whole)).checks
    assert intact.name == "intact" and intact.holds


def test_other_programs_read_the_file(whole: bytes, members: Members) -> None:
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members
    digest = hashlib.sha256(members[CERTIFICATE]).hexdigest()
    assert members[CHECKSUM].decode() == f"{digest}  certificate.json\n"


# ---- Damage: a byte anywhere ------------------------------------------------------------------------------------


def flipped(content: bytes, at: int, bits: int = 1) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def places(members: Mapping[str, bytes]) -> Iterator[tuple[str, int, int]]:
    """Each member's name, where its header starts and where its content does."""
    at = 0
    for name, content in members.items():
        yield name, at, at + 30 + len(name)
        at += 30 + len(name) + len(content)


def found_damage(content: bytes) -> str:
    verdict = verify(read_archive(content))
    assert verdict.certificate is None and not verdict.good
    (check,) = verdict.checks
    assert check.name == "intact" and check.holds is False
    return check.detail


def test_a_byte_of_each_file_is_found_and_named(whole: bytes, members: Members) -> None:
    chosen = random.Random(1)
    for name, _, start in places(members):
        size = len(members[name])
        for at in chosen.sample(range(size), min(size, 200)):
            assert found_damage(flipped(whole, start + at, 1 << chosen.randrange(8))) == (
                f"changed since it was written: {name}"
            )


def test_a_byte_of_each_header_is_found_and_named(whole: bytes, members: Members) -> None:
    """All bytes of some headers, and one of every other."""
    chosen = random.Random(2)
    for index, (name, header, start) in enumerate(places(members)):
        some = range(header, start) if index in (1, 7) else [chosen.randrange(header, start)]
        for at in some:
            if at < 4:
                continue  # then it is no certificate at all
            said = found_damage(flipped(whole, at))
            # A lost signature ends the list of files; with another length, a name is cut.
            shorter = name[: len(name) ^ 1] if at == header + 26 else name
            assert f"at byte {header}" in said or shorter in said, (at - header, said)


def test_every_byte_of_the_end_and_some_of_the_directory_are_found(whole: bytes, members: Members) -> None:
    start, last = max((start + len(members[name]), name) for name, _, start in places(members))
    chosen = random.Random(3)
    for at in [
        *range(start, start + 46),
        *range(len(whole) - 22, len(whole)),
        *chosen.sample(range(start, len(whole)), 99),
    ]:
        named = (
            f"the zip file's directory, at byte {at}" if at >= start + 4 else f"what follows {last}, at byte {start}"
        )
        assert found_damage(flipped(whole, at)) == f"changed since it was written: {named}"


def test_bytes_anywhere(whole: bytes) -> None:
    chosen = random.Random(4)
    for _ in range(500):
        assert found_damage(flipped(whole, chosen.randrange(4, len(whole)), 1 << chosen.randrange(8)))


def test_cut_and_extended_files(whole: bytes) -> None:
    chosen = random.Random(5)
    for length in [*chosen.sample(range(4, len(whole)), 60), len(whole) - 1]:
        assert found_damage(whole[:length])
    assert found_damage(whole + b"\0").endswith(f"what follows the zip file's end, at byte {len(whole)}")
    assert found_damage(whole + whole)
    middle = len(whole) // 2
    assert found_damage(whole[:middle] + b"\0" + whole[middle:])
    assert found_damage(whole[:middle] + whole[middle + 1 :])


# ---- Files that somebody made with intent ----


def local(name: bytes, content: bytes, size: int | None = None) -> bytes:
    """A member whose header says whatever is wanted."""
    size = len(content) if size is None else size
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, size, size, len(name), 0) + name + content


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/../../x", "a//b", "a\\b", "C:x", "", ".hidden", "a/", "a\0b", "é", "a b", "x" * 201],
)
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    archive = read_archive(local(name.encode(), b"content"))
    assert archive.members == {}
    assert archive.damage == ("a file whose name is not allowed, at byte 0",)
    with pytest.raises(EdgeError, match="cannot be the name of a file in a certificate"):
        write_archive({name: b""})


def test_sizes_that_are_not_there_are_refused() -> None:
    archive = read_archive(local(b"a", b"123", 0xFFFFFFFF))
    assert archive.damage == ("a, which is cut short, at byte 0",)
    assert read_archive(b"PK\3\4").damage == ("a header that is cut short, at byte 0",)


def test_many_files_and_two_of_a_name_are_refused() -> None:
    many = b"".join(local(b"n%d" % i, b"") for i in range(MAX_MEMBERS + 5))
    assert len(read_archive(many).members) == MAX_MEMBERS
    assert read_archive(many).damage
    twice = read_archive(local(b"a", b"") + local(b"a", b"x"))
    assert twice.damage == ("a second file a, at byte 31",)
    with pytest.raises(EdgeError, match="name fewer samples"):
        write_archive({f"n{i}": b"" for i in range(MAX_MEMBERS + 1)})


def test_a_zip_bomb_is_not_unpacked(members: Members) -> None:
    """64 MiB of zeros in 64 KiB: a compressed member is taken for damage, as its bytes are not what they were."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CERTIFICATE, bytes(64 << 20))
    bomb = read_archive(file.getvalue())
    assert bomb.damage and sum(map(len, bomb.members.values())) < 1 << 17
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert found_damage(file.getvalue())


def test_another_form_of_the_same_zip_is_told(members: Members) -> None:
    """The standard library's own, uncompressed: all files are right, but it is not the file that was signed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1999, 1, 1, 0, 0, 0)), content)
    assert "the header of certificate.json, at byte 13 (13 of it)" in found_damage(file.getvalue())
