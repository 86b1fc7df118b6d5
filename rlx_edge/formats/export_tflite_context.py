"""The growing `.tflite` file: which tensor stands for which node, and the operators so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.export_tflite_file import OpSpec, TensorSpec
from rlx_edge.formats.tflite_context import PACKED_BITS
from rlx_edge.formats.tflite_fused import FUSED_LIMITS, fused_bounds
from rlx_edge.ir import Array, DType, Graph, Node, QuantParams, Shape, TensorType, subbyte
from rlx_edge.ir.ops import Leaf

Bounds = tuple[int, int]

TYPE_NAMES: Mapping[DType, str] = {
    **{DType.F32: "FLOAT32", DType.I8: "INT8", DType.I32: "INT32"},
    **{DType.I4: "INT4", DType.I2: "INT4"},  # The schema's INT2 is younger than the runtimes.
}

INT8_VERSIONS: Mapping[str, int] = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN"), 2),
    **dict.fromkeys(("SOFTMAX", "PAD", "PADV2", "CONCATENATION", "TRANSPOSE", "DEQUANTIZE"), 2),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE", "SPLIT", "UNPACK", "PACK", "MIRROR_PAD", "TILE", "BROADCAST_TO"), 2),
    **dict.fromkeys(("GATHER", "LOGISTIC", "TANH", "ABS", "RELU"), 2),
    "CAST": 3,
}
"""The first version of each operator that takes int8; 1 for the others. From TensorFlow Lite's op_version.cc."""

_INT4_VERSIONS: Mapping[str, int] = {"CONV_2D": 7, "DEPTHWISE_CONV_2D": 7, "FULLY_CONNECTED": 10}
"""The first versions that take int8 with int4 weights. tflite-runtime 2.14 has these kernels under older versions."""

_RANK_VERSIONS: Mapping[str, int] = {"PAD": 4, "PADV2": 4, "TRANSPOSE": 4, "MAXIMUM": 3, "MINIMUM": 3, "SUB": 3}
"""The same for tensors of more than four axes."""

GROUPED_CONV_VERSION = 6
RESCALING_MUL_VERSION = 3


