"""Records to JSON and back, driven by their type hints: no code per op, and nothing is executed on loading.

A record (a frozen dataclass) is an object with one entry a field, and its class's name under `class`, which no field
can be called. Enums are their values, tuples lists, bytes base64 text, and numbers that JSON does not have are the
strings "inf", "-inf" and "nan". A field that is absent takes its default, so that files stay readable when an op gains
an attribute; a field that the record does not have is an error. A graph is an object without its parameters' values,
which are kept elsewhere.

JSON may be anyone's: graphs lie in each other `MAX_NESTING` deep at most.
"""

from __future__ import annotations

import base64
import binascii
import math
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from rlx_edge.ir.graph import Graph, Node
from rlx_edge.ir.nested import MAX_NESTING
from rlx_edge.ir.ops import Op
from rlx_edge.ir.vocabulary import find_kind

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

GRAPH_FIELDS = {"name", "nodes", "outputs", "metadata"}


class CodecError(ValueError):
    """JSON that does not describe a record; the message says where in the record and what was found."""


def encode(value: object) -> Json:
    """A record, or anything that a record may hold, as JSON. Raises TypeError for what JSON cannot express."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Enum):
        return encode(value.value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Graph):
        return {
            "name": value.name,
            "outputs": encode(value.outputs),
            "metadata": dict(sorted(value.metadata.items())),
            "nodes": encode(value.nodes),
        }
    if is_dataclass(value):
        entries = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **entries}
    raise TypeError(f"a {type(value).__name__} has no place in a .rlx file")


def decode(hint: Any, json: Json, where: str) -> Any:
    """The value of type `hint` that `json` describes; `where` names it in messages. Raises CodecError."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), json, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(hint), json, where)
    if hint is Graph:
        return decode_graph(json, where)
    if hint is Op:
        if where.count("].op") > MAX_NESTING + 1:  # Steps of a region are ops too.
            raise CodecError(f"ops nested deeper than {MAX_NESTING}")
        return _decode_record(_choose(find_kind, json, where), json, where)
    if is_dataclass(hint):
        return _decode_record(hint, json, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _decode_enum(hint, json, where)
    return _decode_plain(hint, json, where)


def _decode_plain(hint: Any, json: Any, where: str) -> Any:
    if hint is bytes and isinstance(json, bytes):  # As the text form has them.
        return json
    if hint is bytes and isinstance(json, str):
        try:
            return base64.b64decode(json, validate=True)
        except (binascii.Error, ValueError):
            raise CodecError(f"{where} is not base64 text") from None
    if hint is float and isinstance(json, int | float | str) and not isinstance(json, bool):
        return _decode_float(json, where)
    if hint in (bool, str, int) and type(json) is hint:
        return json
    raise CodecError(f"{where} should be {_describe(hint)}, not {_shorten(json)}")


def _decode_float(json: int | float | str, where: str) -> float:
    if isinstance(json, str) and json not in ("inf", "-inf", "nan"):
        raise CodecError(f"{where} should be a number, not {_shorten(json)}")
    try:
        return float(json)
    except OverflowError:
        raise CodecError(f"{where} is a number too large for a float") from None


def _decode_enum(hint: type[Enum], json: Json, where: str) -> Enum:
    for member in hint:
        if member.value == json:
            return member
    raise CodecError(f"{where} is {_shorten(json)}, which is no {hint.__name__}")


def _decode_tuple(args: tuple[Any, ...], json: Json, where: str) -> tuple[Any, ...]:
    if not isinstance(json, list):
        raise CodecError(f"{where} should be a list, not {_shorten(json)}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(json))
    if len(json) != len(args):
        raise CodecError(f"{where} has {len(json)} entries instead of {len(args)}")
    return tuple(decode(arg, item, f"{where}[{i}]") for i, (arg, item) in enumerate(zip(args, json, strict=True)))


def _decode_union(args: tuple[Any, ...], json: Json, where: str) -> Any:
    if json is None and types.NoneType in args:
        return None
    choices = [arg for arg in args if arg is not types.NoneType]
    if len(choices) > 1:
        kinds = {choice.__name__: choice for choice in choices}
        return _decode_record(_choose(kinds.get, json, where), json, where)
    return decode(choices[0], json, where)


def _choose(find: Callable[[str], Any], json: Json, where: str) -> Any:
    name = json.get("class") if isinstance(json, dict) else None
    kind = find(name) if isinstance(name, str) else None
    if kind is None:
        raise CodecError(f"{where} is of the unknown kind {_shorten(name)}")
    return kind


def decode_graph(json: Any, where: str) -> Graph:
    """A graph without its parameters' values. Raises CodecError. A Graph stays as it is."""
    if isinstance(json, Graph):
        return json
    if not isinstance(json, dict) or json.keys() != GRAPH_FIELDS:
        raise CodecError(f"{where or 'the graph'} should have the fields {', '.join(sorted(GRAPH_FIELDS))}")
    inside = f"{where}." if where else ""
    if where.count("nodes[") > MAX_NESTING:  # A path has one of these for each graph around it.
        raise CodecError(f"graphs nested deeper than {MAX_NESTING}")
    metadata = json["metadata"]
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CodecError(f"{inside}metadata should be text by name")
    nodes: tuple[Node, ...] = decode(tuple[Node, ...], json["nodes"], f"{inside}nodes")
    outputs: tuple[int, ...] = decode(tuple[int, ...], json["outputs"], f"{inside}outputs")
    return Graph(decode(str, json["name"], f"{inside}name"), nodes, outputs, {}, metadata)


@cache
def field_hints(record: type) -> dict[str, Any]:
    """The type of each field of a record."""
    hints = typing.get_type_hints(record, localns={"Graph": Graph})
    return {field.name: hints[field.name] for field in fields(record)}


def _decode_record(record: Any, json: Json, where: str) -> Any:
    if not isinstance(json, dict):
        raise CodecError(f"{where} should be a {record.__name__}, not {_shorten(json)}")
    hints = field_hints(record)
    for key in json:
        if key != "class" and key not in hints:
            raise CodecError(f"{where} has the field {_shorten(key)}, which a {record.__name__} does not have")
    if json.get("class", record.__name__) != record.__name__:
        raise CodecError(f"{where} should be a {record.__name__}, not a {_shorten(json['class'])}")
    required = {f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING}
    missing = sorted(required - json.keys())
    if missing:
        raise CodecError(f"{where} lacks the field {missing[0]!r} of a {record.__name__}")
    return record(**{key: decode(hints[key], json[key], f"{where}.{key}") for key in hints if key in json})


def _describe(hint: Any) -> str:
    return {int: "an integer", float: "a number", str: "text", bool: "true or false", bytes: "base64 text"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )


def _shorten(json: Json) -> str:
    text = repr(json)
    return text if len(text) <= 40 else f"{text[:37]}..."
