"""`.rlx` files: a safetensors file with the weights as tensors and the graph as JSON in the metadata.

docs/rlx-file.md describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from rlx_edge.errors import ModelError
from rlx_edge.files import replacing
from rlx_edge.formats.rlx_codec import CodecError, decode, encode
from rlx_edge.formats.source import read_source
from rlx_edge.ir import Array, DType, Graph, Node, subbyte, verify
from rlx_edge.ir.ops import Param

FORMAT_VERSION = 1
METADATA_KEY = "rlx"
PARAM_PREFIX = "param/"

_GRAPH_FIELDS = {"name", "nodes", "outputs", "metadata"}


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
    params = {name[len(PARAM_PREFIX) :]: value for name, value in tensors.items() if name.startswith(PARAM_PREFIX)}
    try:
        graph = _decode_graph(_parse(text), params)
    except CodecError as error:
        raise ModelError(f"{where}: {error}") from None
    try:
        verify(graph)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    return graph


def _pack(graph: Graph) -> bytes:
    tensors = {
        PARAM_PREFIX + node.op.name: _stored(graph.params[node.op.name], node.type.dtype)
        for node in graph.nodes
        if isinstance(node.op, Param)
    }
    document = {
        "version": FORMAT_VERSION,
        "graph": {
            "name": graph.name,
            "outputs": encode(graph.outputs),
            "metadata": dict(sorted(graph.metadata.items())),
            "nodes": [encode(node) for node in graph.nodes],
        },
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    # One metadata entry only: safetensors writes several in no fixed order, and equal graphs give equal files.
    return bytes(safetensors.numpy.save(tensors, {METADATA_KEY: text}))


def _stored(values: Array, dtype: DType) -> Array:
    """A parameter as the file has it: of less than a byte a value, as packed bytes."""
    return subbyte.pack(values, dtype.bits) if dtype.bits < 8 else np.ascontiguousarray(values)


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


def _parse(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise CodecError("the graph's JSON is damaged") from None
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int:
        raise CodecError("the graph's JSON has no format version")
    if version > FORMAT_VERSION:
        raise CodecError(f"format version {version}, but this rlx-edge reads {FORMAT_VERSION}: upgrade rlx-edge")
    if version < FORMAT_VERSION:
        raise CodecError(f"format version {version} is no longer read: make the file again from its source model")
    graph = document.get("graph")
    if not isinstance(graph, dict) or graph.keys() != _GRAPH_FIELDS:
        raise CodecError(f"the graph should have the fields {', '.join(sorted(_GRAPH_FIELDS))}")
    return graph


def _decode_graph(json: Mapping[str, Any], params: Mapping[str, Array]) -> Graph:
    nodes: tuple[Node, ...] = decode(tuple[Node, ...], json["nodes"], "nodes")
    metadata = json["metadata"]
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CodecError("the metadata should be text by name")
    wanted = {node.op.name for node in nodes if isinstance(node.op, Param)}
    for name in sorted(wanted - params.keys()):
        raise CodecError(f"no tensor {PARAM_PREFIX + name!r} for the parameter {name!r}")
    for name in sorted(params.keys() - wanted):
        raise CodecError(f"tensor {PARAM_PREFIX + name!r} belongs to no parameter")
    return Graph(
        decode(str, json["name"], "name"),
        nodes,
        decode(tuple[int, ...], json["outputs"], "outputs"),
        _held(nodes, params),
        metadata,
    )


def _held(nodes: tuple[Node, ...], params: Mapping[str, Array]) -> dict[str, Array]:
    """Parameters as a graph holds them. Raises CodecError for packed bytes that are not what a node's type says."""
    held = dict(params)
    for node in nodes:
        if isinstance(node.op, Param) and node.type.dtype.bits < 8:
            packed = params[node.op.name]
            if packed.dtype != np.uint8 or packed.ndim != 1:
                raise CodecError(f"tensor {PARAM_PREFIX + node.op.name!r} of {node.type} should be packed bytes (U8)")
            try:
                held[node.op.name] = subbyte.unpack(packed, node.type.dtype.bits, node.type.shape)
            except ValueError as error:
                raise CodecError(f"tensor {PARAM_PREFIX + node.op.name!r}: {error}") from None
    return held
