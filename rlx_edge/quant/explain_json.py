"""An explanation as JSON: for `quantize --json`, and kept in the metadata of the int8 graph."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlx_edge.errors import ModelError
from rlx_edge.ir import Graph
from rlx_edge.quant.explain import Explanation, LayerExplanation, Sensitivity, TensorExplanation

KEY = "quantization"
"""The key in a graph's metadata."""

SCHEMA = "rlx-edge quantization 1"

ONLY_ERROR_DB = -999.0

DIGITS = 9
"""Significant digits that are kept; as many as a float32, such as a scale, needs to be read back exactly."""


def explanation_facts(explanation: Explanation) -> dict[str, Any]:
    """Plain dictionaries and lists. JSON has no infinity: an SQNR without any error is None, one of nothing but error
    (where the float model is 0 throughout) ONLY_ERROR_DB."""
    facts: dict[str, Any] = _plain(asdict(explanation))
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value == -math.inf:
        return ONLY_ERROR_DB
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def with_explanation(graph: Graph, explanation: Explanation, **facts: object) -> Graph:
    """The int8 graph with its explanation in its metadata, and further `facts` (a recipe's name, say) beside it.

    Rows are stored as lists under one row of column names, which keeps the text short.
    """
    plain = explanation_facts(explanation)
    stored = {"schema": SCHEMA, **_plain(facts), **plain}
    for key in _ROWS:
        rows: Sequence[dict[str, Any]] = plain[key]
        stored[key] = [list(rows[0]), *([*row.values()] for row in rows)] if rows else []
    return graph.with_metadata(**{KEY: json.dumps(stored, separators=(",", ":"))})


_ROWS: Mapping[str, type] = {"tensors": TensorExplanation, "layers": LayerExplanation, "sensitivity": Sensitivity}


def read_explanation(graph: Graph) -> Explanation | None:
    """The explanation in a graph's metadata; None where there is none, or one of another version.

    Raises ModelError where it is damaged.
    """
    text = graph.metadata.get(KEY)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        if stored["schema"] != SCHEMA:
            return None
        return _explanation(stored)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{graph.name!r}: the metadata {KEY!r} is damaged ({type(error).__name__})") from error


def _explanation(stored: Mapping[str, Any]) -> Explanation:
    top1 = stored["top1"]
    return Explanation(
        output_sqnr_db=_db(stored["output_sqnr_db"]),
        agreement=_optional(stored["agreement"]),
        tensors=tuple(TensorExplanation(**row) for row in _rows(stored["tensors"], TensorExplanation)),
        samples=int(stored["samples"]),
        layers=tuple(LayerExplanation(**row) for row in _rows(stored["layers"], LayerExplanation)),
        sensitivity=tuple(Sensitivity(**row) for row in _rows(stored["sensitivity"], Sensitivity)),
        sensitivity_samples=int(stored["sensitivity_samples"]),
        top1=None if top1 is None else (float(top1[0]), float(top1[1])),
        warnings=tuple(map(str, stored["warnings"])),
    )


def _db(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _optional(value: float | None) -> float | None:
    return None if value is None else float(value)


_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "int | None": lambda value: None if value is None else int(value),
    "float": _db,
    "float | None": _optional,
}
"""How a field of that annotation is read."""


def _rows(table: Sequence[Sequence[Any]], kind: type) -> list[dict[str, Any]]:
    """Rows as the arguments of a dataclass, each of its field's type."""
    if not table:
        return []
    columns, fields = table[0], kind.__dataclass_fields__  # type: ignore[attr-defined]
    if list(columns) != list(fields):
        raise ValueError("other columns")
    return [
        {name: _TYPES[fields[name].type](value) for name, value in zip(columns, row, strict=True)} for row in table[1:]
    ]
