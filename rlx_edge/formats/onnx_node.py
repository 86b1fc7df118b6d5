"""One ONNX node as the builders see it: attributes, operands, and a way to append ops.

Whatever of a node is not read is refused, so that nothing in a file is ever ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from rlx_edge.ir import Array, DType, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import Op


class RefusedError(Exception):
    """Why one node cannot be imported; the importer adds which node it is."""


class Tensors:
    """What is known of the ONNX tensors met so far: a node of the graph, values known ahead of time, or both."""

    def __init__(self, builder: GraphBuilder, known: dict[str, Array]) -> None:
        self.builder = builder
        self.known = known
        self._ids: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.known or name in self._ids

    def bind(self, name: str, node_id: int) -> None:
        self._ids[name] = node_id

    def node_id(self, name: str) -> int:
        """The node that holds a tensor; known values become a parameter on first use."""
        if name not in self._ids:
            values = self.known[name]
            if values.dtype != np.float32:
                raise RefusedError(f"the constant {name!r} is {values.dtype}; only float32 tensors are computed with")
            self._ids[name] = self.builder.param(name, np.array(values, np.float32))
        return self._ids[name]

    def type(self, name: str) -> TensorType:
        if name in self.known:
            return TensorType(self.known[name].shape, DType.F32)
        return self.builder[self._ids[name]].type


class OnnxNode:
    """A node on its way into the graph. Every accessor raises RefusedError for what cannot be honored."""

    def __init__(
        self, proto: onnx.NodeProto, opset: int, tensors: Tensors, names: Mapping[str, tuple[str, tuple[str, ...]]]
    ) -> None:
        self.proto = proto
        self.opset = opset
        self.tensors = tensors
        self._names = names
        self._unread = {attribute.name: attribute for attribute in proto.attribute}

    # ---- Attributes --------------------------------------------------------------------------------------------------

    def integer(self, name: str, default: int) -> int:
        return int(self._read(name, onnx.AttributeProto.INT, default))

    def real(self, name: str, default: float) -> float:
        return float(self._read(name, onnx.AttributeProto.FLOAT, default))

    def text(self, name: str, default: str) -> str:
        value = self._read(name, onnx.AttributeProto.STRING, default)
        return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value)

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(v) for v in self._read(name, onnx.AttributeProto.INTS, default))

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

    def shape(self, index: int) -> Shape:
        return self.tensors.type(self._operand_name(index)).shape

    def known(self, index: int) -> Array | None:
        """An operand's values where they are known ahead of time."""
        return self.tensors.known.get(self._operand_name(index))

    def constant(self, index: int, what: str) -> Array:
        """An operand's values. Raises RefusedError, saying what it is, when it is computed."""
        values = self.known(index)
        if values is None:
            raise RefusedError(f"{what} is computed by the model; it must be a constant")
        return values

    def indices(self, index: int, what: str) -> tuple[int, ...]:
        """A constant operand of integers."""
        values = self.constant(index, what)
        if values.dtype.kind != "i":
            raise RefusedError(f"{what} is {values.dtype}, not integers")
        return tuple(int(v) for v in values.reshape(-1))

    def _operand_name(self, index: int) -> str:
        if not self.given(index):
            raise RefusedError(f"operand {index} is missing")
        return str(self.proto.input[index])

    # ---- Results -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the node's result in our graph."""
        return self._names[self.proto.output[0]][0]

    def step(self, op: Op, operands: Sequence[int], suffix: str) -> int:
        """Append an op whose result is not a tensor of the ONNX graph, but something on the way to it."""
        return self.tensors.builder.add(op, operands, f"{self.name}.{suffix}")

    def result(self, op: Op, operands: Sequence[int]) -> int:
        """Append the op that computes the node's result."""
        name, sources = self._names[self.proto.output[0]]
        return self.tensors.builder.add(op, operands, name, sources=sources)

    def parameter(self, suffix: str, values: Array) -> int:
        """A float32 parameter made from the node's constants."""
        return self.tensors.builder.param(f"{self.name}.{suffix}", np.ascontiguousarray(values, np.float32))
