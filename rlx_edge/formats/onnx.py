"""`.onnx` models in. Layout stays NCHW as in the file; a pass moves it to NHWC.

A symbolic first axis of an input (the batch) becomes 1; other symbolic sizes are bound by the caller. What is known
ahead of time (initializers, shapes, and every op on them alone) is worked out here and never becomes a node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
from google.protobuf.message import DecodeError, Message

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats import onnx_functions
from rlx_edge.formats.onnx_elementwise import DTYPES
from rlx_edge.formats.onnx_fold import NOT_FUNCTIONS, Folder, first_line, stored_values
from rlx_edge.formats.onnx_node import TENSOR_LIMIT, MissingError, OnnxNode, RefusedError, Tensors
from rlx_edge.formats.onnx_ops import OPS
from rlx_edge.formats.onnx_quant import FOLDED, MICROSOFT, KnownIntegers, input_quant
from rlx_edge.formats.onnx_quant_expand import expand
from rlx_edge.formats.onnx_quant_lower import lower_quantized
from rlx_edge.formats.source import model_name, read_source
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import Input, Param, Reshape, ShapeError

OLDEST_OPSET = 7
"""Before it, elementwise ops had broadcasting rules of their own."""

DOMAINS = ("", "ai.onnx")

GRAPH_KINDS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def load_onnx(source: str | Path | bytes, dims: Mapping[str, int] | None = None) -> Graph:
    """The graph of an `.onnx` file, given as a path or as its bytes.

    `dims` gives sizes for symbolic axes of inputs by their names in the file; a symbolic first axis that it does not
    name becomes 1. Inputs are float32, int8, uint8, int16, int32, int64 or bool. Raises ModelError for a file that
    cannot be read or is not well formed, and UnsupportedError that lists every op and attribute that is not supported,
    with the node's name and position.
    """
    path = source if isinstance(source, bytes) else Path(source)
    data, label = read_source(path)
    model = _parse(data, label)
    return _Importer(model, _check(model, label), label, model_name(path), dims or {}).graph()


def _parse(data: bytes, label: str) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{label}: not an ONNX file, or a truncated one ({len(data)} bytes)") from error
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise ModelError(f"{label}: not an ONNX model, or a truncated one: it holds no graph")
    field = _undecodable(model)
    if field:
        raise ModelError(f"{label}: is damaged: a {field} in it is not UTF-8 text")
    return model


def _undecodable(message: Message) -> str | None:
    """The field of a text that is not UTF-8, which protobuf hands out as bytes; None where there is none."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            texts = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(text, bytes) for text in texts):
                return str(field.name)
        elif field.type == field.TYPE_MESSAGE:
            for inner in [value] if isinstance(value, Message) else value:
                found = _undecodable(inner)
                if found:
                    return found
    return None


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

    def __init__(self, model: onnx.ModelProto, opset: int, label: str, name: str, dims: Mapping[str, int]) -> None:
        self.proto = model.graph
        self.opset = opset
        self.folder = Folder()
        self.integers = KnownIntegers()
        self.label = label
        self.dims = dims
        self.problems: list[str] = []
        known = {t.name: _values(t, label) for t in self.proto.initializer}
        self.tensors = Tensors(GraphBuilder(name), known)
        self.tensors.builder.metadata["layout"] = "NCHW"  # of images at inputs and outputs, which passes keep
        self.names = _names(self.proto)
        self.read = {name for node in self.proto.node for name in node.input} | {v.name for v in self.proto.output}
        self.functions = onnx_functions.local_functions(model)
        self.inner = onnx_functions.Names(_all_names(self.proto))
        self.expanded = 0
        self.declared = dict(_declared_types(self.proto))

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
        built = self.tensors.builder.build([self._output(value.name) for value in self.proto.output])
        return lower_quantized(built, self.integers.biases, self.label)

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
        sizes = [d.dim_value or self.dims.get(d.dim_param, 0) for d in tensor.shape.dim]
        shape = (1, *sizes[1:]) if sizes and sizes[0] == 0 and not _is_empty(tensor.shape.dim[0]) else tuple(sizes)
        dtype = DTYPES.get(tensor.elem_type)
        if dtype is None:
            type_name = onnx.TensorProto.DataType.Name(tensor.elem_type)
            self.problems.append(
                f"input {value.name!r} is {type_name}; float32, int8, uint8, int16, int32, int64 and bool are imported"
            )
        elif not tensor.HasField("shape"):
            self.problems.append(f"input {value.name!r} has no shape; export the model with fixed sizes")
        elif min(shape, default=1) < 1:
            self.problems.append(self._open_axis(value))
        elif math.prod(shape) > TENSOR_LIMIT:
            self.problems.append(f"input {value.name!r} has the shape {list(shape)}: more than {TENSOR_LIMIT} elements")
        shape = tuple(d if d > 0 else 1 for d in shape)
        quant = input_quant(self.proto, value, self.tensors.known)
        type = TensorType(shape, DType.I8, quant) if quant is not None else TensorType(shape, dtype or DType.F32)
        node_id = self.tensors.builder.input(value.name, type, sources=(value.name,))
        self.tensors.bind(value.name, node_id)

    def _open_axis(self, value: onnx.ValueInfoProto) -> str:
        """What is wrong with an input of which axes have no size, or none above 0."""
        dims = value.type.tensor_type.shape.dim
        open = [
            i for i, d in enumerate(dims) if (d.dim_value or self.dims.get(d.dim_param, 0)) < 1 and (i or _is_empty(d))
        ]
        for axis in open:
            if _is_empty(dims[axis]) or dims[axis].dim_param in self.dims:
                return f"input {value.name!r} has no elements along axis {axis}"
        axes = ", ".join(f"axis {axis} ({dims[axis].dim_param or '?'})" for axis in open)
        symbols = dict.fromkeys(dims[axis].dim_param for axis in open if dims[axis].dim_param)
        bind = f", or say {' '.join(f'--dim {symbol}=SIZE' for symbol in symbols)} (in Python: dims)" if symbols else ""
        return f"input {value.name!r} has no fixed size at {axes}; export the model with fixed sizes{bind}"

    def _add_node(self, position: int, proto: onnx.NodeProto) -> None:
        if any(name and name not in self.tensors for name in proto.input):
            return  # It needs what a refused node of unknown shape would have made; that one has been reported.
        try:
            self._build(proto, self.opset, 0)
        except (RefusedError, ShapeError) as problem:
            if isinstance(problem, MissingError) and self.problems:
                return
            domain = f"{proto.domain}." if proto.domain not in DOMAINS else ""
            title = f"node {position} {proto.name or proto.output[0]!r} ({domain}{proto.op_type})"
            self.problems.append(f"{title}: {problem}")
            self._stand_in(proto)

    def _build(self, proto: onnx.NodeProto, opset: int, depth: int) -> None:
        parts = expand(proto, self.tensors.known, opset)
        if len(parts) > 1:
            for part in parts:
                self._build(part, opset, depth)
            return
        known = self._known_result(proto, opset)
        if known is not None:
            self.tensors.known.update(known)
            return
        builder = OPS.get(proto.op_type if proto.domain in DOMAINS else f"{proto.domain}.{proto.op_type}")
        if builder is None:
            self._expand(proto, opset, depth)
            return
        node = OnnxNode(proto, opset, self.tensors, self.names, self.read)
        built = builder(node)
        self.integers.note(node)
        if node.unread():
            raise RefusedError(f"attribute {', '.join(node.unread())} is not supported")
        results = [built] if isinstance(built, int) else list(built)
        for index, name in enumerate(proto.output):
            result = results[index] if index < len(results) else None
            if result is not None and name:
                self.tensors.bind(name, result)
            elif node.wants(index) and name not in self.tensors:
                raise RefusedError(f"its further output {name!r} is not supported")

    def _expand(self, proto: onnx.NodeProto, opset: int, depth: int) -> None:
        """Import a node that is defined by others, by these."""
        body = self._body(proto, opset)
        self.expanded += len(body.nodes)
        if depth >= onnx_functions.CALL_LIMIT or self.expanded > onnx_functions.NODE_LIMIT:
            raise RefusedError("the functions that it calls are nested too deeply or make too many nodes")
        self.read.update(name for node in body.nodes for name in node.input if name)
        self.tensors.known.update({t.name: _values(t, self.label) for t in body.constants})
        for node in body.nodes:
            try:
                self._build(node, body.opset, depth + 1)
            except MissingError:
                raise
            except (RefusedError, ShapeError) as problem:
                raise RefusedError(f"its {node.op_type}: {problem}") from problem

    def _body(self, proto: onnx.NodeProto, opset: int) -> onnx_functions.Body:
        function = self.functions.get((proto.domain, proto.op_type, getattr(proto, "overload", "")))
        if function is not None:
            return onnx_functions.local_body(function, proto, self.inner)
        if proto.domain in DOMAINS and proto.op_type == "If":
            return self._branch(proto, opset)
        body = None
        if proto.domain in DOMAINS:
            body = onnx_functions.schema_body(proto, opset, self.tensors.type, self.inner)
        if body is None:
            raise RefusedError("this op is not supported on computed values")
        return body

    def _branch(self, proto: onnx.NodeProto, opset: int) -> onnx_functions.Body:
        """The branch that a known condition chooses."""
        condition = self.tensors.known.get(proto.input[0])
        if condition is None or condition.size != 1:
            raise RefusedError("its condition is computed by the model; it must be a constant")
        wanted = "then_branch" if bool(condition.reshape(())) else "else_branch"
        branch = next(a.g for a in proto.attribute if a.name == wanted)
        return onnx_functions.branch_body(branch, proto, opset, self.inner)

    def _known_result(self, proto: onnx.NodeProto, opset: int) -> dict[str, Array] | None:
        """The outputs of a node whose inputs are all known, or None where they are not."""
        if proto.op_type in FOLDED and proto.domain in (*DOMAINS, MICROSOFT):
            return self.integers.fold(proto, self.tensors)
        if proto.domain not in DOMAINS:
            return None
        if proto.op_type in ("Shape", "Size"):
            shape = np.array(self.tensors.shape(proto.input[0]), np.int64)
            held = np.array(shape.prod(), np.int64) if proto.op_type == "Size" else _shape_slice(proto, shape)
            return {proto.output[0]: held}
        foldable = bool(proto.input) or proto.op_type == "Constant"
        nested = any(a.type in GRAPH_KINDS for a in proto.attribute)
        inputs = {name: self.tensors.known.get(name) for name in proto.input if name}
        if not foldable or nested or proto.op_type in NOT_FUNCTIONS or any(v is None for v in inputs.values()):
            return None
        return self.folder.evaluate(proto, {name: value for name, value in inputs.items() if value is not None}, opset)

    def _stand_in(self, proto: onnx.NodeProto) -> None:
        """Bind a refused node's outputs to inputs of the right type, so that what follows is checked too."""
        for name in proto.output:
            if name in self.declared:
                self.tensors.bind(name, self.tensors.builder.input(name, self.declared[name]))


def _is_empty(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether an axis is declared to have no elements, or a negative number of them; an open one is not."""
    return bool(dim.HasField("dim_value") and dim.dim_value < 1 and not dim.dim_param)


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    yield from (name for node in graph.node for name in (*node.input, *node.output))


def _values(tensor: onnx.TensorProto, label: str) -> Array:
    try:
        return stored_values(tensor)
    except RefusedError as error:
        raise ModelError(f"{label}: the constant {tensor.name!r}: {error}") from error


def _names(graph: onnx.GraphProto) -> dict[str, tuple[str, tuple[str, ...]]]:
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


def _declared_types(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorType]]:
    """The types that the file notes for its tensors, as exporters do; symbolic sizes as 1, other dtypes as float32.

    ONNX's own shape inference would find more, but on damaged files it can hang, or end the process.
    """
    for value in graph.value_info:
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            shape: Shape = tuple(max(d.dim_value, 1) for d in tensor.shape.dim)
            yield value.name, TensorType(shape, DTYPES.get(tensor.elem_type, DType.F32))
