"""A graph as text, one line a node, for people and for golden tests; `from_text` (parse.py) reads it back.

    graph kws {
      %0 x = Input() : i8[1, 4] s=0.5 z=3
      %1 w = Param() : i8[4, 3] s=[0.25f, 0.1f, 0.5f] z=0 axis=1
      %2 b = Constant(0) : i32[3]
      %3 y = QMatMul(%0, %1, %2, clamp=[0, 127]) : i8[1, 3] s=0.1 z=-1 from dense, relu
      return %3
    }

Attributes have the vocabulary's names. Left out are those that are the default, or follow from the types or the name
(`derived`). Names of other than letters, digits and `_./:;-` are quoted. A number with an `f` is the float32 nearest to
its digits; one without, the float64. The values of parameters are not part of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from typing import Any

import numpy as np

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.equal import difference
from rlx_edge.ir.graph import Graph, Node
from rlx_edge.ir.graph import brief as short_name
from rlx_edge.ir.ops import Cast, Constant, Dequantize, Expand, Input, Op, Param, QConv2d, QMatMul, Quantize, Reshape
from rlx_edge.ir.tensor import QuantParams, TensorType

BARE = re.compile(r"[A-Za-z_][\w./:;-]*", re.ASCII)
"""Names that need no quotes."""

KEYWORDS = ("none", "true", "false", "inf", "nan", "graph")
"""Values that are no text."""

MAX_FILLED = 1 << 26
"""Bytes of a constant that is given by one value for all its elements."""

SHORT_LIST, SHORT_TEXT = 8, 60
"""What of a list, and of a text, is shown to people."""

Types = Sequence[TensorType]


def derived(op: type[Op], name: str, operands: Types, out: TensorType) -> Mapping[str, object]:
    """The attributes that a node of this name and these types would have, by name: those need no words."""
    found: dict[str, object] = {"num_inputs": len(operands)}
    rule = DERIVED.get(op)
    if rule is not None:
        with suppress(IndexError, ValueError, ZeroDivisionError):  # Types that no such node has.
            found.update(rule(name, operands, out))
    return found


def _parameters(quant: QuantParams | None) -> dict[str, object]:
    return {} if quant is None else {"axis": quant.axis, "scales": quant.scales, "zero_points": quant.zero_points}


def _multiplier(name: str, operands: Types, out: TensorType) -> dict[str, object]:
    from rlx_edge.ir.verify import real_multipliers

    x, w = operands[0].quant, operands[1].quant
    if x is None or w is None or out.quant is None:
        return {}
    zeros = {"x_zp": x.zero_point, "w_zp": w.zero_point, "out_zp": out.quant.zero_point}
    return {**zeros, "mult": real_multipliers(x, w, out.quant)}


DERIVED: dict[type[Op], Callable[[str, Types, TensorType], Mapping[str, object]]] = {
    Input: lambda name, operands, out: {"name": name},
    Param: lambda name, operands, out: {"name": name},
    Reshape: lambda name, operands, out: {"new_shape": out.shape},
    Expand: lambda name, operands, out: {"target_shape": out.shape},
    Cast: lambda name, operands, out: {"to": out.dtype},
    Quantize: lambda name, operands, out: _parameters(out.quant),
    Dequantize: lambda name, operands, out: _parameters(operands[0].quant),
    QMatMul: _multiplier,
    QConv2d: _multiplier,
}


def to_text(graph: Graph, *, brief: bool = False, batch: bool = False) -> str:
    """The graph as text. `brief`: for people, with long lists cut short and without sources that are the node's name.

    `batch`: the first axis of each input, and what follows from it, as N (`symbolic.batch_shapes`).
    """
    shapes: Mapping[int, Sequence[object]] = {}
    if batch:
        from rlx_edge.ir.symbolic import batch_shapes

        shapes = batch_shapes(graph)
    return "\n".join(_Printer(brief).graph(graph, "", shapes)) + "\n"


def quoted(name: str) -> str:
    """A name as the text has it."""
    if BARE.fullmatch(name) and name not in KEYWORDS:
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def number(value: float) -> str:
    """The fewest digits that give the same float32, with an f, or the same float64."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    exact = repr(float(value))
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if float(single) == value and len(str(single)) < len(exact):
        return f"{single!s}f"
    return exact


def constant_texts(data: bytes, type: TensorType) -> list[str] | None:
    """The elements of a Constant as text, where that gives the same bytes back."""
    if type.dtype.bits < 8 or type.dtype is DType.C64 or len(data) != type.bytes:
        return None
    values = np.frombuffer(data, type.dtype.numpy)
    texts = [str(value).lower() for value in values]
    if type.dtype is DType.BOOL:
        return texts if set(data) <= {0, 1} else None
    back: list[float] = [int(text) if type.dtype.is_integer else float(text) for text in texts]
    return texts if np.array(back, values.dtype).tobytes() == data else None


