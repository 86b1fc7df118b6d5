"""What an operator's builder sees while a TFLite model becomes a graph: operands, constants, options, one output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.tflite_file import FileModel, FileOperator, FileTensor, Option
from rlx_edge.ir import Array, DType, GraphBuilder, QuantParams, Requant, Shape, TensorType, subbyte
from rlx_edge.ir.ops import Op

MAX_ELEMENTS = 1 << 26
"""Elements that one tensor may have, and an image with its padding: a small file can ask for any size."""

FOLD_LIMIT = 1 << 24
"""Elements that constant operators of a model may make together: far more than a microcontroller's weights."""

DTYPES = {
    **{"FLOAT32": DType.F32, "INT8": DType.I8, "INT4": DType.I4, "INT32": DType.I32, "INT64": DType.I64},
    "BOOL": DType.BOOL,
}
"""The schema's tensor types that the graph can have; activations are INT8 or FLOAT32, INT4 is for weights."""

CONSTANT_TYPES: Mapping[str, str] = {
    **{"FLOAT32": "<f4", "FLOAT16": "<f2", "INT8": "<i1", "UINT8": "<u1", "INT16": "<i2"},
    **{"INT32": "<i4", "INT64": "<i8", "BOOL": "<?"},
}
"""The schema's types that constants of the file can have, with numpy's names for them."""

PACKED_BITS: Mapping[str, int] = {"INT4": 4}
"""Constants of less than a byte an element, packed; their values here are int8."""


def shorten(name: str) -> str:
    """The first of the names that the TFLite converter joins with semicolons when it fuses operators."""
    return name.split(";", 1)[0] or name


def sources_of(tensor: FileTensor) -> tuple[str, ...]:
    """The file's tensors that this one stands for."""
    return tensor.sources or (tensor.name,)


def dequantized(values: Array, quant: QuantParams) -> Array:
    """(q - zero_point) * scale, rounded once to float32."""
    scales, zeros = quant.broadcast(values.ndim)
    return ((values.astype(np.int64) - zeros) * scales).astype(np.float32)


