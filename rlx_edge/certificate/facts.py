"""certificate.json: what was compared, on what, by what, and the hashes of all files beside it.

Read as if an enemy had written it: every key by name and type, none besides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rlx_edge.device.tables import Table
from rlx_edge.errors import DeviceError

SCHEMA = "rlx-edge certificate 1"
CERTIFICATE, CHECKSUM = "certificate.json", "certificate.sha256"
NO_UID = "none in the emulator"
UNKNOWN_UID = "not told by this firmware"
UNREADABLE_UID = "cannot be read"
MAX_BYTES = 4 << 20
"""Of certificate.json: some thousands of tensors and files. As Python objects it takes twenty times that."""
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Where:
    """The board. `device` is the name that its firmware gave; `image_crc32` is over the `image_bytes` of flash that the
    device summed up itself, both 0 where it did not."""

    board: str
    title: str
    core: str
    emulated: bool
    hardware_tested: bool
    chip_uid: str
    device: str
    image_bytes: int
    image_crc32: int


@dataclass(frozen=True)
class StoredTensor:
    """An input or an output of all samples: the .npy file in the certificate, [samples, *shape]."""

    tensor: str
    file: str


@dataclass(frozen=True)
class ComparedTensor:
    """A tensor that was compared: the SHA-256 of the device's bytes, sample after sample, and how many these were."""

    tensor: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class FileHash:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Certificate:
    """All of certificate.json. `models` are those of the firmware, `model` the one that was compared, by `engines`, on
    `samples` inputs. `layers` says that every tensor was asked for; `not_compared` names those of the graph that were
    not compared all the same. `tools` are versions, for people to read."""

    statement: str
    model: str
    model_hash: str
    models: tuple[str, ...]
    where: Where
    tools: Mapping[str, str]
    engines: tuple[str, ...]
    layers: bool
    samples: int
    compared_bytes: int
    inputs: tuple[StoredTensor, ...]
    outputs: tuple[StoredTensor, ...]
    tensors: tuple[ComparedTensor, ...]
    not_compared: tuple[str, ...]
    files: Mapping[str, FileHash]


def statement(samples: int) -> str:
    """What a certificate says of these samples, and of no others."""
    return f"equal on {'this 1 input' if samples == 1 else f'these {samples} inputs'}"


def certificate_json(certificate: Certificate) -> bytes:
    """The same bytes for the same facts."""
    return (json.dumps({"schema": SCHEMA, **asdict(certificate)}, indent=1) + "\n").encode()


def read_certificate(content: bytes) -> Certificate:
    """What the file says. Raises DeviceError, in one line, where it is not as `certificate_json` writes it."""
    if len(content) > MAX_BYTES:
        raise DeviceError(f"{CERTIFICATE}: has {len(content):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"{CERTIFICATE}: is no JSON that can be read") from error
    if not isinstance(values, dict):
        raise DeviceError(f"{CERTIFICATE}: is no JSON object")
    table = Table(values, CERTIFICATE)
    if table.text("schema") != SCHEMA:
        raise DeviceError(
            f"{CERTIFICATE}: is of another version ({table.text('schema')}); this rlx-edge reads {SCHEMA}"
        )
    found = Certificate(
        statement=table.text("statement"),
        model=table.text("model"),
        model_hash=table.text("model_hash"),
        models=table.texts("models"),
        where=_where(table.table("where")),
        tools=_texts(table.table("tools")),
        engines=table.texts("engines"),
        layers=table.flag("layers"),
        samples=table.number("samples", low=1),
        compared_bytes=table.number("compared_bytes", low=1),
        inputs=tuple(_stored(row) for row in table.rows("inputs")),
        outputs=tuple(_stored(row) for row in table.rows("outputs")),
        tensors=tuple(_compared(row) for row in table.rows("tensors")),
        not_compared=table.texts("not_compared"),
        files={name: _file(entry) for name, entry in table.tables("files").items()},
    )
    table.done()
    return found


def _where(table: Table) -> Where:
    found = Where(
        board=table.text("board"),
        title=table.text("title"),
        core=table.text("core"),
        emulated=table.flag("emulated"),
        hardware_tested=table.flag("hardware_tested"),
        chip_uid=table.text("chip_uid"),
        device=table.text("device"),
        image_bytes=table.number("image_bytes"),
        image_crc32=table.number("image_crc32"),
    )
    table.done()
    return found


def _texts(table: Table) -> dict[str, str]:
    return {name: table.text(name) for name in table.names()}


def _stored(table: Table) -> StoredTensor:
    found = StoredTensor(table.text("tensor"), table.text("file"))
    table.done()
    return found


def _compared(table: Table) -> ComparedTensor:
    found = ComparedTensor(table.text("tensor"), table.number("bytes"), _hash(table))
    table.done()
    return found


def _file(table: Table) -> FileHash:
    found = FileHash(table.number("bytes"), _hash(table))
    table.done()
    return found


def _hash(table: Table) -> str:
    text = table.text("sha256")
    if not _HASH.fullmatch(text):
        raise DeviceError(f"{CERTIFICATE}: sha256 must be 64 hexadecimal digits, found {text[:80]!r}")
    return text
