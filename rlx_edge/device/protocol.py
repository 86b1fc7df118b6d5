"""Commands, status codes and payloads of the serial protocol. docs/protocol.md is the specification."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from rlx_edge.device.device_text import printable

PROTOCOL_VERSION = 3
FROM_DEVICE = 0x80
NO_STEP = 0xFFFFFFFF


class Command(IntEnum):
    """What the computer can ask for; a reply carries the same number + 0x80."""

    HELLO = 1
    MODEL = 2
    TENSOR = 3
    LAYER = 4
    CLEAR = 5
    WRITE = 6
    RUN = 7
    STEP = 8
    READ = 9
    RESET = 10
    PING = 11
    ROW = 12
    IMAGE = 13
    UID = 14


BUSY = 0xC0
FAULT = 0xC1


class Status(IntEnum):
    """How the device answered."""

    OK = 0
    BAD_COMMAND = 1
    BAD_LENGTH = 2
    BAD_MODEL = 3
    BAD_TENSOR = 4
    BAD_RANGE = 5
    GAP = 6
    NO_INPUT = 7
    NOT_READY = 8
    BAD_STEP = 9
    NO_ARENA = 10
    UNSUPPORTED = 11
    WRONG_SESSION = 12
    OLD_SEQUENCE = 13
    NO_SESSION = 14


# What each refusal means, for people; {detail} is the number in the reply.
EXPLAIN = {
    Status.BAD_COMMAND: "its firmware does not know this command: build and flash it anew",
    Status.BAD_LENGTH: "the request has a wrong length ({detail} bytes)",
    Status.BAD_MODEL: "its firmware has {detail} model(s), not as many as asked for",
    Status.BAD_TENSOR: "the model has {detail} such tensor(s), not as many as asked for",
    Status.BAD_RANGE: "the bytes asked for lie outside the {detail} bytes that are there, or end an input too early",
    Status.GAP: "the input has {detail} bytes so far, and the write would leave a gap",
    Status.NO_INPUT: "input {detail} is not complete: every run needs all inputs sent anew",
    Status.NOT_READY: "the tensor is not in the arena now (step {detail} completes it)",
    Status.BAD_STEP: "step {detail} is the next one: steps run in order, and so do the rows of a step",
    Status.NO_ARENA: "the model needs a larger arena than the firmware's {detail} bytes",
    Status.UNSUPPORTED: "this firmware does not offer that",
    Status.WRONG_SESSION: "another session was opened: does another program use the line?",
    Status.OLD_SEQUENCE: "the request is older than the last one that was executed: is another program using the port?",
}


@dataclass(frozen=True)
class Hello:
    """What a device says about itself. `image_crc` is zlib's CRC-32 over the `image_bytes` of its flash; `count_hz` is
    the counter's ticks per second, 0 when the firmware has no counter; `ring_bytes` of what it receives are kept while
    it works on a request; `setup_failed` is the step of its board's set-up that waited in vain, 0 if none did; sizes in
    bytes."""

    version: int
    max_payload: int
    boot_id: int
    ring_bytes: int
    setup_failed: int
    reset_reason: int
    image_bytes: int
    image_crc: int
    count_hz: int
    arena_bytes: int
    model_count: int
    device: str


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model on the device. `step` completes it (None for inputs); `output` is its position among the
    outputs or None; `scale` is 0 for tensors that are not quantized; `rows` is not 0 when only some of its rows exist
    at a time."""

    index: int
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    bytes: int
    step: int | None
    is_input: bool
    output: int | None
    scale: float
    zero_point: int
    rows: int = 0
    name_cut: bool = field(default=False)

    def matches(self, name: str) -> bool:
        """Whether `name` is this tensor's; the device may have cut a long name."""
        return name.startswith(self.name) if self.name_cut else name == self.name


@dataclass(frozen=True)
class ModelInfo:
    """A model on the device; `hash` is 32 hex digits, unique for its weights, plan and kernels."""

    index: int
    name: str
    ident: str
    hash: str
    arena_bytes: int
    steps: int
    weights_ok: bool
    variable_input: bool
    tensors: tuple[TensorInfo, ...]

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.is_input)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        found = [(tensor.output, tensor) for tensor in self.tensors if tensor.output is not None]
        return tuple(tensor for _, tensor in sorted(found, key=lambda pair: pair[0]))