class Importer:
    """The growing graph, and which node stands for which tensor of the file."""

    def __init__(self, model: FileModel, name: str, where: str, requant: Requant) -> None:
        self.model = model
        self.where = where
        self.requant = requant
        self.builder = GraphBuilder(name)
        self.builder.metadata["layout"] = "NHWC"  # of images at inputs and outputs
        self.nodes: dict[int, int] = {}
        self.computed: set[int] = set()
        self.folded: dict[int, Array] = {}
        self.fold_room = FOLD_LIMIT
        self._weights: dict[tuple[int, str], int] = {}

    def record(self, index: int, node: int) -> None:
        """This node is that tensor, which is an input of the model or an operator's output."""
        self.nodes[index] = node
        self.computed.add(index)

    def damaged(self, tensor: FileTensor, what: str) -> ModelError:
        return ModelError(f"{self.where} is damaged: tensor {tensor.index} {shorten(tensor.name)!r} {what}")

    def type_of(self, index: int) -> TensorType:
        """A tensor's type as the file declares it, checked.

        Raises UnsupportedError for what the IR's tensors cannot be, ModelError for what makes no sense.
        """
        tensor = self.model.tensors[index]
        if tensor.is_variable:
            raise UnsupportedError(f"the variable tensor {shorten(tensor.name)!r} (state that persists between runs)")
        if tensor.is_sparse:
            raise UnsupportedError(f"the sparse tensor {shorten(tensor.name)!r}")
        if tensor.type_name not in DTYPES:
            known = "INT8, UINT8 with parameters and FLOAT32 are supported; docs/models.md lists what is imported"
            if tensor.type_name == "INT16":
                known = "models with 16-bit activations, 16x8, are not supported yet: convert it with int8 activations"
            raise UnsupportedError(f"the {tensor.type_name} tensor {shorten(tensor.name)!r} ({known})")
        self.check_shape(tensor)
        return TensorType(tensor.shape, DTYPES[tensor.type_name], self.quant_of(tensor))

    def check_shape(self, tensor: FileTensor) -> None:
        """Raises ModelError for a shape without elements, or with more than MAX_ELEMENTS."""
        if any(d < 1 for d in tensor.shape) or math.prod(tensor.shape) > MAX_ELEMENTS:
            raise self.damaged(tensor, f"has the shape {list(tensor.shape)}")

    def quant_of(self, tensor: FileTensor) -> QuantParams | None:
        """The quantization parameters of an integer tensor, checked; None where it has none."""
        found, dtype = tensor.quant, DTYPES.get(tensor.type_name, DType.F32)
        if found is None or not dtype.is_integer:
            return None
        if found.custom:
            raise UnsupportedError(f"the tensor {shorten(tensor.name)!r} with custom quantization")
        quant = QuantParams(found.scales, found.zero_points, found.axis if len(found.scales) > 1 else None)
        problems = quant.problems(tensor.shape, dtype)
        if problems:
            raise self.damaged(tensor, f"has {' and '.join(problems)}")
        return quant

    def values(self, index: int) -> Array | None:
        """The values of a constant tensor, from the file or worked out, or None for a tensor that is computed."""
        if index in self.folded:
            return self.folded[index]
        tensor = self.model.tensors[index]
        if not tensor.data or index in self.computed:
            return None
        if tensor.type_name not in (*CONSTANT_TYPES, *PACKED_BITS) or tensor.is_variable or tensor.is_sparse:
            self.type_of(index)  # says what is not supported
        self.check_shape(tensor)
        is_packed = tensor.type_name in PACKED_BITS
        dtype = np.dtype(np.uint8 if is_packed else CONSTANT_TYPES[tensor.type_name])
        bits = PACKED_BITS.get(tensor.type_name, 8 * dtype.itemsize)
        if len(tensor.data) != (math.prod(tensor.shape) * bits + 7) // 8:
            what = f"{tensor.type_name}{list(tensor.shape)}"
            raise self.damaged(tensor, f"is {what} but holds {len(tensor.data)} bytes")
        held = np.frombuffer(tensor.data, dtype)
        return subbyte.unpack(held, bits, tensor.shape) if is_packed else held.reshape(tensor.shape)

    def node(self, index: int, operator: FileOperator) -> int:
        """The node of an operand: computed already, or a Param made on first use."""
        if index in self.nodes:
            return self.nodes[index]
        tensor = self.model.tensors[index]
        values = self.values(index)
        if values is None:
            raise self.damaged(tensor, f"is read by operator {operator.index} {operator.kind} before it is computed")
        self.nodes[index] = self.builder.param(
            tensor.name, np.ascontiguousarray(values), self.type_of(index).quant, (tensor.name,)
        )
        return self.nodes[index]

    def weights(self, index: int, form: str, values: Array, quant: QuantParams | None) -> int:
        """A Param of a tensor's values in another form, one node however many operators share the tensor.

        `form` names the form: the same tensor may serve operators that want its axes in different orders.
        """
        key = (index, form)
        if key not in self._weights:
            tensor = self.model.tensors[index]
            dtype = DTYPES[tensor.type_name] if tensor.type_name in PACKED_BITS and quant is not None else None
            self._weights[key] = self.builder.param(
                tensor.name, np.ascontiguousarray(values), quant, (tensor.name,), dtype
            )
        return self._weights[key]


