"""Issues a certificate: runs parity, and stores all that it rests on."""

from __future__ import annotations

import hashlib
import io
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import api
from rlx_edge.certificate.archive import write_archive
from rlx_edge.certificate.facts import (
    CERTIFICATE,
    CHECKSUM,
    NO_UID,
    UNKNOWN_UID,
    UNREADABLE_UID,
    Certificate,
    FileHash,
    StoredTensor,
    Where,
    certificate_json,
    statement,
)
from rlx_edge.certificate.record import Record
from rlx_edge.cgen.bundle import BundledModel, bundle_files, is_bundle, kernels_id
from rlx_edge.cgen.compile_host import host_compiler_version
from rlx_edge.cgen.emit import short_names
from rlx_edge.data import Data
from rlx_edge.device.boards import Board
from rlx_edge.device.build import BUILD_FILE, BUNDLE, Firmware, generated_files
from rlx_edge.device.doctor import check_emulator
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import FaultError, NoAnswerError, RestartedError
from rlx_edge.device.parity import ParityResult
from rlx_edge.device.protocol import Hello
from rlx_edge.device.scope import Scope
from rlx_edge.engines import Progress
from rlx_edge.errors import DeviceError, EdgeError
from rlx_edge.ir.ops import Leaf
from rlx_edge.resources import firmware_dir

Array = npt.NDArray[Any]
BUILT = ("firmware.elf", "firmware.bin", BUILD_FILE)
"""What is kept of a build, beside the files that were generated for it. Not its map, which names files of the computer
that it was built on."""


@dataclass(frozen=True)
class _Run:
    """A comparison: what came of it, what the device gave, and what it was given."""

    result: ParityResult
    record: Record
    inputs: Mapping[str, Array]
    layers: bool


def certify(
    folder: Path,
    data: Data,
    *,
    model: str | None = None,
    port: str | None = None,
    emulate: bool = False,
    layers: bool = False,
    progress: Progress | None = None,
) -> tuple[ParityResult, bytes | None]:
    """Parity as `api.parity` has it, and the certificate of it, or None when the device is not exact.

    Raises what `api.parity` raises, and EdgeError for a bundle, which says nothing of a board.
    """
    if is_bundle(folder):
        raise EdgeError(f"{folder}: is a bundle; a certificate is issued for a build (rlx-edge build)")
    firmware, board, models = api.open_build(folder)
    bundled = api.pick(models, model)
    names = short_names(bundled.plan.all_tensors)
    inputs = {names[name]: np.ascontiguousarray(values) for name, values in data.inputs.items()}
    record = Record()
    on = api.port_or_emulator(board, port, emulate)
    emulated = on is None or board.purely_emulated
    with api.connect(firmware, board, on, emulate=emulate) as link:
        result = api.compare_on(link, bundled, models, firmware, inputs, Scope(layers), progress, record.add)
        hello = link.device
        if not hello.image_bytes:
            raise DeviceError(
                f"{link.port}: this firmware ({hello.device}) does not tell its image in flash, so that nobody knows "
                "whether it is the build's: a certificate needs a device that was flashed with the build"
            )
        uid = NO_UID if emulated else _uid(link)
    if not result.exact:
        return result, None
    run = _Run(result, record, inputs, layers)
    tools = _tools(firmware, emulator=on is None)
    certificate = _certificate(bundled, firmware, _where(board, hello, emulated, uid), tools, run)
    files = {
        **_files(folder, board, firmware.models),
        **_arrays("inputs", inputs),
        **_arrays("outputs", record.stacked_outputs()),
    }
    return result, sealed(certificate, files)


