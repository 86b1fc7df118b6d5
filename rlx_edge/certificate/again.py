"""Does again what a certificate rests on: generates its C, computes its tensors, builds its image, runs it."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import api
from rlx_edge.certificate.checked import Checked, listed
from rlx_edge.certificate.facts import Certificate, ComparedTensor
from rlx_edge.certificate.issue import firmware_sources, npy_bytes
from rlx_edge.certificate.record import Record
from rlx_edge.cgen.bundle import BundledModel, bundle_files, generate, kernels_id
from rlx_edge.cgen.emit import short_names
from rlx_edge.cgen.options import Options
from rlx_edge.cgen.plan import Tensor
from rlx_edge.cgen.target import get_target
from rlx_edge.cgen.text import identifier
from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.compare import Engine
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.firmware import ExpectedFirmware
from rlx_edge.device.link import Link
from rlx_edge.device.parity import run_parity
from rlx_edge.device.scope import Scope
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.formats.rlx import load_rlx
from rlx_edge.ir import Graph
from rlx_edge.quant.quantize import Progress as StageProgress

Array = npt.NDArray[Any]


MAX_TENSOR_BYTES = 256 << 20
"""Of all tensors of a model, which a run holds at once: far more than any microcontroller has."""


class Again:
    """All that is done again, in a folder of its own."""

    def __init__(
        self, certificate: Certificate, members: Mapping[str, bytes], folder: Path, progress: StageProgress | None
    ) -> None:
        self._certificate = certificate
        self._members = members
        self._folder = folder
        self._progress = progress
        self._models: tuple[BundledModel, ...] = ()
        self._inputs: dict[str, Array] = {}

    @classmethod
    @contextmanager
    def opened(
        cls, certificate: Certificate, members: Mapping[str, bytes], progress: StageProgress | None
    ) -> Iterator[Again]:
        with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
            yield cls(certificate, members, Path(scratch), progress)

    def recomputed(self) -> list[Checked]:
        """The C generated anew, and every tensor computed anew by each engine from the stored inputs."""
        try:
            self._models = self._generate()
            plan = self._model.plan
            self._inputs = self._stored("inputs", plan.tensors[: len(plan.graph.inputs)])
            self._stored("outputs", [plan.tensors[index] for index in plan.outputs])
            checks = [self._generated()]
            for name, engine in api.engines(self._model).items():
                checks.append(Checked(f"recomputed by {name}", *self._compared(self._computed(name, engine))))
        except ToolError:
            raise
        except EdgeError as error:
            self._models = ()
            said = str(error).replace(f"{self._folder}/", "")
            return [Checked("recomputed", False, f"cannot be computed again: {said}")]
        return checks

    @property
    def _model(self) -> BundledModel:
        return next(model for model in self._models if model.name == self._certificate.model)

    def _generate(self) -> tuple[BundledModel, ...]:
        """A bundle by this rlx-edge, from the models in the certificate."""
        graphs: dict[str, Graph] = {}
        for name in map(identifier, self._certificate.models):
            content = self._members.get(f"bundle/{name}/{name}.rlx")
            if content is None:
                raise EdgeError(f"there is no bundle/{name}/{name}.rlx")
            path = self._folder / f"{name}.rlx"
            path.write_bytes(content)
            graphs[name] = _bounded(load_rlx(path))
        metadata = next(iter(graphs.values())).metadata
        target = get_target(metadata.get("target", "portable"))
        with_link = any(name.startswith("bundle/link/") for name in self._members)
        return generate(graphs, self._folder / "bundle", target, with_link, Options.of_metadata(metadata))

    def _stored(self, kind: str, tensors: Sequence[Tensor]) -> dict[str, Array]:
        """Inputs or outputs [samples, *shape] under the device's names. Their files must be those that numpy writes for
        what the model has, so that nothing of an .npy header is believed."""
        names, samples = short_names(self._model.plan.all_tensors), self._certificate.samples
        rows = self._certificate.inputs if kind == "inputs" else self._certificate.outputs
        stored = {row.tensor: self._members.get(row.file, b"") for row in rows}
        found = {}
        for tensor in tensors:
            content, shape = stored.get(names[tensor.name], b""), tensor.type.shape
            size = samples * tensor.type.bytes
            raw = np.frombuffer(content[max(0, len(content) - size) :], np.uint8)
            if len(raw) != size:
                raise EdgeError(f"{tensor.name!r} of the {kind} is not there for {samples} samples")
            values = raw.view(tensor.type.dtype.numpy).reshape(samples, *shape)
            without_batch = values.reshape(samples, *shape[1:]) if shape[:1] == (1,) else values
            if content not in (npy_bytes(values), npy_bytes(without_batch)):
                raise EdgeError(f"{tensor.name!r} of the {kind} is not stored as {samples} times {tensor.type}")
            found[names[tensor.name]] = values
        return found

    def _generated(self) -> Checked:
        """Whether the C is what this rlx-edge makes of the model."""
        made = {f"bundle/{name}": self._folder / "bundle" / name for name in bundle_files(self._folder / "bundle")}
        there = {name for name in self._members if name.startswith("bundle/")}
        parted = sorted(there ^ made.keys())
        parted += sorted(name for name in there & made.keys() if made[name].read_bytes() != self._members[name])
        parted += ["model_hash"] if self._model.hash != self._certificate.model_hash else []
        if not parted:
            return Checked("generated again", True, f"{len(made)} files of C and its model have the same bytes")
        kernels = self._certificate.tools.get("kernels", "")
        if kernels != kernels_id():
            used = self._certificate.tools.get("rlx-edge", "?")
            detail = f"the C is of another rlx-edge ({used}, kernels {kernels}); this one has kernels {kernels_id()}"
            return Checked("generated again", None, detail)
        return Checked("generated again", False, f"differs from what this rlx-edge makes: {listed(tuple(parted))}")

    def _computed(self, engine_name: str, engine: Engine) -> tuple[ComparedTensor, ...]:
        record = Record()
        total = self._certificate.samples
        for index in range(total):
            tensors = engine({name: values[index] for name, values in self._inputs.items()})
            for name, values in tensors.items():
                record.add_bytes(name, np.ascontiguousarray(values).tobytes())
            if self._progress is not None:
                self._progress(engine_name, index + 1, total)
        return record.tensors

    def _compared(self, found: tuple[ComparedTensor, ...]) -> tuple[bool, str]:
        """Whether all tensors of the certificate are among those found."""
        by_name = {tensor.tensor: tensor for tensor in found}
        wrong = tuple(t.tensor for t in self._certificate.tensors if by_name.get(t.tensor) != t)
        if wrong:
            return False, f"other bytes in {listed(wrong)}"
        count = len(self._certificate.tensors)
        return True, f"{count} tensors of {self._certificate.samples} inputs: the bytes that the device gave"

    def rebuilt(self) -> Checked:
        """The image, built anew from C that this rlx-edge generated."""
        if not self._models:
            return Checked("rebuilt", False, "there is no C to build from")
        models, out = list(self._certificate.models), self._folder / "build"
        try:
            board = load_board(self._certificate.where.board)
        except EdgeError as error:
            return Checked("rebuilt", False, str(error))
        firmware = build_firmware(self._folder / "bundle", models, board, out, objects=self._folder / "objects")
        names = [name.removeprefix("build/") for name in self._members if name.startswith("build/")]
        parted = [
            name
            for name in names
            if not (out / name).is_file() or (out / name).read_bytes() != self._members[f"build/{name}"]
        ]
        if not parted:
            return Checked("rebuilt", True, f"{', '.join(names)}: the same bytes, by {firmware.compiler}")
        tools = self._certificate.tools
        reasons = [
            f"{what} is {here!r} here, {tools.get(what)!r} there"
            for what, here in (("Arm compiler", firmware.compiler), ("firmware sources", firmware_sources()[:12]))
            if not tools.get(what, "").startswith(here)
        ]
        return Checked(
            "rebuilt", False, f"other bytes in {listed(parted)}; {'; '.join(reasons) or 'by the same tools'}"
        )

    def rerun(self, port: str | None) -> Checked:
        """The stored inputs, on a device on `port`, or on the certificate's image in the emulator."""
        name = "rerun" if port is None else f"rerun on {port}"
        if not self._models:
            return Checked(name, False, "there is no model to compare with")
        record, shown = Record(), self._progress
        expected = ExpectedFirmware(
            {self._certificate.model: self._certificate.model_hash},
            zlib.crc32(self._members.get("build/firmware.bin", b"")),
        )
        try:
            with self._link(port) as link:
                result = run_parity(
                    link,
                    self._certificate.model,
                    self._inputs,
                    api.engines(self._model),
                    scope=Scope(self._certificate.layers),
                    firmware=expected,
                    progress=None if shown is None else lambda done, total: shown("run", done, total),
                    observe=record.add,
                )
                if not link.device.image_bytes:
                    return Checked(name, False, "the device does not tell which image it has in flash")
        except ToolError:
            raise
        except EdgeError as error:
            return Checked(name, False, str(error))
        same, detail = self._compared(record.tensors)
        return Checked(name, same and result.exact, f"{result.board}{'' if port else ' in the emulator'}: {detail}")

    @contextmanager
    def _link(self, port: str | None) -> Iterator[Link]:
        board = load_board(self._certificate.where.board)
        if port is not None:
            with Link.open(port, board.baud, board=board) as link:
                yield link
            return
        elf = self._folder / "certificate.elf"
        elf.write_bytes(self._members.get("build/firmware.elf", b""))
        with Emulator(board, elf, semihosting=False) as emulator, Link.open(emulator.port, board.baud) as link:
            yield link


def _bounded(graph: Graph) -> Graph:
    """The graph, unless a small file asks for much memory, or for work without end."""
    if sum(node.type.bytes for node in graph.nodes) > MAX_TENSOR_BYTES:
        raise EdgeError(f"{graph.name!r} has more than {MAX_TENSOR_BYTES:,} bytes of tensors")
    nested = next((node for node in graph.nodes if node.op.bodies), None)
    if nested is not None:
        raise EdgeError(f"{graph.name!r}: {nested} has nested graphs, of which no code is generated")
    if not any(node.type.bytes for node in graph.inputs):
        raise EdgeError(f"{graph.name!r} has no input, so there is nothing to compute it from")
    return graph
