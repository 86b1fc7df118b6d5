"""The computer's end of the serial protocol: find the models on a device, send inputs, run, read every tensor.

with Link.open("/dev/ttyACM0") as link:
    link.hello()
    kws = link.model("kws")
    link.write_inputs(kws, {"input": samples[0]})
    link.run(kws)
    scores = link.read_outputs(kws)
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlx_edge.device import protocol, transfers
from rlx_edge.device.boards import Board
from rlx_edge.device.frames import Frame
from rlx_edge.device.link_errors import NoAnswerError, RefusedError, RestartedError
from rlx_edge.device.ports import open_port
from rlx_edge.device.protocol import Command, Hello, LayerInfo, ModelInfo, TensorInfo
from rlx_edge.device.session import Session
from rlx_edge.device.setup import failed_step
from rlx_edge.errors import DataError, DeviceError

Array = npt.NDArray[Any]
T = TypeVar("T")

_WRITE_HEADER = struct.Struct("<BBHI")
_READ_HEADER = struct.Struct("<BBHIH")
_STEP_HEADER = struct.Struct("<BBHI")
_ROW_HEADER = struct.Struct("<BBHII")
_IMAGE_HEADER = struct.Struct("<IH")
_WRITE_LAST = 1
_STEP_STACK = 1
_READ_AS_IT_IS = 1

RESET_REASONS = {1: "power-on", 2: "the reset pin", 3: "software", 4: "the watchdog", 5: "a fault"}


@dataclass(frozen=True)
class StepResult:
    """What one step cost: counter ticks (0 without a counter), and bytes of stack that it used and left, where they
    were measured."""

    ticks: int
    stack_bytes: int
    stack_left: int


@dataclass(frozen=True)
class StepProfile:
    """One step of a profile: what it does and what it cost. `stack_left` is None where the firmware cannot measure."""

    layer: LayerInfo
    ticks: int
    stack_bytes: int
    stack_left: int | None


def print_text(line: str) -> None:
    """Shows what the device printed outside the protocol."""
    print(f"device: {line}", file=sys.stderr)


class Link:
    """A conversation with one device. All methods raise DeviceError kinds (see link_errors), one line each."""

    def __init__(self, session: Session, board: Board | None = None) -> None:
        self._session = session
        self._board = board
        self._hello: Hello | None = None
        self._models: dict[int, ModelInfo] = {}
        self._begun: set[tuple[int, int]] = set()  # inputs (model, tensor) that may have bytes on the device

    @classmethod
    def open(
        cls,
        port: str,
        baud: int = 115200,
        *,
        timeout: float = 5.0,
        on_text: Callable[[str], None] = print_text,
        elf: Path | None = None,
        board: Board | None = None,
    ) -> Link:
        """Opens a port (a path, or a pyserial URL). `timeout` is how many seconds a silent device is given for one
        request; `on_text` gets lines that the device prints outside frames, cut when they are long or many; `elf`
        names the source lines of faults. `board`: the real one that is on this port, whose control lines are set as it
        wants them, and whose failed set-up is told. Raises DeviceError when the port is missing, in use or not
        permitted."""
        lines = {} if board is None else {"dtr": board.dtr, "rts": board.rts}
        session = Session(open_port(port, baud, **lines), port, baud, timeout=timeout, on_text=on_text)
        session.elf = elf
        return cls(session, board)

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the port."""
        self._session.close()

    @property
    def port(self) -> str:
        return self._session.name

    @property
    def repeats(self) -> int:
        """How many requests had to be sent again since the port was opened."""
        return self._session.repeats

    # ---- What there is ----------------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Opens a session: the device forgets inputs and runs of earlier ones. Returns what it says about itself."""
        reply = self._session.request(Command.HELLO, what="saying hello")
        version = protocol.hello_version(reply.payload)
        if version != protocol.PROTOCOL_VERSION:
            raise DeviceError(
                f"{self.port}: the firmware speaks protocol version {version}, this program version "
                f"{protocol.PROTOCOL_VERSION}: build and flash the firmware anew"
            )
        first = self._hello is None
        self._hello = self._parsed(lambda: protocol.read_hello(reply.payload))
        if first and self._board is not None and self._hello.setup_failed:
            self._session.tell(failed_step(self._board.setup, self._hello.setup_failed))
        self._session.opened(self._hello.boot_id, self._hello.max_payload, self._hello.ring_bytes)
        self._models.clear()
        self._begun.clear()
        return self._hello

    @property
    def device(self) -> Hello:
        """What the device said last; says hello first where that has not happened."""
        return self._hello if self._hello is not None else self.hello()

    def models(self) -> tuple[ModelInfo, ...]:
        """All models on the device, with their tensors."""
        return tuple(self._model(index) for index in range(self.device.model_count))

    def model(self, name: str) -> ModelInfo:
        """The model of that name."""
        for model in self.models():
            if model.name == name:
                return model
        names = ", ".join(model.name for model in self.models()) or "none"
        raise DeviceError(f"{self.port}: the device has no model {name!r}; it has: {names}")

    def layers(self, model: ModelInfo) -> tuple[LayerInfo, ...]:
        """What each step of a model does."""
        return tuple(self._layer(model, step) for step in range(model.steps))

    def _layer(self, model: ModelInfo, step: int) -> LayerInfo:
        payload = _STEP_HEADER.pack(model.index, 0, 0, step)
        reply = self._ask(Command.LAYER, payload, f"asking about step {step} of {model.name}")
        return self._parsed(lambda: protocol.read_layer(reply, step))

    def _model(self, index: int) -> ModelInfo:
        if index not in self._models:
            reply = self._ask(Command.MODEL, bytes([index]), f"asking about model {index}")
            info, count = self._parsed(lambda: protocol.read_model(reply, index))
            self._models[index] = replace(info, tensors=tuple(self._tensor(info, tensor) for tensor in range(count)))
        return self._models[index]

    def _tensor(self, model: ModelInfo, index: int) -> TensorInfo:
        payload = struct.pack("<BBH", model.index, 0, index)
        reply = self._ask(Command.TENSOR, payload, f"asking about tensor {index} of {model.name}")
        return self._parsed(lambda: protocol.read_tensor_info(reply, index))

    # ---- Runs -------------------------------------------------------------------------------------------------

    def clear(self, model: ModelInfo) -> None:
        """Forgets the model's inputs and clears its state tensors."""
        self._ask(Command.CLEAR, bytes([model.index]), f"clearing {model.name}")
        self._begun.clear()

    def write_inputs(self, model: ModelInfo, inputs: Mapping[str, Array]) -> None:
        """Sends all inputs of a run, by tensor name: arrays of the tensor's dtype and number of elements, any shape."""
        tensors = {tensor: _find(inputs, tensor, model) for tensor in model.inputs}
        for tensor, data in tensors.items():
            self.write_input(model, tensor, data)

    def write_input(self, model: ModelInfo, tensor: TensorInfo, data: Array) -> None:
        """Sends one input. A model with inputs of variable length takes fewer elements than the tensor has."""
        size = data.size * data.dtype.itemsize
        if data.dtype != tensor.dtype or (size != tensor.bytes and not (model.variable_input and size < tensor.bytes)):
            raise DataError(
                f"{model.name}: input {tensor.name!r} takes {tensor.dtype} of shape {tensor.shape}, "
                f"not {data.dtype} of shape {data.shape}"
            )
        raw = np.ascontiguousarray(data, dtype=tensor.dtype).tobytes()
        room = self.device.max_payload - _WRITE_HEADER.size

        def request(offset: int) -> bytes:
            part = raw[offset : offset + room]
            flags = _WRITE_LAST if offset + len(part) == len(raw) else 0
            return _WRITE_HEADER.pack(model.index, flags, tensor.index, offset) + part

        with self._restarts_explained():
            what = f"sending input {tensor.name!r} of {model.name}"
            fresh = (model.index, tensor.index) not in self._begun
            self._begun.add((model.index, tensor.index))
            transfers.write(self._session, request, room, len(raw), what, fresh=fresh)

    def run(self, model: ModelInfo) -> int:
        """Runs all steps that are left and uses up the inputs; returns the counter's ticks, 0 without a counter."""
        reply = self._ask(Command.RUN, bytes([model.index]), f"running {model.name}")
        self._begun.clear()
        return self._parsed(lambda: int(struct.unpack_from("<Q", reply)[0]))

    def step(self, model: ModelInfo, step: int, *, measure_stack: bool = False) -> StepResult:
        """Runs one step, which must be the next; the tensors that it completes can be read until the one after."""
        payload = _STEP_HEADER.pack(model.index, _STEP_STACK if measure_stack else 0, 0, step)
        reply = self._ask(Command.STEP, payload, f"running step {step} of {model.name}")
        self._begun.clear()
        return self._parsed(lambda: StepResult(*struct.unpack_from("<QII", reply)))

    def step_rows(self, model: ModelInfo, layer: LayerInfo) -> dict[int, Array]:
        """Runs a stage, which must be the next step, row by row. Returns the tensors of which only some rows exist at a
        time, by index: in their shape, or flat when only their first rows are ever made."""
        tensors = {tensor.index: tensor for tensor in model.tensors if tensor.rows and tensor.step == layer.step}
        made = dict.fromkeys(tensors, b"")
        for row in range(layer.rows):
            payload = _ROW_HEADER.pack(model.index, 0, 0, layer.step, row)
            reply = self._ask(Command.ROW, payload, f"running row {row} of step {layer.step} of {model.name}")
            y, index = self._parsed(partial(struct.unpack, "<IH", reply))
            if index in tensors:
                size = tensors[index].bytes // tensors[index].rows
                if y * size != len(made[index]) or y >= tensors[index].rows:
                    raise DeviceError(f"{self.port}: the device made row {y} of {tensors[index].name!r} out of order")
                made[index] += self._read(model, tensors[index], y * size, size)
        self._begun.clear()
        return {index: _shaped(tensor, made[index]) for index, tensor in tensors.items()}

    def read_tensor(self, model: ModelInfo, tensor: TensorInfo, *, as_it_is: bool = False) -> Array:
        """A tensor's elements, in its shape. It must have just been completed or be an output of a finished run, else
        RefusedError (NOT_READY) is raised; with `as_it_is` whatever lies in its place is returned."""
        raw = self._read(model, tensor, 0, tensor.bytes, _READ_AS_IT_IS if as_it_is else 0)
        return _shaped(tensor, raw)

    def _read(self, model: ModelInfo, tensor: TensorInfo, first: int, size: int, flags: int = 0) -> bytes:
        def request(offset: int, part: int) -> bytes:
            return _READ_HEADER.pack(model.index, flags, tensor.index, first + offset, part)

        what = f"reading tensor {tensor.name!r} of {model.name}"
        with self._restarts_explained():
            return transfers.read(self._session, Command.READ, request, size, what)

    def read_image(self, offset: int, size: int) -> bytes:
        """Bytes of the firmware as they lie in the device's flash, from `offset` into its image."""

        def request(at: int, part: int) -> bytes:
            return _IMAGE_HEADER.pack(offset + at, part)

        with self._restarts_explained():
            return transfers.read(self._session, Command.IMAGE, request, size, "reading the firmware in flash")

    def read_outputs(self, model: ModelInfo) -> dict[str, Array]:
        """All outputs of a run that ended, by tensor name, in the model's order."""
        return {tensor.name: self.read_tensor(model, tensor) for tensor in model.outputs}

    def profile(self, model: ModelInfo, inputs: Mapping[str, Array] | None = None) -> tuple[StepProfile, ...]:
        """Runs a model step by step (on zeros unless inputs are given) and returns what each step cost. `stack_bytes`
        is 0 where the firmware cannot measure it."""
        layers = self.layers(model)
        zeros = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in model.inputs}
        self.clear(model)
        self.write_inputs(model, inputs if inputs is not None else zeros)
        measure = True
        steps = []
        for layer in layers:
            try:
                cost = self.step(model, layer.step, measure_stack=measure)
            except RefusedError as refusal:
                if refusal.status is not protocol.Status.UNSUPPORTED:
                    raise
                measure = False
                cost = self.step(model, layer.step)
            steps.append(StepProfile(layer, cost.ticks, cost.stack_bytes, cost.stack_left if measure else None))
        return tuple(steps)

    # ---- The device -------------------------------------------------------------------------------------------

    def reset(self) -> Hello:
        """Restarts the device and says hello to it again."""
        before = self.device.boot_id
        # It may restart before its reply is out; the new boot id tells below.
        with contextlib.suppress(NoAnswerError, RestartedError):
            self._session.request(Command.RESET, what="resetting the device")
        after = self.hello()
        if after.boot_id == before and before != 0:
            raise DeviceError(f"{self.port}: the device was told to reset, but did not")
        return after

    def uid(self) -> str | None:
        """The chip's unique number as hexadecimal digits, in the order of memory; None where the firmware does not tell
        it."""
        try:
            return self._ask(Command.UID, b"", "asking for the chip's unique number").hex()
        except RefusedError as refusal:
            if refusal.status is not protocol.Status.UNSUPPORTED:
                raise
            return None

    def ping(self, payload: bytes = b"") -> bytes:
        """Sends bytes (at most the device's max_payload) and returns them as they came back."""
        return self._ask(Command.PING, payload, "pinging the device")

    # ---- Helpers ----------------------------------------------------------------------------------------------

    def _ask(self, command: Command, payload: bytes, what: str) -> bytes:
        if self._hello is None:
            self.hello()
        with self._restarts_explained():
            reply: Frame = self._session.request(command, payload, what=what)
        return reply.payload

    @contextlib.contextmanager
    def _restarts_explained(self) -> Iterator[None]:
        try:
            yield
        except RestartedError as error:
            raise RestartedError(f"{error}{self._reset_reason()}") from error

    def _reset_reason(self) -> str:
        """Why the device restarted, as it says itself."""
        try:
            hello = self.hello()
        except DeviceError:
            return ""
        return f" (reset by {RESET_REASONS[hello.reset_reason]})" if hello.reset_reason in RESET_REASONS else ""

    def _parsed(self, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except (ValueError, struct.error) as error:
            raise DeviceError(f"{self.port}: the device's answer cannot be read ({error}): flash it anew") from error


def _shaped(tensor: TensorInfo, raw: bytes) -> Array:
    """Bytes as the tensor's elements, flat where its shape does not tell how many there are."""
    flat = np.frombuffer(raw, dtype=tensor.dtype)
    return flat.reshape(tensor.shape) if flat.size == np.prod(tensor.shape, dtype=np.int64) else flat


def _find(inputs: Mapping[str, Array], tensor: TensorInfo, model: ModelInfo) -> Array:
    for name, data in inputs.items():
        if tensor.matches(name):
            return data
    names = ", ".join(repr(info.name) for info in model.inputs)
    raise DataError(f"{model.name}: no data for input {tensor.name!r}; the model's inputs are {names}")