@dataclass(frozen=True)
class _Printer:
    brief: bool

    def graph(self, graph: Graph, indent: str, shapes: Mapping[int, Sequence[object]]) -> Iterator[str]:
        """The lines of a graph. The first one is not indented: it may stand after an attribute's name."""
        yield f"graph {quoted(graph.name)} {{"
        inner = indent + "  "
        for key, text in sorted(graph.metadata.items()):
            yield f"{inner}metadata {quoted(key)} = {self.text(text)}"
        for node in graph.nodes:
            yield inner + self.node(graph, node, inner, shapes.get(node.id, node.type.shape))
        yield f"{inner}return {', '.join(f'%{i}' for i in graph.outputs)}".rstrip()
        yield f"{indent}}}"

    def node(self, graph: Graph, node: Node, indent: str, shape: Sequence[object]) -> str:
        call = ", ".join((*(f"%{i}" for i in node.inputs), *self.attributes(graph, node, indent)))
        name = quoted(short_name(node.name) if self.brief else node.name)
        line = f"%{node.id} {name} = {node.op.kind_name}({call}) : {self.type(node.type, shape)}"
        if node.sources and not (self.brief and node.sources == (node.name,)):
            names = map(short_name, node.sources) if self.brief else node.sources
            line += f" from {', '.join(map(quoted, names))}"
        if node.channels is not None:
            line += f" channels {self.value(node.channels.kept, indent)} of {node.channels.of}"
        return line

    def type(self, type: TensorType, shape: Sequence[object]) -> str:
        text = f"{type.dtype.value}[{', '.join(map(str, shape))}]"
        quant = type.quant
        if quant is None:
            return text
        scales = quant.scales if len(quant.scales) != 1 else quant.scales[0]
        zeros = quant.zero_points
        alike = len(zeros) == len(quant.scales) and len(set(zeros)) == 1
        text += f" s={self.value(scales, '')} z={self.value(zeros[0] if alike else zeros, '')}"
        return text if quant.axis is None else f"{text} axis={quant.axis}"

    def attributes(self, graph: Graph, node: Node, indent: str) -> Iterator[str]:
        if isinstance(node.op, Constant):
            yield self.constant(node.op.data, node.type)
            return
        known = all(0 <= i < len(graph.nodes) for i in node.inputs)
        given = derived(type(node.op), node.name, graph.operand_types(node) if known else (), node.type)
        for field in fields(node.op):
            value = getattr(node.op, field.name)
            if field.name in given and known:
                shown = difference(given[field.name], value) is not None
            else:
                shown = not _is_default(field, value)
            if shown:
                yield f"{field.name}={self.value(value, indent)}"

    def constant(self, data: bytes, type: TensorType) -> str:
        texts = constant_texts(data, type)
        if texts is None:
            return self.value(data, "")
        if len(set(texts)) == 1 and len(data) <= MAX_FILLED:
            return texts[0]
        return self.listed(texts)

    def value(self, value: Any, indent: str) -> str:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return f"{value:.6g}" if self.brief and math.isfinite(value) else number(value)
        if isinstance(value, Enum):
            return self.value(value.value, indent)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            cut = self.brief and len(value) > SHORT_TEXT // 2
            return f"0x{value[: SHORT_TEXT // 2].hex()}... {len(value)} bytes" if cut else f"0x{value.hex()}"
        if isinstance(value, tuple | list):
            return self.listed([self.value(item, indent) for item in value])
        if isinstance(value, Graph):
            return "\n".join(self.graph(value, indent, {}))
        if isinstance(value, int):
            return str(value)
        held = ((field, getattr(value, field.name)) for field in fields(value))
        inside = (f"{field.name}={self.value(item, indent)}" for field, item in held if not _is_default(field, item))
        return f"{type(value).__name__}({', '.join(inside)})"

    def listed(self, texts: Sequence[str]) -> str:
        if self.brief and len(texts) > SHORT_LIST:
            return f"[{', '.join(texts[:SHORT_LIST])}, ... {len(texts)} in all]"
        return f"[{', '.join(texts)}]"

    def text(self, value: str) -> str:
        if self.brief and len(value) > SHORT_TEXT:
            return f"{json.dumps(value[:SHORT_TEXT])}... {len(value)} characters"
        return quoted(value)


def _is_default(field: Field[Any], value: object) -> bool:
    return field.default is not MISSING and difference(field.default, value) is None
