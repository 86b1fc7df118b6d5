"""A `.tflite` file as plain records: the flatbuffer, read with every offset and length checked.

The flatbuffers package trusts its input: a bad offset raises whatever struct or numpy raise, or reads other bytes of
the file. So everything is read here, once, into frozen records; past this file nobody touches the flatbuffer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tflite
from flatbuffers.number_types import Int32Flags

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.ir import Shape

IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3

Option = int | float | bool

_FUSED = ("FusedActivationFunction",)
_CONV = ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor", *_FUSED)
_POOL = ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth", *_FUSED)

OPTION_FIELDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": ("Conv2DOptions", _CONV),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (*_CONV, "DepthMultiplier")),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("WeightsFormat", "KeepNumDims", *_FUSED)),
    "BATCH_MATMUL": ("BatchMatMulOptions", ("AdjX", "AdjY")),
    "ADD": ("AddOptions", _FUSED),
    "SUB": ("SubOptions", _FUSED),
    "MUL": ("MulOptions", _FUSED),
    "DIV": ("DivOptions", _FUSED),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _POOL),
    "MAX_POOL_2D": ("Pool2DOptions", _POOL),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), ("ReducerOptions", ("KeepDims",))),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "GELU": ("GeluOptions", ("Approximate",)),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", *_FUSED)),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "PACK": ("PackOptions", ("Axis",)),
    "UNPACK": ("UnpackOptions", ("Axis",)),
    "MIRROR_PAD": ("MirrorPadOptions", ("Mode",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"),
    ),
}
"""For each operator with options that matter: the schema's table, and the fields to read from it."""


@dataclass(frozen=True)
class FileQuant:
    """Quantization parameters as the file has them; `axis` means something only with several scales."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int
    custom: bool


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the subgraph. `data` is empty for tensors that are computed; nothing is checked against `shape`.

    `sources` names the file's tensors that it stands for where those are not its name (formats/tflite_rewrite.py).
    """

    index: int
    name: str
    shape: Shape
    type_name: str
    quant: FileQuant | None
    data: bytes
    is_variable: bool
    is_sparse: bool
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileOperator:
    """An operator: its kind in the schema's words, and tensor indices (-1: an optional operand that is absent).

    `was_uint8`: it computed UINT8 before formats/tflite_rewrite.py; `mixed`: from INT8, or INT8 from UINT8.
    """

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Option]
    was_uint8: bool = False
    mixed: bool = False


@dataclass(frozen=True)
class FileModel:
    """The only subgraph of a file; operators are in execution order."""

    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read_model(data: bytes, where: str) -> FileModel:
    """Read a `.tflite` file. `where` names it in messages.

    Raises ModelError for anything that is not a whole, undamaged TFLite flatbuffer, and UnsupportedError for several
    subgraphs.
    """
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise ModelError(f"{where} is not a TFLite file: the identifier TFL3 is missing")
    try:
        return _Reader(data, where).model()
    except (struct.error, TypeError, ValueError, OverflowError) as error:
        # What the flatbuffers package raises on an offset or a length that points out of the buffer.
        raise ModelError(f"{where} is a truncated or damaged TFLite file ({error})") from None