@dataclass(frozen=True)
class LayerInfo:
    """What one step does; `macs` are multiply-accumulates. A stage makes `rows` rows of its tensors one by one; `rows`
    is 0 for other steps."""

    step: int
    name: str
    op: str
    macs: int
    rows: int = 0


@dataclass(frozen=True)
class Fault:
    """The registers of a fault; `model` and `step` say what ran (None when nothing did)."""

    pc: int
    lr: int
    psr: int
    cfsr: int
    hfsr: int
    bfar: int
    r0: int
    sp: int
    model: int | None
    step: int | None


_DTYPES: dict[int, np.dtype[np.generic]] = {1: np.dtype("int8"), 2: np.dtype("<i4"), 3: np.dtype("<f4")}
_HELLO = struct.Struct("<HHIHHIIIIIB")
_MODEL = struct.Struct("<16sIIHBBBB")
_TENSOR = struct.Struct("<IIfiBBBB6HH")


class Payload:
    """Reads a payload from front to back. Raises ValueError when it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise ValueError("the payload is too short")
        self._at += size
        return self._data[self._at - size : self._at]

    def string(self) -> tuple[str, bool]:
        """A string, control characters spelled out, and whether the device cut it."""
        length, sent = self.take(2)
        return printable(self.take(sent).decode("utf-8", "replace")), sent < length or length == 255


def read_hello(payload: bytes) -> Hello:
    """Raises ValueError when the payload is not of this version."""
    reader = Payload(payload)
    version, most, boot, ring, failed, reason, size, crc, hz, arena, models = _HELLO.unpack(reader.take(_HELLO.size))
    device, _ = reader.string()
    return Hello(version, most, boot, ring, failed, reason, size, crc, hz, arena, models, device)


def hello_version(payload: bytes) -> int:
    """The protocol version in a HELLO reply; its place never changes."""
    return int.from_bytes(payload[:2], "little")


def read_model(payload: bytes, index: int) -> tuple[ModelInfo, int]:
    """The model without its tensors, and how many it has."""
    reader = Payload(payload)
    digest, arena, steps, tensors, _, _, weights_ok, variable = _MODEL.unpack(reader.take(_MODEL.size))
    name, ident = reader.string()[0], reader.string()[0]
    info = ModelInfo(index, name, ident, digest.hex(), arena, steps, bool(weights_ok), bool(variable), ())
    return info, tensors


def read_tensor_info(payload: bytes, index: int) -> TensorInfo:
    reader = Payload(payload)
    size, step, scale, zero_point, is_input, output, dtype, rank, *dims, rows = _TENSOR.unpack(
        reader.take(_TENSOR.size)
    )
    name, cut = reader.string()
    kind = _DTYPES.get(dtype, np.dtype("uint8"))
    if size % kind.itemsize:
        raise ValueError(f"a tensor of {kind} has {size} bytes")
    return TensorInfo(
        index=index,
        name=name,
        dtype=kind,
        shape=tuple(dims[:rank]),
        bytes=size,
        step=None if step == NO_STEP else step,
        is_input=bool(is_input),
        output=None if output == 0xFF else output,
        scale=scale,
        zero_point=zero_point,
        rows=rows,
        name_cut=cut,
    )


def read_layer(payload: bytes, step: int) -> LayerInfo:
    reader = Payload(payload)
    macs, rows = struct.unpack("<II", reader.take(8))
    op, name = reader.string()[0], reader.string()[0]
    return LayerInfo(step, name, op, macs, rows)


def read_fault(payload: bytes) -> Fault:
    pc, lr, psr, cfsr, hfsr, bfar, r0, sp, model, step = struct.unpack_from("<10I", payload)
    ran_model = None if model == 0xFFFFFFFF else model
    return Fault(pc, lr, psr, cfsr, hfsr, bfar, r0, sp, ran_model, None if step == NO_STEP else step)
