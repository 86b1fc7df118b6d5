"""Functions: nodes that ONNX, or the file itself, defines by other nodes.

ONNX gives many ops a body of simpler ones (Attention, Selu, losses); a file may bring functions of its own, as
PyTorch's exporter writes them. A call is replaced by its body, whose inner names get the call's name before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs
import onnx.helper

from rlx_edge.formats.onnx_elementwise import DTYPES
from rlx_edge.formats.onnx_node import RefusedError
from rlx_edge.ir import TensorType

CALL_LIMIT = 16
"""How deep calls may stand in one another."""

NODE_LIMIT = 1 << 16
"""Nodes that all calls of a model may make together: functions that call functions grow fast from a small file."""

ONNX_TYPES = {ours: theirs for theirs, ours in DTYPES.items()}


@dataclass(frozen=True)
class Body:
    """What takes a node's place: nodes, the opset that they are written in, and constants that they bring."""

    nodes: Sequence[onnx.NodeProto]
    opset: int
    constants: Sequence[onnx.TensorProto] = ()


def local_functions(model: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """The functions that a file brings, by domain, name and overload."""
    return {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}


class Names:
    """Gives inner tensors names that no other tensor of the model has."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def inner(self, call: onnx.NodeProto, name: str) -> str:
        """A name for a tensor inside of a call: the call's output, a dot, and its own name."""
        unique = f"{next(filter(None, call.output), call.name)}.{name}"
        while unique in self._taken:
            unique += "_"
        self._taken.add(unique)
        return unique


def local_body(function: onnx.FunctionProto, call: onnx.NodeProto, names: Names) -> Body:
    """The body of a file's own function at a call."""
    opset = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), 0)
    defaults = {a.name: a for a in function.attribute_proto}
    return Body(_instantiate(function, call, defaults, names), int(opset))


def schema_body(call: onnx.NodeProto, opset: int, type_of: Callable[[str], TensorType], names: Names) -> Body | None:
    """The body that ONNX defines for an op of its own domain, or None for an op that has none.

    Raises RefusedError where the definition does not cover the call.
    """
    try:
        schema: Any = onnx.defs.get_schema(call.op_type, opset, "")  # Its type stubs lack functions.
    except onnx.defs.SchemaError:
        return None
    fixed = [v for v in schema.function_opset_versions if v <= opset]
    by_context = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if fixed:
        version = max(fixed)
        text = schema.get_function_with_opset_version(version)
    elif by_context:
        version = max(by_context)
        types = [_type_proto(type_of(name)) if name else b"" for name in call.input]
        text = schema.get_context_dependent_function_with_opset_version(version, call.SerializeToString(), types)
    else:
        return None
    if not text:
        raise RefusedError("ONNX's own definition of this op does not cover it as it stands here")
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    opset = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), version)
    return Body(_instantiate(function, call, defaults, names), int(opset))


def _type_proto(type: TensorType) -> bytes:
    return bytes(onnx.helper.make_tensor_type_proto(ONNX_TYPES[type.dtype], type.shape).SerializeToString())


def branch_body(branch: onnx.GraphProto, call: onnx.NodeProto, opset: int, unique: Names) -> Body:
    """The branch of an If whose condition is known. Names that it does not make itself are those around it."""
    made = {name for node in branch.node for name in node.output} | {t.name for t in branch.initializer}
    names = {name: unique.inner(call, name) for name in sorted(made) if name}
    constants = []
    for tensor in branch.initializer:
        renamed = onnx.TensorProto()
        renamed.CopyFrom(tensor)
        renamed.name = names[tensor.name]
        constants.append(renamed)
    nodes = [_renamed(node, names, {}, {}) for node in branch.node]
    for inner, outer in zip(branch.output, call.output, strict=True):
        if outer:
            nodes.append(onnx.helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer]))
    return Body(nodes, opset, constants)


def _instantiate(
    function: onnx.FunctionProto, call: onnx.NodeProto, defaults: Mapping[str, onnx.AttributeProto], unique: Names
) -> list[onnx.NodeProto]:
    given = {a.name: a for a in call.attribute}
    names = dict.fromkeys(function.input, "")
    names.update(zip(function.input, call.input, strict=False))
    outputs = dict(zip(function.output, call.output, strict=False))
    passed = {name: outer for name, outer in outputs.items() if outer}
    made = {name for node in function.node for name in node.output if name}
    aliases = {name: outer for name, outer in passed.items() if name not in made}
    names.update({name: passed.get(name) or unique.inner(call, name) for name in sorted(made)})
    nodes = [_renamed(node, names, given, defaults) for node in function.node]
    return nodes + [onnx.helper.make_node("Identity", [names[name]], [outer]) for name, outer in aliases.items()]


def _renamed(
    node: onnx.NodeProto,
    names: Mapping[str, str],
    given: Mapping[str, onnx.AttributeProto],
    defaults: Mapping[str, onnx.AttributeProto],
) -> onnx.NodeProto:
    """A node with its tensors' names and its references to the call's attributes resolved.

    An attribute that neither the call nor its function gives is left out, as ONNX says.
    """
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.input[:], made.output[:], made.attribute[:]
    made.input.extend(names.get(name, name) for name in node.input)
    made.output.extend(names.get(name, name) for name in node.output)
    for attribute in node.attribute:
        source = attribute
        if attribute.ref_attr_name:
            found = given.get(attribute.ref_attr_name, defaults.get(attribute.ref_attr_name))
            if found is None:
                continue
            source = found
        copy = made.attribute.add()
        copy.CopyFrom(source)
        copy.name = attribute.name
        if copy.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            for graph in [copy.g, *copy.graphs]:
                inner = [_renamed(n, names, given, defaults) for n in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
                for value in graph.output:
                    value.name = names.get(value.name, value.name)
    return made
