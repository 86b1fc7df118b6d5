"""What can be checked of a certificate, on any computer: that nothing was changed, and that it comes out again.

Nothing in a certificate is executed: reference and host C run code that this rlx-edge generates from the model. Only
`rerun` in the emulator starts the certificate's image, without semihosting, so that it cannot reach files here.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.certificate.again import Again
from rlx_edge.certificate.archive import MAX_BYTES, Archive, read_archive
from rlx_edge.certificate.checked import Checked, listed
from rlx_edge.certificate.facts import CERTIFICATE, CHECKSUM, Certificate, read_certificate, statement
from rlx_edge.certificate.issue import BUILT
from rlx_edge.device.build import BUILD_FILE
from rlx_edge.errors import EdgeError
from rlx_edge.quant.quantize import Progress as StageProgress


@dataclass(frozen=True)
class Verdict:
    """All checks of a certificate; `certificate` is None where it could not be read."""

    certificate: Certificate | None
    checks: tuple[Checked, ...]

    @property
    def good(self) -> bool:
        return all(check.holds is not False for check in self.checks)


def read_file(path: Path) -> Archive:
    """The archive of a file. Raises EdgeError for one that is missing, too large, or no certificate."""
    try:
        if not path.is_file():
            raise EdgeError(f"{path}: there is no such file")
        with path.open("rb") as file:
            return read_archive(file.read(MAX_BYTES + (2 << 20)))
    except OSError as error:
        raise EdgeError(f"{path}: cannot be read: {error.strerror}") from error
    except EdgeError as error:
        raise EdgeError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error


def verify(
    archive: Archive,
    *,
    rebuild: bool = False,
    rerun: bool = False,
    port: str | None = None,
    progress: StageProgress | None = None,
) -> Verdict:
    """Checks what is asked for. What fails, or cannot be done with this certificate, is a check that does not hold.

    Raises ToolError where this computer lacks a compiler or the emulator.
    """
    damage = archive.damage
    if CERTIFICATE not in damage and CHECKSUM not in damage:  # else the hashes that it holds say nothing
        damage = tuple(dict.fromkeys((*damage, *_wrong_files(archive.members))))
    if damage:
        return Verdict(None, (Checked("intact", False, f"changed since it was written: {listed(damage)}"),))
    try:
        certificate = read_certificate(archive.members[CERTIFICATE])
        checks = [Checked("intact", True, f"{len(certificate.files)} files are as their hashes say")]
        problem = _contradiction(certificate, archive.members)
    except EdgeError as error:
        return Verdict(None, (Checked("intact", False, str(error)),))
    checks.append(Checked("consistent", not problem, problem or "statement, image, outputs and tensors fit together"))
    if problem:
        return Verdict(certificate, tuple(checks))
    with Again.opened(certificate, archive.members, progress) as again:
        checks += again.recomputed()
        checks.append(again.rebuilt() if rebuild else Checked("rebuilt", None, "not asked for (--rebuild)"))
        wanted = rerun or port is not None
        checks.append(again.rerun(port) if wanted else Checked("rerun", None, "not asked for (--rerun, or --port)"))
    return Verdict(certificate, tuple(checks))


def _wrong_files(members: Mapping[str, bytes]) -> Iterator[str]:
    """Files that are not as certificate.json has them, and that one where it is not as its checksum has it."""
    if CERTIFICATE not in members or CHECKSUM not in members:
        yield f"there is no {CERTIFICATE if CERTIFICATE not in members else CHECKSUM}"
        return
    content = members[CERTIFICATE]
    if members[CHECKSUM] != f"{hashlib.sha256(content).hexdigest()}  {CERTIFICATE}\n".encode():
        yield f"{CERTIFICATE} (or {CHECKSUM})"
        return
    try:
        listed = read_certificate(content).files
    except EdgeError:
        return  # told by the caller, which reads it again
    there = members.keys() - {CERTIFICATE, CHECKSUM}
    yield from (f"{name} is missing" for name in sorted(listed.keys() - there))
    yield from (f"{name} does not belong there" for name in sorted(there - listed.keys()))
    for name in sorted(listed.keys() & there):
        found = members[name]
        if (len(found), hashlib.sha256(found).hexdigest()) != (listed[name].bytes, listed[name].sha256):
            yield name


def _contradiction(certificate: Certificate, members: Mapping[str, bytes]) -> str:
    """What in it cannot be true at once, or nothing."""
    image = members.get("build/firmware.bin", b"")
    where = certificate.where
    sums = {tensor.tensor: tensor for tensor in certificate.tensors}
    lacking = [name for name in BUILT if f"build/{name}" not in members]
    total = sum(tensor.bytes for tensor in certificate.tensors) * len(certificate.engines)
    if lacking:
        return f"build/{lacking[0]} is not in it"
    if certificate.statement != statement(certificate.samples):
        return f"it says {certificate.statement!r} of {certificate.samples} inputs"
    if (where.image_bytes, where.image_crc32) != (len(image), zlib.crc32(image)):
        return "the device ran another image than build/firmware.bin"
    if problem := _other_build(certificate, members):
        return problem
    if total != certificate.compared_bytes or not certificate.engines:
        return f"compared_bytes is {certificate.compared_bytes}, the tensors and engines make {total}"
    if certificate.model not in certificate.models or len(sums) != len(certificate.tensors):
        return "its models or tensors are listed wrongly"
    for stored in certificate.outputs:
        given = members.get(stored.file, b"")
        tensor = sums.get(stored.tensor)
        if tensor is None or hashlib.sha256(given[len(given) - tensor.bytes :]).hexdigest() != tensor.sha256:
            return f"{stored.file} is not what was compared of {stored.tensor!r}"
    return ""


def _other_build(certificate: Certificate, members: Mapping[str, bytes]) -> str:
    """Where build.json tells of another build than the one that was run, or nothing."""
    try:
        told = json.loads(members[f"build/{BUILD_FILE}"])
    except (ValueError, RecursionError):
        told = None
    expected = {
        "board": certificate.where.board,
        "models": list(certificate.models),
        "image_sha256": hashlib.sha256(members["build/firmware.bin"]).hexdigest(),
        "compiler": certificate.tools.get("Arm compiler"),
    }
    parted = [key for key in expected if not isinstance(told, dict) or told.get(key) != expected[key]]
    return f"build/{BUILD_FILE} is of another build: its {parted[0]} differs" if parted else ""
