"""`.rlx` files: a safetensors file with the weights as tensors and the graph as JSON in the metadata.

docs/rlx-file.md describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from rlx_edge.errors import ModelError
from rlx_edge.files import replacing
from rlx_edge.formats.source import read_source
from rlx_edge.ir import Array, DType, Graph, Node, subbyte, verify
from rlx_edge.ir.codec import CodecError, decode_graph, encode
from rlx_edge.ir.nested import nested_graphs, with_bodies
from rlx_edge.ir.ops import Param

FORMAT_VERSION = 1
METADATA_KEY = "rlx"
PARAM_PREFIX = "param/"
"""Of the names of tensors; those of a nested graph have its path and a slash before it."""


def rlx_bytes(graph: Graph) -> bytes:
    """The bytes of a `.rlx` file. Raises ModelError for a graph that is not well formed."""
    verify(graph)
    return _pack(graph)


def save_rlx(graph: Graph, path: Path) -> None:
    """Write a graph, whole or not at all: an existing file stays as it is until the new one is complete.

    Raises ModelError for a graph that is not well formed, and EdgeError for a path that cannot be written.
    """
    data = rlx_bytes(graph)
    with replacing(Path(path)) as file:
        file.write(data)


def load_rlx(source: Path | bytes) -> Graph:
    """Read a `.rlx` file, from a file or from its bytes. Nothing in the file is executed.

    Raises ModelError with one clear line for a file that is missing, truncated, damaged, of another version, or not
    made by rlx-edge.
    """
    data, where = read_source(source)
    tensors, text = _unpack(data, where)
    try:
        graph = _with_params(decode_graph(_parse(text), ""), tensors, "")
        _check_all_used(graph, tensors)
    except CodecError as error:
        raise ModelError(f"{where}: {error}") from None
    try:
        verify(graph)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    return graph


def _pack(graph: Graph) -> bytes:
    tensors = {
        key: _stored(held.params[node.op.name], node.type.dtype)
        for held, node, key in _params(graph)
        if isinstance(node.op, Param)
    }
    document = {"version": FORMAT_VERSION, "graph": encode(graph)}
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    # One metadata entry only: safetensors writes several in no fixed order, and equal graphs give equal files.
    return bytes(safetensors.numpy.save(tensors, {METADATA_KEY: text}))


def _params(graph: Graph) -> Iterator[tuple[Graph, Node, str]]:
    """(graph, node, tensor's name) of every parameter, those of nested graphs too."""
    for path, held in (("", graph), *((f"{path}/", body) for path, body in nested_graphs(graph))):
        for node in held.nodes:
            if isinstance(node.op, Param):
                yield held, node, f"{path}{PARAM_PREFIX}{node.op.name}"


def _stored(values: Array, dtype: DType) -> Array:
    """A parameter as the file has it: of less than a byte a value, as packed bytes."""
    return subbyte.pack(values, dtype.bits) if dtype.bits < 8 else np.asarray(values, order="C")


def _unpack(data: bytes, where: str) -> tuple[dict[str, Array], str]:
    """All tensors, and the JSON text."""
    try:
        tensors = safetensors.numpy.load(data)
    except safetensors.SafetensorError as error:
        raise ModelError(f"{where} is not a .rlx file, or is damaged: {error}") from None
    except KeyError as error:
        raise ModelError(f"{where} has a tensor of the dtype {error}, which the IR does not have") from None
    # The library has checked the header; only its metadata is left to read.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    text = header.get("__metadata__", {}).get(METADATA_KEY)
    if text is None:
        raise ModelError(f"{where} is a safetensors file, but rlx-edge did not make it (no {METADATA_KEY!r} metadata)")
    return {name: _checked(name, value, where) for name, value in tensors.items()}, text


def _checked(name: str, value: Array, where: str) -> Array:
    try:
        DType.of(value)
    except ValueError as error:
        raise ModelError(f"{where}: tensor {name!r}: {error}") from None
    return value


def _integer(digits: str) -> int:
    """An integer of the file: no attribute has more than 64 bits, and larger ones would take hours to multiply."""
    value = int(digits) if len(digits) <= 20 else None
    if value is None or not -(1 << 63) <= value < 1 << 64:
        raise CodecError("the graph's JSON has an integer of more than 64 bits")
    return value


def _parse(text: str) -> Any:
    """The graph's JSON."""
    try:
        document = json.loads(text, parse_int=_integer)
    except CodecError:
        raise
    except (ValueError, RecursionError):
        raise CodecError("the graph's JSON is damaged") from None
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int:
        raise CodecError("the graph's JSON has no format version")
    if version > FORMAT_VERSION:
        raise CodecError(f"format version {version}, but this rlx-edge reads {FORMAT_VERSION}: upgrade rlx-edge")
    if version < FORMAT_VERSION:
        raise CodecError(f"format version {version} is no longer read: make the file again from its source model")
    return document.get("graph")


def _with_params(graph: Graph, tensors: Mapping[str, Array], path: str) -> Graph:
    """The graph with its parameters' values and those of nested graphs. Raises CodecError for one that is missing."""
    nodes, held = [], {}
    for node in graph.nodes:
        at = f"{path}.{node.id}" if path else f"{node.id}"

        def filled(field: str, body: Graph, at: str = at) -> Graph:
            return _with_params(body, tensors, f"{at}.{field}")

        op = with_bodies(node.op, filled)
        nodes.append(node if op is node.op else replace(node, op=op))
        if isinstance(op, Param):
            held[op.name] = _held(node, tensors, f"{path}/{PARAM_PREFIX}{op.name}" if path else PARAM_PREFIX + op.name)
    return replace(graph, nodes=tuple(nodes), params=held)


def _held(node: Node, tensors: Mapping[str, Array], key: str) -> Array:
    """A parameter as a graph holds it. Raises CodecError for one that is missing or not packed as its type says."""
    values = tensors.get(key)
    if values is None:
        raise CodecError(f"no tensor {key!r} for the parameter {node.name!r}")
    if node.type.dtype.bits >= 8:
        return values
    if values.dtype != np.uint8 or values.ndim != 1:
        raise CodecError(f"tensor {key!r} of {node.type} should be packed bytes (U8)")
    try:
        return subbyte.unpack(values, node.type.dtype.bits, node.type.shape)
    except ValueError as error:
        raise CodecError(f"tensor {key!r}: {error}") from None


def _check_all_used(graph: Graph, tensors: Mapping[str, Array]) -> None:
    unused = sorted(tensors.keys() - {key for _, _, key in _params(graph)})
    if unused:
        raise CodecError(f"tensor {unused[0]!r} belongs to no parameter")