class _Reader:
    """Reads tables, and stops at a file that refers to the same bytes again and again to grow without bound."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self.budget = 2 * len(data)
        self.root = tflite.Model.GetRootAs(data, 0)

    def model(self) -> FileModel:
        if self.root.Version() != SCHEMA_VERSION:
            raise ModelError(
                f"{self.where}: TFLite schema version {self.root.Version()}; only {SCHEMA_VERSION} is read"
            )
        graphs = self.tables(self.root, "Subgraphs")
        if len(graphs) != 1:
            raise UnsupportedError(f"{self.where} has {len(graphs)} subgraphs: only models with one are supported")
        buffers = [self.buffer(table) for table in self.tables(self.root, "Buffers")]
        kinds = [self.kind(table) for table in self.tables(self.root, "OperatorCodes")]
        tensors = self.tables(graphs[0], "Tensors")
        operators = self.tables(graphs[0], "Operators")
        model = FileModel(
            tuple(self.tensor(index, table, buffers) for index, table in enumerate(tensors)),
            tuple(self.operator(index, table, kinds) for index, table in enumerate(operators)),
            self.integers(graphs[0], "Inputs"),
            self.integers(graphs[0], "Outputs"),
        )
        self.check_indices(model)
        return model

    def spend(self, amount: int) -> None:
        """Account for `amount` bytes or elements read. Honest files stay far below the budget."""
        self.budget -= amount
        if self.budget < 0:
            raise ModelError(f"{self.where} is a damaged TFLite file (a vector is longer than the file)")

    def tables(self, parent: Any, field: str) -> list[Any]:
        count = int(getattr(parent, f"{field}Length")())
        self.spend(count)
        return [getattr(parent, field)(index) for index in range(count)]

    def integers(self, table: Any, field: str) -> tuple[int, ...]:
        return tuple(int(value) for value in self.vector(table, field))

    def vector(self, table: Any, field: str) -> list[Any]:
        count = int(getattr(table, f"{field}Length")())
        self.spend(count)
        values: list[Any] = getattr(table, f"{field}AsNumpy")().tolist() if count else []
        return values

    def text(self, raw: bytes | None) -> str:
        """Printable text: names end up in messages and in comments of generated C."""
        self.spend(len(raw or b""))
        text = (raw or b"").decode("utf-8", "backslashreplace")
        return "".join(c if c.isprintable() else "?" for c in text)

    def buffer(self, table: Any) -> bytes:
        # Behind the flatbuffer, as writers of large files have it. Offsets 0 and 1 both mean "not there".
        start, size = int(table.Offset()), int(table.Size())
        if start > 1:
            self.spend(size)
            if start + size > len(self.data):
                raise ModelError(f"{self.where} is truncated: weights of {size} bytes at {start} of {len(self.data)}")
            return self.data[start : start + size]
        count = int(table.DataLength())
        self.spend(count)
        return bytes(table.DataAsNumpy().tobytes()) if count else b""

    def kind(self, table: Any) -> str:
        # Old files have the code in one byte, new ones in four; the byte then holds 127 at most, or nothing.
        code = max(int(_integer(table, _BUILTIN_CODE_SLOT)), int(table.DeprecatedBuiltinCode()))
        kind = _BUILTIN_NAMES.get(code, f"operator code {code}")
        return f"CUSTOM {self.text(table.CustomCode())!r}" if kind == "CUSTOM" else kind

    def tensor(self, index: int, table: Any, buffers: list[bytes]) -> FileTensor:
        buffer = int(table.Buffer())
        if buffer >= len(buffers):
            raise ModelError(f"{self.where} is damaged: tensor {index} names buffer {buffer} of {len(buffers)}")
        quant = table.Quantization()
        return FileTensor(
            index,
            self.text(table.Name()) or f"tensor_{index}",
            self.integers(table, "Shape"),
            _TYPE_NAMES.get(int(table.Type()), f"type {int(table.Type())}"),
            None if quant is None else self.quant(quant),
            buffers[buffer],
            bool(table.IsVariable()),
            table.Sparsity() is not None,
        )

    def quant(self, table: Any) -> FileQuant | None:
        scales = tuple(float(value) for value in self.vector(table, "Scale"))
        zero_points = self.integers(table, "ZeroPoint")
        custom = int(table.DetailsType()) != 0
        if not scales and not custom:
            return None  # min and max only, which some converters leave on float tensors
        return FileQuant(scales, zero_points or (0,) * len(scales), int(table.QuantizedDimension()), custom)

    def operator(self, index: int, table: Any, kinds: list[str]) -> FileOperator:
        code = int(table.OpcodeIndex())
        if code >= len(kinds):
            raise ModelError(f"{self.where} is damaged: operator {index} names operator code {code} of {len(kinds)}")
        inputs, outputs = self.integers(table, "Inputs"), self.integers(table, "Outputs")
        if not outputs:
            raise ModelError(f"{self.where} is damaged: operator {index} {kinds[code]} has no output")
        return FileOperator(index, kinds[code], inputs, outputs, self.options(index, table, kinds[code]))

    def options(self, index: int, table: Any, kind: str) -> Mapping[str, Option]:
        if kind not in OPTION_FIELDS:
            return {}
        name, fields = OPTION_FIELDS[kind]
        union = table.BuiltinOptions()
        if union is None or int(table.BuiltinOptionsType()) != getattr(tflite.BuiltinOptions, name):
            raise ModelError(f"{self.where} is damaged: operator {index} {kind} has no {name}")
        options = getattr(tflite, name)()
        options.Init(union.Bytes, union.Pos)
        return {field: getattr(options, field)() for field in fields}

    def check_indices(self, model: FileModel) -> None:
        count = len(model.tensors)
        for what, indices, lowest in (
            ("an input of the model", model.inputs, 0),
            ("an output of the model", model.outputs, 0),
            *((f"an operand of operator {op.index} {op.kind}", op.inputs, -1) for op in model.operators),
            *((f"an output of operator {op.index} {op.kind}", op.outputs, 0) for op in model.operators),
        ):
            for index in indices:
                if not lowest <= index < count:
                    raise ModelError(f"{self.where} is damaged: {what} is tensor {index} of {count}")


_BUILTIN_CODE_SLOT = 10
"""Of the schema's OperatorCode, in bytes of its vtable: the package's own reader looks at the old field instead."""


def _integer(table: Any, slot: int) -> int:
    """An int32 of a flatbuffer's table; 0 where it is absent."""
    place = table._tab.Offset(slot)
    return int(table._tab.Get(Int32Flags, place + table._tab.Pos)) if place else 0


def _constants(enum: type) -> dict[int, str]:
    """Value to name of one of the schema's enums, which are classes of plain integers."""
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_BUILTIN_NAMES = _constants(tflite.BuiltinOperator)
_TYPE_NAMES = _constants(tflite.TensorType)
