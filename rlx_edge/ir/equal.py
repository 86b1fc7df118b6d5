"""Are two graphs equal? Structure, attributes, metadata and every bit of the weights, nested graphs included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from rlx_edge.ir.graph import Graph


def same_graph(a: Graph, b: Graph) -> bool:
    """Whether nothing tells the two apart. NaN is equal to NaN, and 0.0 is not -0.0."""
    return difference(a, b) is None


def difference(a: object, b: object, where: str = "graph") -> str | None:
    """The first place where two graphs (or anything that a graph holds) differ and what is there; None: nowhere."""
    return next(_differences(a, b, where), None)


def _differences(a: object, b: object, where: str) -> Iterator[str]:
    if a is b:
        return
    if type(a) is not type(b):
        yield f"{where}: a {type(a).__name__} and a {type(b).__name__}"
    elif isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield f"{where}: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
        elif a.tobytes() != b.tobytes():
            yield f"{where}: values differ"
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            yield f"{where}: {sorted(a.keys() ^ b.keys())} on one side only"
        else:
            for key in a:
                yield from _differences(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            yield f"{where}: {len(a)} and {len(b)} entries"
        else:
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from _differences(x, y, f"{where}[{index}]")
    elif is_dataclass(a):
        for field in fields(a):
            yield from _differences(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif not _same_plain(a, b):
        yield f"{where}: {a!r} and {b!r}"


def _same_plain(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b
