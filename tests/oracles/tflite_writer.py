"""Writes small `.tflite` files, so that tests can ask about any operator, well formed or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[np.generic]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the file; `data` makes it a constant. Nothing is checked: tests write wrong files too."""

    name: str
    shape: tuple[int, ...]
    type: str = "INT8"
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    data: Array | None = None
    is_variable: bool = False


@dataclass(frozen=True)
class OpSpec:
    """An operator: its kind in the schema's words, tensor indices, and its options' table and fields."""

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str = ""
    fields: Mapping[str, int | float] = field(default_factory=dict)
    custom_code: str = ""


def write_model(
    tensors: Sequence[TensorSpec],
    operators: Sequence[OpSpec],
    inputs: Sequence[int],
    outputs: Sequence[int],
    subgraphs: int = 1,
    version: int = 3,
) -> bytes:
    """The bytes of a `.tflite` file with one subgraph (or the same one several times)."""
    b = flatbuffers.Builder(1024)
    buffers = [_buffer(b, None), *(_buffer(b, tensor.data) for tensor in tensors)]
    tables = [_tensor(b, tensor, index + 1) for index, tensor in enumerate(tensors)]
    codes = sorted({(op.kind, op.custom_code) for op in operators})
    ops = [_operator(b, op, codes.index((op.kind, op.custom_code))) for op in operators]
    graph = _table(
        b,
        "SubGraph",
        Tensors=_offsets(b, tables),
        Inputs=_vector(b, inputs, np.int32),
        Outputs=_vector(b, outputs, np.int32),
        Operators=_offsets(b, ops),
    )
    model = _table(
        b,
        "Model",
        Version=version,
        OperatorCodes=_offsets(b, [_code(b, kind, custom) for kind, custom in codes]),
        Subgraphs=_offsets(b, [graph] * subgraphs),
        Buffers=_offsets(b, buffers),
    )
    b.Finish(model, file_identifier=b"TFL3")
    return bytes(b.Output())


def _table(b: Any, name: str, **fields: Any) -> int:
    getattr(tflite, f"{name}Start")(b)
    for key, value in fields.items():
        if value is not None:
            getattr(tflite, f"{name}Add{key}")(b, value)
    return int(getattr(tflite, f"{name}End")(b))


def _vector(b: Any, values: Sequence[int] | Sequence[float], dtype: Any) -> int:
    return int(b.CreateNumpyVector(np.array(values, dtype)))


def _offsets(b: Any, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def _buffer(b: Any, data: Array | None) -> int:
    raw = None if data is None else b.CreateByteVector(np.ascontiguousarray(data).tobytes())
    return _table(b, "Buffer", Data=raw)


def _tensor(b: Any, spec: TensorSpec, buffer: int) -> int:
    name, shape = b.CreateString(spec.name), _vector(b, spec.shape, np.int32)
    quant = None
    if spec.scales:
        scales, zeros = _vector(b, spec.scales, np.float32), _vector(b, spec.zero_points, np.int64)
        quant = _table(b, "QuantizationParameters", Scale=scales, ZeroPoint=zeros, QuantizedDimension=spec.axis)
    return _table(
        b,
        "Tensor",
        Shape=shape,
        Type=getattr(tflite.TensorType, spec.type),
        Buffer=buffer,
        Name=name,
        Quantization=quant,
        IsVariable=spec.is_variable,
    )


def _operator(b: Any, op: OpSpec, code: int) -> int:
    inputs, outputs = _vector(b, op.inputs, np.int32), _vector(b, op.outputs, np.int32)
    options = _table(b, op.options, **op.fields) if op.options else None
    kind = getattr(tflite.BuiltinOptions, op.options) if op.options else None
    return _table(
        b,
        "Operator",
        OpcodeIndex=code,
        Inputs=inputs,
        Outputs=outputs,
        BuiltinOptionsType=kind,
        BuiltinOptions=options,
    )


def _code(b: Any, kind: str, custom: str) -> int:
    value = getattr(tflite.BuiltinOperator, kind)
    name = b.CreateString(custom) if custom else None
    return _table(
        b, "OperatorCode", DeprecatedBuiltinCode=min(value, 127), CustomCode=name, Version=1, BuiltinCode=value
    )