def sealed(certificate: Certificate, files: Mapping[str, bytes]) -> bytes:
    """The zip file: the facts with all hashes, a checksum of them as `sha256sum -c` reads it, and the files."""
    hashes = {name: FileHash(len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    content = certificate_json(replace(certificate, files=hashes))
    checksum = f"{hashlib.sha256(content).hexdigest()}  {CERTIFICATE}\n".encode()
    return write_archive({CERTIFICATE: content, CHECKSUM: checksum, **files})


def _certificate(
    bundled: BundledModel, firmware: Firmware, where: Where, tools: Mapping[str, str], run: _Run
) -> Certificate:
    """All but the hashes of files."""
    compared = {row.tensor for row in run.result.rows} & {tensor.tensor for tensor in run.record.tensors}
    return Certificate(
        statement=statement(run.result.inputs),
        model=bundled.name,
        model_hash=bundled.hash,
        models=firmware.models,
        where=where,
        tools=tools,
        engines=tuple(dict.fromkeys(row.engine for row in run.result.rows)),
        layers=run.layers,
        samples=run.result.inputs,
        compared_bytes=run.result.compared_bytes,
        inputs=_stored("inputs", run.inputs),
        outputs=_stored("outputs", run.record.outputs),
        tensors=tuple(tensor for tensor in run.record.tensors if tensor.tensor in compared),
        not_compared=_not_compared(bundled, compared),
        files={},
    )


def _not_compared(bundled: BundledModel, compared: Collection[str]) -> tuple[str, ...]:
    """What the model computes on the way, by the names of its graph: all but outputs, unless all layers were compared;
    then what no engine knows."""
    names = short_names(bundled.plan.all_tensors)
    nodes = (node.name for node in bundled.plan.graph.nodes if not isinstance(node.op, Leaf))
    return tuple(name for name in nodes if names.get(name) not in compared)


def _uid(link: Link) -> str:
    """The chip's unique number. An emulator behind the port may not have that memory, which is a fault."""
    try:
        return link.uid() or UNKNOWN_UID
    except (FaultError, RestartedError, NoAnswerError):
        return UNREADABLE_UID


def _where(board: Board, hello: Hello, emulated: bool, uid: str) -> Where:
    """On a port, a board that exists as hardware counts as one: what is behind a port cannot be seen."""
    return Where(
        board=board.name,
        title=board.title,
        core=board.chip.cpu,
        emulated=emulated,
        hardware_tested=board.hardware_tested,
        chip_uid=uid,
        device=hello.device,
        image_bytes=hello.image_bytes,
        image_crc32=hello.image_crc,
    )


def _tools(firmware: Firmware, emulator: bool) -> dict[str, str]:
    found = {
        "rlx-edge": version("rlx-edge"),
        "kernels": kernels_id(),
        "firmware sources": firmware_sources(),
        "Arm compiler": firmware.compiler,
        "host compiler": host_compiler_version(),
        "Python": platform.python_version(),
        "numpy": np.__version__,
    }
    return found | ({"emulator": check_emulator().detail} if emulator else {})


def firmware_sources() -> str:
    """A hash of all C that is not in the bundle: start-up, drivers, link and application of this rlx-edge."""
    digest = hashlib.sha256()
    for file in sorted(firmware_dir().rglob("*.[ch]")):
        digest.update(file.relative_to(firmware_dir()).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(folder: Path, board: Board, models: Sequence[str]) -> dict[str, bytes]:
    """The bundle and the build, by name in the certificate."""
    bundle = {f"bundle/{name}": (folder / BUNDLE / name).read_bytes() for name in bundle_files(folder / BUNDLE)}
    return {
        **bundle,
        **{f"build/{name}": (folder / name).read_bytes() for name in (*BUILT, *generated_files(board, models))},
    }


def _stored(kind: str, arrays: Mapping[str, object]) -> tuple[StoredTensor, ...]:
    return tuple(StoredTensor(name, f"{kind}/{index}.npy") for index, name in enumerate(arrays))


def _arrays(kind: str, arrays: Mapping[str, Array]) -> dict[str, bytes]:
    return {stored.file: npy_bytes(arrays[stored.tensor]) for stored in _stored(kind, arrays)}


def npy_bytes(values: Array) -> bytes:
    """An .npy file of the array; the same bytes for the same array."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(values), version=(1, 0), allow_pickle=False)
    return file.getvalue()
