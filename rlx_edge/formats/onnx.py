"""Float `.onnx` models in. Layout stays NCHW as in the file; a pass moves it to NHWC.

A symbolic first axis of an input (the batch) becomes 1. What is known ahead of time (initializers, shapes, and every op
on them alone) is worked out here and never becomes a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.shape_inference
from google.protobuf.message import DecodeError

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.onnx_fold import NOT_FUNCTIONS, Folder, first_line
from rlx_edge.formats.onnx_node import OnnxNode, RefusedError, Tensors
from rlx_edge.formats.onnx_ops import OPS
from rlx_edge.formats.source import model_name, read_source
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import Input, Param, Reshape, ShapeError

OLDEST_OPSET = 7
"""Before it, elementwise ops had broadcasting rules of their own."""

DOMAINS = ("", "ai.onnx")

GRAPH_KINDS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)

Names = Mapping[str, tuple[str, tuple[str, ...]]]


def load_onnx(source: str | Path | bytes) -> Graph:
    """The float graph of an `.onnx` file, given as a path or as its bytes.

    Raises ModelError for a file that cannot be read or is not well formed, and UnsupportedError that lists every op and
    attribute that is not supported, with the node's name and position.
    """
    path = source if isinstance(source, bytes) else Path(source)
    data, label = read_source(path)
    model = _parse(data, label)
    return _Importer(model, _check(model, label), label, model_name(path)).graph()


def _parse(data: bytes, label: str) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{label}: not an ONNX file, or a truncated one ({len(data)} bytes)") from error
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise ModelError(f"{label}: not an ONNX model, or a truncated one: it holds no graph")
    return model


def _check(model: onnx.ModelProto, label: str) -> int:
    """The model's opset. Raises for a model that ONNX itself calls malformed, or that is beyond this importer."""
    for tensor in _stored_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UnsupportedError(
                f"{label}: the values of {tensor.name!r} are in another file; save the model as one file "
                f"(onnx.save_model with save_as_external_data=False)"
            )
    if model.graph.sparse_initializer:
        raise UnsupportedError(f"{label}: sparse initializers are not supported; store the weights as dense tensors")
    opset = next((entry.version for entry in model.opset_import if entry.domain in DOMAINS), 0)
    if opset < OLDEST_OPSET:
        raise UnsupportedError(
            f"{label}: opset {opset or 'of ai.onnx missing'}; opset {OLDEST_OPSET} or newer is needed "
            "(onnx.version_converter converts)"
        )
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise ModelError(f"{label}: not a valid ONNX model: {first_line(error)}") from error
    return int(opset)


def _stored_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that the file holds: initializers and attributes, also of nested graphs and of functions."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    attributes = [attribute for function in model.functions for attribute in function.attribute_proto]
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            yield from (part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices))
            nodes += graph.node
            continue
        attributes += [attribute for node in nodes for attribute in node.attribute]
        nodes = []
        for attribute in attributes:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            graphs += [attribute.g, *attribute.graphs] if attribute.type in GRAPH_KINDS else []
        attributes = []