class OpContext:
    """One operator, as its builder sees it. Operands are counted from 0; builders return the output's node.

    `position`: which of its outputs is built.
    """

    def __init__(self, importer: Importer, operator: FileOperator, position: int = 0) -> None:
        self.importer = importer
        self.operator = operator
        self.position = position
        self.output = importer.model.tensors[operator.outputs[position]]

    @property
    def requant(self) -> Requant:
        """The rule of an operator that rounds: the caller's, unless the file has it compute uint8."""
        return Requant.TFLITE_UINT8 if self.operator.was_uint8 else self.importer.requant

    def option(self, field: str) -> Option:
        return self.operator.options[field]

    def integer(self, field: str) -> int:
        return int(self.operator.options[field])

    def has(self, operand: int) -> bool:
        """Is this optional operand there?"""
        return operand < len(self.operator.inputs) and self.operator.inputs[operand] >= 0

    def _index(self, operand: int) -> int:
        if not self.has(operand):
            raise ModelError(f"{self.importer.where} is damaged: {self.describe()} has no operand {operand}")
        return self.operator.inputs[operand]

    def describe(self) -> str:
        return f"operator {self.operator.index} {self.operator.kind} (output {shorten(self.output.name)!r})"

    def input(self, operand: int, dtype: DType = DType.I8) -> int:
        """The node of an operand that has this dtype; an INT8 one with one scale. Raises UnsupportedError."""
        index = self._index(operand)
        declared = self.importer.type_of(index)
        self._check(declared, self.importer.model.tensors[index].name, dtype)
        return self.importer.node(index, self.operator)

    def dtype(self, operand: int) -> DType:
        return self.importer.type_of(self._index(operand)).dtype

    def type(self, node: int) -> TensorType:
        return self.importer.builder[node].type

    def output_type(self, dtype: DType = DType.I8) -> TensorType:
        """The output's declared type. Raises UnsupportedError unless it has this dtype, and one scale if INT8."""
        declared = self.importer.type_of(self.operator.outputs[self.position])
        self._check(declared, self.output.name, dtype)
        return declared

    def output_quant(self) -> QuantParams:
        """The parameters of an INT8 output."""
        quant = self.output_type().quant
        assert quant is not None  # output_type has checked
        return quant

    def quant(self, node: int) -> QuantParams:
        """The parameters of an INT8 operand that `input` gave."""
        quant = self.type(node).quant
        assert quant is not None  # input has checked
        return quant

    def _check(self, type: TensorType, name: str, dtype: DType) -> None:
        if type.dtype is not dtype:
            raise UnsupportedError(
                f"the {type.dtype.value} tensor {shorten(name)!r} where only {dtype.value} is supported"
            )
        if dtype is DType.I8 and (type.quant is None or type.quant.axis is not None):
            how = "without quantization parameters" if type.quant is None else "with one scale per channel"
            raise UnsupportedError(f"the i8 activation {shorten(name)!r} {how}")

    def constant(self, operand: int, what: str) -> tuple[Array, TensorType]:
        """The values and the type of an operand that must be in the file, such as weights."""
        index = self._index(operand)
        declared = self.importer.type_of(index)
        values = self.importer.values(index)
        if values is None:
            raise UnsupportedError(f"{what} that the model computes (tensor {shorten(self.name(operand))!r})")
        return values, declared

    def integers(self, operand: int, what: str) -> tuple[list[int], Shape]:
        """The values, flat, and the shape of an INT32 or INT64 constant."""
        values, type = self.constant(operand, what)
        if type.dtype not in (DType.I32, DType.I64):
            raise UnsupportedError(f"{what} of type {type.dtype.value}")
        return [int(v) for v in values.reshape(-1).tolist()], type.shape

    def name(self, operand: int) -> str:
        return self.importer.model.tensors[self._index(operand)].name

    def weights(self, values: Array, quant: QuantParams | None) -> int:
        """The Param of operand 1, its axes moved to where the IR has them for this kind of operator."""
        return self.importer.weights(self._index(1), self.operator.kind, values, quant)

    def reals(self, operand: int, what: str) -> Array:
        """The float32 values of a constant that is FLOAT32 or FLOAT16, or INT8 or INT4 with quantization parameters."""
        index = self._index(operand)
        values, tensor = self.importer.values(index), self.importer.model.tensors[index]
        if values is None:
            raise UnsupportedError(f"{what} that the model computes (tensor {shorten(tensor.name)!r})")
        if tensor.type_name in ("FLOAT32", "FLOAT16"):
            return values.astype(np.float32)
        quant = self.importer.type_of(index).quant
        if tensor.type_name not in ("INT8", "INT4") or quant is None:
            raise UnsupportedError(f"{what} of type {tensor.type_name} (tensor {shorten(tensor.name)!r})")
        return dequantized(values, quant)

    def float_param(self, operand: int, form: str, values: Array) -> int:
        """The Param of a constant's float32 values in another form; `form` names it."""
        return self.importer.weights(self._index(operand), f"{form} float", values, None)

    def bias(self, values: Array | None, channels: int, quant: QuantParams) -> int:
        """The Param of operand 2, or zeros when there is none."""
        if values is None:
            return self.importer.builder.param(f"{self.output.name}_bias", np.zeros(channels, np.int32), quant)
        return self.importer.builder.param(self.name(2), np.ascontiguousarray(values), quant, (self.name(2),))

    def add(self, op: Op, inputs: Sequence[int], quant: QuantParams | None) -> int:
        """Append the op that computes the output tensor."""
        return self.importer.builder.add(op, inputs, self.output.name, quant, sources_of(self.output))

    def add_helper(self, op: Op, inputs: Sequence[int], suffix: str, quant: QuantParams | None) -> int:
        """Append an op that the output needs and that the file does not have as a tensor."""
        return self.importer.builder.add(op, inputs, f"{self.output.name}_{suffix}", quant)
