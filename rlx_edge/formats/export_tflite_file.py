"""Plain records to the bytes of a `.tflite` file. What they mean is export_tflite_ops.py's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

from rlx_edge.formats.tflite_file import IDENTIFIER, SCHEMA_VERSION
from rlx_edge.ir import Array

BUFFER_ALIGNMENT = 16
"""Bytes; the schema asks for it, so that kernels may read weights with wide loads."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the file; `data` makes it a constant. Types are the schema's words. Nothing is checked."""

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
    """An operator: its kind in the schema's words, tensor indices (-1: no such operand), and its options' table and
    fields (a tuple is a vector). `version` tells a runtime which of its kernels' features the operator uses."""

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str = ""
    fields: Mapping[str, int | float | tuple[int, ...]] = field(default_factory=dict)
    custom_code: str = ""
    version: int = 1


def write_model(
    tensors: Sequence[TensorSpec],
    operators: Sequence[OpSpec],
    inputs: Sequence[int],
    outputs: Sequence[int],
    subgraphs: int = 1,
    version: int = SCHEMA_VERSION,
    description: str = "",
) -> bytes:
    """The bytes of a `.tflite` file with one subgraph (or the same one several times). Equal records, equal bytes."""
    b = flatbuffers.Builder(1024)
    held = [tensor.data for tensor in tensors if tensor.data is not None]
    buffers = [_buffer(b, None), *(_buffer(b, data) for data in held)]  # Buffer 0 is empty: "computed".
    tables, next_buffer = [], 1
    for tensor in tensors:
        tables.append(_tensor(b, tensor, 0 if tensor.data is None else next_buffer))
        next_buffer += tensor.data is not None
    codes = sorted({_code_of(op) for op in operators})
    ops = [_operator(b, op, codes.index(_code_of(op))) for op in operators]
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
        OperatorCodes=_offsets(b, [_code(b, *code) for code in codes]),
        Subgraphs=_offsets(b, [graph] * subgraphs),
        Description=b.CreateString(description) if description else None,
        Buffers=_offsets(b, buffers),
    )
    b.Finish(model, file_identifier=IDENTIFIER)
    return bytes(b.Output())


def _table(b: Any, name: str, **fields: Any) -> int:
    """A table of the schema; fields of None are left out."""
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
    if data is None:
        return _table(b, "Buffer")
    raw = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    # The package's CreateByteVector aligns to 1, so its steps are made here.
    b.StartVector(1, len(raw), BUFFER_ALIGNMENT)
    b.head = b.head - len(raw)
    b.Bytes[b.head : b.head + len(raw)] = raw
    return _table(b, "Buffer", Data=b.EndVector())


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
    options = _options(b, op) if op.options else None
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


def _options(b: Any, op: OpSpec) -> int:
    fields = {key: _vector(b, v, np.int32) if isinstance(v, tuple) else v for key, v in op.fields.items()}
    return _table(b, op.options, **fields)


def _code_of(op: OpSpec) -> tuple[str, int, str]:
    return op.kind, op.version, op.custom_code


def _code(b: Any, kind: str, version: int, custom: str) -> int:
    value = getattr(tflite.BuiltinOperator, kind)
    name = b.CreateString(custom) if custom else None
    return _table(
        b, "OperatorCode", DeprecatedBuiltinCode=min(value, 127), CustomCode=name, Version=version, BuiltinCode=value
    )