class _Importer:
    """Walks the nodes once, collecting every refusal; what a refused node would have made is stood in for."""

    def __init__(self, model: onnx.ModelProto, opset: int, label: str, name: str) -> None:
        self.proto = model.graph
        self.model = model
        self.opset = opset
        self.folder = Folder(opset)
        self.label = label
        self.problems: list[str] = []
        known = {t.name: _values(t, label) for t in self.proto.initializer}
        self.tensors = Tensors(GraphBuilder(name), known)
        self.tensors.builder.metadata["layout"] = "NCHW"  # of images at inputs and outputs, which passes keep
        self.names = _names(self.proto)
        self.inferred: dict[str, Shape] | None = None

    def graph(self) -> Graph:
        for value in self.proto.input:
            if value.name not in self.tensors.known:
                self._add_input(value)
        for position, proto in enumerate(self.proto.node):
            self._add_node(position, proto)
        if self.problems:
            count = len(self.problems)
            raise UnsupportedError(
                f"{self.label}: {count} thing{'s' if count > 1 else ''} that the importer does not support "
                "(docs/models.md lists what it does):",
                self.problems,
            )
        missing = [value.name for value in self.proto.output if value.name not in self.tensors]
        if missing:
            raise ModelError(f"{self.label}: no node makes the output {missing[0]!r}")
        return self.tensors.builder.build([self._output(value.name) for value in self.proto.output])

    def _output(self, name: str) -> int:
        """The node of an output. One that only passes on an input or another output is a copy of that tensor."""
        builder = self.tensors.builder
        if name in self.tensors.known or isinstance(builder[self.tensors.node_id(name)].op, Param):
            raise UnsupportedError(f"{self.label}: the output {name!r} is a constant; take it out of the model")
        node = builder[self.tensors.node_id(name)]
        if node.name == name and not isinstance(node.op, Input):
            return node.id
        copy = builder.add(Reshape(node.type.shape), [node.id], name, sources=(name,))
        if builder[copy].name != name:
            raise UnsupportedError(f"{self.label}: the output {name!r} is also an input or another tensor; rename it")
        return copy

    def _add_input(self, value: onnx.ValueInfoProto) -> None:
        if not value.type.HasField("tensor_type"):
            self.problems.append(f"input {value.name!r} is not a tensor")
            return
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        shape = (1, *shape[1:]) if shape and shape[0] == 0 else shape
        dtype = onnx.TensorProto.DataType.Name(tensor.elem_type)
        if dtype != "FLOAT":
            self.problems.append(f"input {value.name!r} is {dtype}; only float32 models are imported")
        elif not tensor.HasField("shape"):
            self.problems.append(f"input {value.name!r} has no shape; export the model with fixed sizes")
        elif 0 in shape:
            axis = shape.index(0)
            symbol = tensor.shape.dim[axis].dim_param or "?"
            self.problems.append(
                f"input {value.name!r} has no fixed size at axis {axis} ({symbol}); export the model with fixed sizes"
            )
        shape = tuple(d or 1 for d in shape)
        node_id = self.tensors.builder.input(value.name, TensorType(shape, DType.F32), sources=(value.name,))
        self.tensors.bind(value.name, node_id)

    def _add_node(self, position: int, proto: onnx.NodeProto) -> None:
        if any(name and name not in self.tensors for name in proto.input):
            return  # It needs what a refused node of unknown shape would have made; that one has been reported.
        try:
            self._build(proto)
        except (RefusedError, ShapeError) as problem:
            domain = f"{proto.domain}." if proto.domain not in DOMAINS else ""
            title = f"node {position} {proto.name or proto.output[0]!r} ({domain}{proto.op_type})"
            self.problems.append(f"{title}: {problem}")
            self._stand_in(proto)

    def _build(self, proto: onnx.NodeProto) -> None:
        known = self._known_result(proto)
        if known is not None:
            self.tensors.known.update(known)
            return
        builder = OPS.get(proto.op_type) if proto.domain in DOMAINS else None
        if builder is None:
            raise RefusedError("this op is not supported")
        node = OnnxNode(proto, self.opset, self.tensors, self.names)
        result = builder(node)
        if node.unread():
            raise RefusedError(f"attribute {', '.join(node.unread())} is not supported")
        used = [name for name in proto.output[1:] if name and name in self._read_names]
        if used:
            raise RefusedError(f"its further output {used[0]!r} is not supported")
        self.tensors.bind(proto.output[0], result)

    @property
    def _read_names(self) -> set[str]:
        return {name for node in self.proto.node for name in node.input} | {value.name for value in self.proto.output}

    def _known_result(self, proto: onnx.NodeProto) -> dict[str, Array] | None:
        """The outputs of a node whose inputs are all known, or None where they are not."""
        if proto.domain not in DOMAINS:
            return None
        if proto.op_type == "Shape":
            shape = np.array(self.tensors.type(proto.input[0]).shape, np.int64)
            return {proto.output[0]: _shape_slice(proto, shape)}
        foldable = bool(proto.input) or proto.op_type == "Constant"
        nested = any(a.type in GRAPH_KINDS for a in proto.attribute)
        inputs = {name: self.tensors.known.get(name) for name in proto.input if name}
        if not foldable or nested or proto.op_type in NOT_FUNCTIONS or any(v is None for v in inputs.values()):
            return None
        return self.folder.evaluate(proto, {name: value for name, value in inputs.items() if value is not None})

    def _stand_in(self, proto: onnx.NodeProto) -> None:
        """Bind a refused node's outputs to inputs of the right shape, so that what follows is checked too."""
        if self.inferred is None:
            self.inferred = dict(_inferred_shapes(self.model))
        for name in proto.output:
            if name in self.inferred:
                type = TensorType(self.inferred[name], DType.F32)
                self.tensors.bind(name, self.tensors.builder.input(name, type))


def _values(tensor: onnx.TensorProto, label: str) -> Array:
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise ModelError(f"{label}: the values of {tensor.name!r} cannot be read: {first_line(error)}") from error


def _names(graph: onnx.GraphProto) -> Names:
    """For each tensor, its node's name and sources: itself and the tensors that only pass it on.

    Identity and Dropout make no node. Where such tensors are outputs of the graph, the first one's name wins; each
    other one is a tensor of its own.
    """
    same: dict[str, list[str]] = {}
    for node in reversed(graph.node):
        first = node.output[0]
        same.setdefault(first, [first])
        if node.op_type in ("Identity", "Dropout") and node.input:
            same[node.input[0]] = [*same.get(node.input[0], [node.input[0]]), *same[first]]
    outputs = {value.name for value in graph.output}
    names = {}
    for name, all in same.items():
        chosen = next((n for n in all if n in outputs), name)
        names[name] = chosen, tuple(n for n in all if n == chosen or n not in outputs)
    return names


def _shape_slice(proto: onnx.NodeProto, shape: Array) -> Array:
    bounds = {a.name: a.i for a in proto.attribute if a.name in ("start", "end")}
    return shape[slice(bounds.get("start"), bounds.get("end"))]


def _inferred_shapes(model: onnx.ModelProto) -> Iterator[tuple[str, Shape]]:
    """What ONNX's shape inference finds, symbolic sizes as 1."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return  # A help for reporting only: nodes that depend on the refused one then go unchecked.
    for value in inferred.graph.value_info:
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
            yield value.name, tuple(d.dim_value or 1 for d in value.type.tensor_type.shape.dim)
