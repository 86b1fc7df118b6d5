"""One ONNX node as the builders see it: attributes, operands, and a way to append ops.

Whatever of a node is not read is refused, so that nothing in a file is ever ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from rlx_edge.formats.onnx_integers import Blocks
from rlx_edge.ir import Array, DType, GraphBuilder, QuantParams, Shape, TensorType
from rlx_edge.ir.dtype import NOT_AT_THE_EDGE
from rlx_edge.ir.ops import Concat, Dequantize, Op, Param, Pool, ReduceOp, Reshape, Transpose

MOVING = (Reshape, Transpose, Concat)
"""Ops whose result stands for real values as their operands do."""

TENSOR_LIMIT = 1 << 26
"""Elements that one tensor may have: a small file can ask for any size (Expand, Tile), which running would make."""

Names = Mapping[str, tuple[str, tuple[str, ...]]]
"""For each tensor of the file, the name of its node in our graph, and its sources."""


class RefusedError(Exception):
    """Why one node cannot be imported; the importer adds which node it is."""


class MissingError(RefusedError):
    """A node needs a tensor that no node before it made: one that was refused, which has been reported."""


class Tensors:
    """What is known of the ONNX tensors met so far: a node of the graph, values known ahead of time, or both."""

    def __init__(self, builder: GraphBuilder, known: dict[str, Array]) -> None:
        self.builder = builder
        self.known = known
        self.blocks: dict[str, Blocks] = {}
        """Known values that the file has as integers with a scale a block."""
        self._ids: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.known or name in self._ids

    def bind(self, name: str, node_id: int) -> None:
        self._ids[name] = node_id

    def node_id(self, name: str) -> int:
        """The node that holds a tensor; known values become a parameter on first use."""
        if name not in self._ids:
            self.type(name)
            values = self.known[name]
            if values.size == 0:
                raise RefusedError(f"the constant {name!r} of shape {list(values.shape)} has no elements")
            self._ids[name] = self.builder.param(name, np.array(values))
        return self._ids[name]

    def shape(self, name: str) -> Shape:
        return self.known[name].shape if name in self.known else self._computed(name).shape

    def type(self, name: str) -> TensorType:
        """Raises RefusedError for a constant of a dtype that the IR does not have."""
        if name not in self.known:
            return self._computed(name)
        values = self.known[name]
        refused = RefusedError(f"the constant {name!r} is {values.dtype}, which is not computed with")
        try:
            dtype = DType.of(values)
        except ValueError:
            raise refused from None
        if dtype in NOT_AT_THE_EDGE:
            raise refused
        return TensorType(values.shape, dtype)

    def _computed(self, name: str) -> TensorType:
        if name not in self._ids:
            raise MissingError(f"it needs {name!r}, which nothing before it makes")
        return self.builder[self._ids[name]].type


class OnnxNode:
    """A node on its way into the graph. Every accessor raises RefusedError for what cannot be honored.

    `read` holds the names of all tensors that something reads.
    """

    def __init__(
        self, proto: onnx.NodeProto, opset: int, tensors: Tensors, names: Names, read: Collection[str] = ()
    ) -> None:
        self.proto = proto
        self.opset = opset
        self.tensors = tensors
        self._names = names
        self._read_names = read
        self._unread = {attribute.name: attribute for attribute in proto.attribute}

    # ---- Attributes --------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the attribute is there."""
        return name in self._unread

    def integer(self, name: str, default: int) -> int:
        return int(self._read(name, onnx.AttributeProto.INT, default))

    def real(self, name: str, default: float) -> float:
        return float(self._read(name, onnx.AttributeProto.FLOAT, default))

    def text(self, name: str, default: str) -> str:
        value = self._read(name, onnx.AttributeProto.STRING, default)
        return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value)

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(v) for v in self._read(name, onnx.AttributeProto.INTS, default))

    def reals(self, name: str, default: Sequence[float]) -> tuple[float, ...]:
        return tuple(float(v) for v in self._read(name, onnx.AttributeProto.FLOATS, default))

    def without_effect(self, *names: str) -> None:
        """Mark attributes that say nothing about inference."""
        for name in names:
            self._unread.pop(name, None)

    def unread(self) -> list[str]:
        """Attributes that no builder asked for."""
        return sorted(self._unread)

    def _read(self, name: str, kind: int, default: object) -> Any:
        attribute = self._unread.pop(name, None)
        if attribute is None:
            return default
        if attribute.type != kind:
            raise RefusedError(f"attribute {name} has another type than ONNX gives it")
        return onnx.helper.get_attribute_value(attribute)

    # ---- Operands ----------------------------------------------------------------------------------------------------

    @property
    def operand_count(self) -> int:
        return len(self.proto.input)

    def given(self, index: int) -> bool:
        """Whether an optional operand is there."""
        return index < len(self.proto.input) and self.proto.input[index] != ""

    def operand(self, index: int) -> int:
        """The node that computes an operand."""
        return self.tensors.node_id(self._operand_name(index))

    def operands(self) -> list[int]:
        """The nodes of all operands, for an op that takes any number of them."""
        return [self.operand(i) for i in range(self.operand_count)]

    def shape(self, index: int) -> Shape:
        return self.tensors.shape(self._operand_name(index))

    def rank(self, index: int) -> int:
        return len(self.shape(index))

    def dtype(self, index: int) -> DType:
        return self.tensors.type(self._operand_name(index)).dtype

    def known(self, index: int) -> Array | None:
        """An operand's values where they are known ahead of time."""
        return self.tensors.known.get(self._operand_name(index))

    def constant(self, index: int, what: str) -> Array:
        """An operand's values. Raises RefusedError, saying what it is, when it is computed."""
        values = self.known(index)
        if values is None:
            raise RefusedError(f"{what} is computed by the model; it must be a constant")
        return values

    def number(self, index: int, what: str) -> float:
        """A constant operand of one element."""
        values = self._dequantized(index)
        if values is None:
            values = self.constant(index, what)
        if values.size != 1 or values.dtype.kind not in "fiub":
            raise RefusedError(
                f"{what} has the shape {list(values.shape)} and the dtype {values.dtype}, not one number"
            )
        return float(values.reshape(()))

    def _dequantized(self, index: int) -> Array | None:
        """The real value of one quantized constant, as quantizers make of a padding value."""
        if self.known(index) is not None:
            return None
        builder, node = self.tensors.builder, self.tensors.builder[self.operand(index)]
        if not isinstance(node.op, Dequantize) or node.type.elements != 1:
            return None
        held = builder[node.inputs[0]].op
        if not isinstance(held, Param):
            return None
        values = builder.params[held.name]
        real = (values.astype(np.float64) - node.op.zero_points[0]) * node.op.scales[0]
        return np.asarray(real, np.float32)

    def indices(self, index: int, what: str) -> tuple[int, ...]:
        """A constant operand of integers."""
        values = self.constant(index, what)
        if values.dtype.kind != "i":
            raise RefusedError(f"{what} is {values.dtype}, not integers")
        return tuple(int(v) for v in values.reshape(-1))

    def index(self, index: int, what: str) -> int:
        """A constant operand of one integer."""
        values = self.indices(index, what)
        if len(values) != 1:
            raise RefusedError(f"{what} has {len(values)} elements, not one")
        return values[0]

    def _operand_name(self, index: int) -> str:
        if not self.given(index):
            raise RefusedError(f"operand {index} is missing")
        return str(self.proto.input[index])

    # ---- Results -----------------------------------------------------------------------------------------------------

    def wants(self, output: int) -> bool:
        """Whether something reads this output."""
        return output < len(self.proto.output) and self.proto.output[output] in self._read_names

    def named(self, output: int = 0) -> tuple[str, tuple[str, ...]]:
        """The name of an output's node in our graph, and its sources."""
        name = self.proto.output[output]
        return self._names.get(name, (name, (name,)))

    @property
    def name(self) -> str:
        """The name of the first result in our graph."""
        return self.named()[0]

    def step(self, op: Op, operands: Sequence[int], suffix: str) -> int:
        """Append an op whose result is not a tensor of the ONNX graph, but something on the way to it."""
        return self._bounded(self.tensors.builder.add(op, operands, f"{self.name}.{suffix}", self._moved(op, operands)))

    def result(self, op: Op, operands: Sequence[int], output: int = 0) -> int:
        """Append the op that computes one of the node's results."""
        name, sources = self.named(output)
        return self._bounded(self.tensors.builder.add(op, operands, name, self._moved(op, operands), sources))

    def quantized(self, op: Op, operands: Sequence[int], quant: QuantParams) -> int:
        """As `result`, for a tensor that stands for real values by these parameters."""
        name, sources = self.named()
        return self._bounded(self.tensors.builder.add(op, operands, name, quant, sources))

    def _moved(self, op: Op, operands: Sequence[int]) -> QuantParams | None:
        """The parameters of what only moves or selects int8 values that stand for real ones, all at the same ones."""
        held = {self.type_of(i).quant for i in operands}
        moves = isinstance(op, MOVING) or (isinstance(op, Pool) and op.kind is ReduceOp.MAX)
        return held.pop() if moves and len(held) == 1 else None

    def nothing(self, output: int, shape: Shape) -> None:
        """A result without elements, which is known and becomes no node; Concat leaves it out."""
        self.tensors.known[self.proto.output[output]] = np.zeros(shape, self.dtype(0).numpy)

    def parameter(self, suffix: str, values: Array) -> int:
        """A float32 parameter made from the node's constants."""
        return self.values(suffix, np.asarray(values, np.float32))

    def values(self, suffix: str, values: Array) -> int:
        """A parameter that keeps its dtype."""
        return self.tensors.builder.param(f"{self.name}.{suffix}", np.array(values, order="C"))

    def scalar(self, suffix: str, value: float, dtype: DType = DType.F32) -> int:
        """A parameter of one element, of rank 0."""
        return self.values(suffix, np.array(value, dtype.numpy))

    def type_of(self, node_id: int) -> TensorType:
        return self.tensors.builder[node_id].type

    def _bounded(self, node_id: int) -> int:
        type = self.type_of(node_id)
        if type.elements > TENSOR_LIMIT:
            raise RefusedError(f"it makes a tensor {type} of more than {TENSOR_LIMIT} elements")
        return node_id


Built = int | Sequence[int | None]
"""A node's results: the first one's node, or one entry an output (None: not supported)."""

Builder = Callable[[OnnxNode], Built]
"""Appends a node's meaning to the graph and returns the ids of its results."""


def read_axes(node: OnnxNode, index: int, before: int, default: Sequence[int]) -> tuple[int, ...]:
    """Axes are an attribute before an opset, and an operand from it on."""
    if node.opset < before:
        return node.integers("axes", default)
    return node.indices(index, "operand axes") if node.given(index) else tuple(default)


def from_start(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the first one. Raises RefusedError for one that is not there."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise RefusedError(f"axis {axis} of a tensor of rank {rank}")
    return tuple(axis % rank for axis in axes)