class Exporter:
    """Collects tensors and operators. Operators are in execution order, because nodes are."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: list[TensorSpec] = []
        self.operators: list[OpSpec] = []
        self.notes: list[str] = []
        """What the file says in another way than the graph does, a line each."""
        self._indices: dict[int, int] = {}
        self._names = {node.name for node in graph.nodes}
        self._integers: dict[tuple[int, ...], int] = {}
        self._weights: dict[tuple[int, Shape, QuantParams, DType], int] = {}
        self._weight_names: set[int] = set()

    # ---- Tensors ----------------------------------------------------------------------------------------------------

    def tensor(self, node: Node) -> int:
        """The tensor of a node, which is made on first use. Raises UnsupportedError for a type that has no form."""
        if node.id not in self._indices:
            spec = tensor_spec(node.name, node.type)
            if isinstance(node.op, Leaf):
                spec = replace(spec, data=self.graph.constant(node))
            self._indices[node.id] = self._append(spec)
        return self._indices[node.id]

    def operands(self, node: Node) -> list[int]:
        return [self.tensor(operand) for operand in self.graph.operands(node)]

    def scratch(self, node: Node, suffix: str, type: TensorType) -> int:
        """A tensor on the way to a node's value, with a name of its own."""
        return self._append(tensor_spec(self._unique(f"{node.name}.{suffix}"), type))

    def constant(self, node: Node, suffix: str, values: Array, quant: QuantParams | None = None) -> int:
        """A constant that only the file needs."""
        type = TensorType(values.shape, DType.of(values), quant)
        return self._append(replace(tensor_spec(self._unique(f"{node.name}.{suffix}"), type), data=values))

    def weights(self, node: Node, values: Array, quant: QuantParams, dtype: DType | None = None) -> int:
        """The constant of a Param in the axis order of the operators that read it; one tensor however many do.
        `dtype` is I4 or I2 for int8 values that these hold."""
        type = TensorType(values.shape, dtype or DType.of(values), quant)
        key = (node.id, values.shape, quant, type.dtype)
        if key not in self._weights:
            name = self._unique(node.name) if node.id in self._weight_names else node.name
            self._weight_names.add(node.id)
            spec = tensor_spec(name, type)
            self._weights[key] = self._append(replace(spec, data=values))
        return self._weights[key]

    def integers(self, values: Sequence[int], what: str) -> int:
        """An INT32 vector: a shape, axes or a permutation. Equal ones are one tensor."""
        key = tuple(values)
        if key not in self._integers:
            data = np.array(key, np.int32)
            self._integers[key] = self._append(TensorSpec(self._unique(what), data.shape, "INT32", data=data))
        return self._integers[key]

    def _append(self, spec: TensorSpec) -> int:
        if spec.type in PACKED_BITS and spec.data is not None:
            spec = replace(spec, data=subbyte.pack(spec.data, PACKED_BITS[spec.type]))
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def _unique(self, name: str) -> str:
        found, count = name, 2
        while found in self._names:
            found, count = f"{name}_{count}", count + 1
        self._names.add(found)
        return found

    # ---- Operators --------------------------------------------------------------------------------------------------

    def emit(
        self, kind: str, inputs: Sequence[int], output: int, options: str = "", version: int = 0, **fields: Any
    ) -> int:
        """Append an operator. Its version follows from the types of its tensors unless it is given."""
        found = version or self._version(kind, [*inputs, output])
        self.operators.append(OpSpec(kind, tuple(inputs), (output,), options, fields, version=found))
        return output

    def emit_bounded(
        self,
        node: Node,
        clamp: Bounds | None,
        kind: str,
        inputs: Sequence[int],
        options: str,
        version: int = 0,
        **fields: Any,
    ) -> None:
        """Append the operator that computes a node's value, its bounds fused as far as an activation has them."""
        bounds = clamp or DType.I8.limits
        activation = _tightest_activation(bounds, quant_of(node.type))
        rest = _missing_bounds(bounds, fused_bounds(activation, quant_of(node.type)))
        first = self.scratch(node, "unbounded", node.type) if rest else self.tensor(node)
        self.emit(kind, inputs, first, options, version, **fields, FusedActivationFunction=activation)
        self.emit_bounds(node, first, rest)

    def emit_bounds(self, node: Node, x: int, bounds: Mapping[str, int]) -> None:
        """Append MAXIMUM and MINIMUM with constants, the last of which computes the node's value."""
        for step, (kind, code) in enumerate(bounds.items(), 1):
            quant = quant_of(node.type)
            limit = self.constant(node, kind.lower(), np.array([code], np.int8), quant)
            last = step == len(bounds)
            output = self.tensor(node) if last else self.scratch(node, f"{kind.lower()}_of", node.type)
            x = self.emit(kind, [x, limit], output, "MaximumMinimumOptions")

    def emit_pad(self, node: Node, x: int, pads: Sequence[Bounds], value: float, output: int) -> int:
        """Append PAD, or PADV2 where positions are not filled with the real value 0. `value` is a code on int8."""
        spec = self.tensors[x]
        widths = self.constant(node, "pads", np.array(pads, np.int32).reshape(len(pads), 2))
        if value == (spec.zero_points[0] if spec.scales else 0.0):
            return self.emit("PAD", [x, widths], output, "PadOptions")
        dtype = np.int8 if spec.type == "INT8" else np.float32
        quant = QuantParams(spec.scales, spec.zero_points) if spec.scales else None
        filler = self.constant(node, "padding", np.array([value], dtype), quant)
        return self.emit("PADV2", [x, widths, filler], output, "PadV2Options")

    def _version(self, kind: str, tensors: Sequence[int]) -> int:
        specs = [self.tensors[index] for index in tensors]
        if kind in _RANK_VERSIONS and max(len(spec.shape) for spec in specs) > 4:
            return _RANK_VERSIONS[kind]
        if kind in _INT4_VERSIONS and specs[1].type == "INT4":
            return _INT4_VERSIONS[kind]
        return INT8_VERSIONS.get(kind, 1) if specs[0].type == "INT8" else 1


def quant_of(type: TensorType) -> QuantParams:
    """The parameters of an int8 activation. Raises UnsupportedError where there are none."""
    if type.quant is None:
        raise UnsupportedError(f"a tensor {type} without quantization parameters")
    return type.quant


def missing_bounds(clamp: Bounds | None) -> dict[str, int]:
    """The operators, and their constants, that bound a result that is int8 already."""
    return _missing_bounds(clamp or DType.I8.limits, DType.I8.limits)


def _missing_bounds(bounds: Bounds, held: Bounds) -> dict[str, int]:
    found = {}
    if bounds[0] != held[0]:
        found["MAXIMUM"] = bounds[0]
    if bounds[1] != held[1]:
        found["MINIMUM"] = bounds[1]
    return found


def _tightest_activation(bounds: Bounds, out: QuantParams) -> int:
    """The fused activation that bounds as much as it can of these bounds, and nothing else."""

    def missing(activation: int) -> int:
        low, high = fused_bounds(activation, out)
        covers = low <= bounds[0] and bounds[1] <= high
        return len(_missing_bounds(bounds, (low, high))) if covers else 3

    return min(FUSED_LIMITS, key=missing)


def tensor_spec(name: str, type: TensorType) -> TensorSpec:
    """The file's form of a tensor. Raises UnsupportedError for a dtype or a scale that it has not."""
    if type.dtype not in TYPE_NAMES:
        raise UnsupportedError(f"the {type.dtype.value} tensor {name!r} (int8, float32 and int32 are exported)")
    quant = type.quant
    if quant is None:
        if type.dtype is DType.I8:
            raise UnsupportedError(f"the int8 tensor {name!r} without quantization parameters")
        return TensorSpec(name, type.shape, TYPE_NAMES[type.dtype])
    if any(float(np.float32(scale)) != scale for scale in quant.scales):
        raise UnsupportedError(f"the tensor {name!r}, whose scale is not a float32 number; .tflite stores float32")
    return TensorSpec(name, type.shape, TYPE_NAMES[type.dtype], quant.scales, quant.zero_points, quant.axis or 0)
