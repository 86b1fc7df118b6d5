"""The runtimes that a model's own format comes with: what a file computes there, tensor by tensor.

Each is an extra; `installed_for` says which of them there are. Rules: an int8 TFLite file has the bits of the rounding
rule `tflm` in tflite-micro, and those of `tflite_ref` in tflite-runtime's reference kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from rlx_edge.errors import EdgeError
from rlx_edge.formats.tflite_file import IDENTIFIER, read_model
from rlx_edge.ir import Array, Requant

Session = Callable[[Sequence[Array]], list[Array]]
"""From the inputs, in the file's order, to the wanted tensors, in the order asked for. Names may repeat in a file."""

TFLITE, ONNX = "tflite", "onnx"
_SUMMING = ("QLinearConv", "QLinearMatMul", "QGemm")
"""Their operands 2 and 5 are the zero points of activations and weights."""
INSTALL = "pip install 'rlx-edge[oracles]'"
TFLM_ARENA_PER_BYTE, TFLM_SMALLEST_ARENA = 20, 1 << 22
LONGEST_REASON = 200
_OUTPUTS_SLOT = 8
"""Where a subgraph's table has its outputs: the third field of the schema's SubGraph, in bytes of its vtable."""


class RuntimeRefusedError(EdgeError):
    """The runtime does not run the file; the message is the runtime's own, shortened."""


@dataclass(frozen=True)
class Runtime:
    """A runtime that is installed. `floats`, `integers`: what of a file it is a measure for.

    `open(data, tensors)` loads a file and returns a session that gives these tensors; where `tensors` is None, the
    outputs. It raises anything, or ends the process, on a file that the runtime does not like: `runtime_process` is for
    that.
    """

    name: str
    format: str
    rule: Requant
    floats: bool
    integers: bool
    open: Callable[[bytes, Sequence[str] | None], Session]


def installed_for(data: bytes) -> tuple[Runtime, ...]:
    """The installed runtimes that read a file of this format."""
    wanted = TFLITE if data[4:8] == IDENTIFIER else ONNX
    return tuple(r for r in RUNTIMES if r.format == wanted and _module(_MODULES[r.name]) is not None)


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except (ImportError, AttributeError):  # AttributeError: tflite-runtime was made for a numpy older than 2.
        return None


# ---- TFLite ----------------------------------------------------------------------------------------------------------


def with_outputs(data: bytes, tensors: Sequence[int]) -> bytes:
    """A `.tflite` file whose subgraph has these tensors as its outputs: a new vector behind the old file.

    Offsets in flatbuffers point forward, so that one offset is all that changes.
    """
    (root,) = struct.unpack_from("<I", data, 0)
    subgraphs = _field(data, root, 8)
    (offset,) = struct.unpack_from("<I", data, subgraphs)
    first = subgraphs + offset + 4
    (offset,) = struct.unpack_from("<I", data, first)
    place = _field(data, first + offset, _OUTPUTS_SLOT)
    padded = data + bytes(-len(data) % 4)
    vector = struct.pack(f"<I{len(tensors)}i", len(tensors), *tensors)
    return padded[:place] + struct.pack("<I", len(padded) - place) + padded[place + 4 :] + vector


def _field(data: bytes, table: int, slot: int) -> int:
    """The place of a field in a flatbuffer's table, given its entry of the vtable."""
    (back,) = struct.unpack_from("<i", data, table)
    (relative,) = struct.unpack_from("<H", data, table - back + slot)
    return table + int(relative)


def _tapped(data: bytes, tensors: Sequence[str] | None) -> tuple[bytes, int]:
    """The file with the wanted tensors as outputs, and their count."""
    model = read_model(data, "the model")
    if tensors is None:
        return data, len(model.outputs)
    index = {tensor.name: tensor.index for tensor in model.tensors}
    return with_outputs(data, [index[name] for name in tensors]), len(tensors)


def _open_tflm(data: bytes, tensors: Sequence[str] | None) -> Session:
    tapped, count = _tapped(data, tensors)
    runtime = import_module("tflite_micro").runtime
    arena = max(TFLM_ARENA_PER_BYTE * len(data), TFLM_SMALLEST_ARENA)
    interpreter = runtime.Interpreter.from_bytes(tapped, arena_size=arena)

    def run(inputs: Sequence[Array]) -> list[Array]:
        for position, values in enumerate(inputs):
            interpreter.set_input(np.ascontiguousarray(values), position)
        interpreter.invoke()
        return [np.array(interpreter.get_output(i)) for i in range(count)]

    return run


def _open_interpreter(module: str) -> Callable[[bytes, Sequence[str] | None], Session]:
    """tflite-runtime and its successor have one interface; only their reference kernels are a measure."""

    def open(data: bytes, tensors: Sequence[str] | None) -> Session:
        tapped, _ = _tapped(data, tensors)
        found = import_module(module)
        resolver = found.OpResolverType.BUILTIN_REF
        interpreter = found.Interpreter(model_content=tapped, experimental_op_resolver_type=resolver, num_threads=1)
        interpreter.allocate_tensors()

        def run(inputs: Sequence[Array]) -> list[Array]:
            for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
                interpreter.set_tensor(detail["index"], values)
            interpreter.invoke()
            return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

        return run

    return open


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def _open_onnx(data: bytes, tensors: Sequence[str] | None) -> Session:
    """ONNX Runtime's CPU provider without graph optimizations: each op as the file has it."""
    import onnx

    ort = import_module("onnxruntime")
    if tensors is not None:
        model = onnx.load_model_from_string(data)
        held = {value.name for value in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in held)
        data = model.SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = list(tensors) if tensors is not None else [value.name for value in session.get_outputs()]

    def run(inputs: Sequence[Array]) -> list[Array]:
        given = {value.name: values for value, values in zip(session.get_inputs(), inputs, strict=True)}
        return [np.asarray(values) for values in session.run(names, given)]

    return run


def keeps_u8s8_exact() -> bool:
    """Whether this CPU multiplies uint8 by int8 without saturating pairs of products: VNNI, or no x86 at all."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True  # Not Linux: nothing is known.
    return "vnni" in flags or "flags" not in flags


def may_saturate(data: bytes) -> bool:
    """Whether an ONNX file has integer ops on uint8 with int8 weights and this CPU's kernels saturate their sums."""
    import onnx

    if keeps_u8s8_exact():
        return False
    graph = onnx.load_model_from_string(data).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    mixed = [onnx.TensorProto.UINT8, onnx.TensorProto.INT8]
    zero_points = [[types.get(node.input[i]) for i in (2, 5)] for node in graph.node if node.op_type in _SUMMING]
    return mixed in zero_points


def shortened(reason: str) -> str:
    """One line."""
    return " ".join(reason.split())[:LONGEST_REASON]


RUNTIMES: tuple[Runtime, ...] = (
    Runtime("tflite-micro", TFLITE, Requant.TFLM, True, True, _open_tflm),
    Runtime("tflite-runtime", TFLITE, Requant.TFLITE_REF, True, True, _open_interpreter("tflite_runtime.interpreter")),
    # Its int8 dense layers round by another rule (docs/numerics.md), so it is a measure for float files only.
    Runtime("ai-edge-litert", TFLITE, Requant.SINGLE, True, False, _open_interpreter("ai_edge_litert.interpreter")),
    Runtime("onnxruntime", ONNX, Requant.ONNX, True, True, _open_onnx),
)

_MODULES = {
    "tflite-micro": "tflite_micro",
    "tflite-runtime": "tflite_runtime.interpreter",
    "ai-edge-litert": "ai_edge_litert.interpreter",
    "onnxruntime": "onnxruntime",
}
