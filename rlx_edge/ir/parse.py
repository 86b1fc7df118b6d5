"""The text form (`text.py`) read back to a graph."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, NoReturn

import numpy as np

from rlx_edge.errors import ModelError
from rlx_edge.ir.channels import Channels
from rlx_edge.ir.codec import CodecError, decode, field_hints
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.graph import Graph, Node
from rlx_edge.ir.nested import MAX_NESTING, nested_graphs
from rlx_edge.ir.ops import Constant, Op
from rlx_edge.ir.tensor import QuantParams, TensorType
from rlx_edge.ir.text import BARE, MAX_FILLED, derived
from rlx_edge.ir.verify import verify
from rlx_edge.ir.vocabulary import find_kind

MAX_DEPTH = 64
"""How deep lists, records and graphs may lie in each other."""

MAX_DIGITS = 40
"""What an integer has at most: larger ones would take long to multiply."""

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_BYTES = re.compile(r"0x((?:[0-9a-fA-F]{2})*)\b")
_NUMBER = re.compile(r"-inf\b|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?f?(?!\w)")
_MORE = re.compile(r"[\w./:;-]", re.ASCII)
_NODE = re.compile(r"%(\d{1,9})\b")
_INTEGER = re.compile(r"-?\d{1,19}\b")
_DIM = re.compile(r"(?P<factor>-?\d{0,9})N(?P<more>[+-]\d{1,9})?|(?P<size>\d{1,18})")
_WORD = re.compile(r"[a-z]+\d*")
_PLAIN = {"none": None, "true": True, "false": False}


def from_text(
    text: str,
    params: Mapping[str, Array],
    nested_params: Mapping[str, Mapping[str, Array]] | None = None,
    *,
    batch: int | None = None,
    where: str = "text",
    check: bool = True,
) -> Graph:
    """The graph that a text describes, verified, unless `check` is false.

    `params` holds its parameters' values by name, `nested_params` those of nested graphs by path (`params_by_path`).
    `batch` is what N stands for. Raises ModelError with line and column of what is not understood, or naming every
    node that is not well formed.
    """
    parser = _Parser(text, {"": params, **(nested_params or {})}, batch, where)
    graph = parser.graph("")
    parser.end()
    try:
        if check:
            verify(graph)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    return graph


def params_by_path(graph: Graph) -> dict[str, Mapping[str, Array]]:
    """The parameters' values of each nested graph by its path."""
    return {path: body.params for path, body in nested_graphs(graph)}


class _Parser:
    """Reads from left to right; `at` is the next character, `depth` how many values lie around it."""

    def __init__(self, text: str, params: Mapping[str, Mapping[str, Array]], batch: int | None, where: str) -> None:
        self.source, self.params, self.batch, self.where = text, params, batch, where
        self.at = self.depth = 0

    # ---- Words -------------------------------------------------------------------------------------------------------

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.source.count("\n", 0, at) + 1
        column = at - self.source.rfind("\n", 0, at)
        raise ModelError(f"{self.where}, line {line}, column {column}: {message}")

    def skip(self) -> int:
        """Over white space and comments; where the next word begins."""
        found = _SPACE.match(self.source, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.source, self.skip())
        self.at = found.end() if found else self.at
        return found

    def accept(self, word: str) -> bool:
        """Whether the next word, a sign or a keyword, is this one, which is then read."""
        end = self.skip() + len(word)
        there = self.source.startswith(word, self.at)
        if not there or (word[-1].isalpha() and _MORE.match(self.source, end)):
            return False
        self.at = end
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"{word!r} is expected, not {self.found()}")

    def found(self) -> str:
        rest = self.source[self.skip() : self.at + 20].split()
        return repr(rest[0]) if rest else "the end"

    def name(self, what: str = "a name") -> str:
        found = self.match(_STRING)
        if found:
            return self.string(found)
        bare = self.match(BARE)
        if not bare:
            self.fail(f"{what} is expected, not {self.found()}")
        return bare.group()

    def string(self, found: re.Match[str]) -> str:
        try:
            text = str(json.loads(found.group()))
            text.encode()  # Half a surrogate pair is in no file.
            return text
        except ValueError:
            self.fail("a quoted text with an escape or a character that JSON does not have", found.start())

    def integer(self, what: str) -> int:
        found = self.match(_INTEGER)
        if not found:
            self.fail(f"{what} is expected, not {self.found()}")
        return int(found.group())

    def end(self) -> None:
        if self.skip() != len(self.source):
            self.fail(f"the graph has ended, but there is {self.found()}")

    # ---- Values: what JSON would have in their place -----------------------------------------------------------------

    def value(self, path: str = "") -> Any:
        """`path`: that of a graph in this place."""
        if self.depth == MAX_DEPTH:
            self.fail(f"lists, records and graphs deeper than {MAX_DEPTH} in each other")
        self.depth += 1
        value = self.plain_value(path)
        self.depth -= 1
        return value

    def plain_value(self, path: str) -> Any:
        start = self.skip()
        if self.accept("["):
            return self.entries(path)
        if found := self.match(_STRING):
            return self.string(found)
        if found := self.match(_BYTES):
            return bytes.fromhex(found.group(1))
        if found := self.match(_NUMBER):
            return self.number(found.group())
        if self.source.startswith("graph", start) and self.accept("graph"):
            self.at = start
            return self.graph(path)
        word = self.name("a value")
        if self.accept("("):
            return {"class": word, **{name: value for name, (value, _) in self.named(path).items()}}
        return _PLAIN.get(word, word)

    def number(self, text: str) -> Any:
        if text.endswith("inf"):
            return text
        if text.endswith("f"):
            with np.errstate(over="ignore"):
                single = float(np.float32(text[:-1]))
            if math.isinf(single):
                self.fail(f"{text} is beyond float32")
            return single
        if len(text) > MAX_DIGITS and text.lstrip("-").isdigit():
            self.fail(f"an integer of more than {MAX_DIGITS} digits")
        return float(text) if set(text) & set(".e") else int(text)

    def entries(self, path: str) -> list[Any]:
        values: list[Any] = []
        while not self.accept("]"):
            if values:
                self.expect(",")
            values.append(self.value(path))
        return values

    def named(self, path: str) -> dict[str, tuple[Any, int]]:
        """`name=value, ...` up to the closing bracket: values and where they stand, by name."""
        found: dict[str, tuple[Any, int]] = {}
        while not self.accept(")"):
            if found:
                self.expect(",")
            start = self.skip()
            name = self.name("an attribute")
            if name in found:
                self.fail(f"{name} is given twice", start)
            self.expect("=")
            at = self.skip()
            found[name] = self.value(f"{path}.{name}" if path else name), at
        return found

    # ---- Graphs ------------------------------------------------------------------------------------------------------

    def graph(self, path: str) -> Graph:
        if path.count(".") >= 2 * MAX_NESTING:
            self.fail(f"graphs nested deeper than {MAX_NESTING}")
        self.expect("graph")
        name = self.name()
        self.expect("{")
        metadata: dict[str, str] = {}
        while self.accept("metadata"):
            key = self.name()
            self.expect("=")
            metadata[key] = self.name("a text")
        nodes: list[Node] = []
        while not self.accept("return"):
            nodes.append(self.node(nodes, path))
        outputs: list[int] = []
        while not self.accept("}"):
            if outputs:
                self.expect(",")
            outputs.append(self.operand(nodes))
        return Graph(name, tuple(nodes), tuple(outputs), dict(self.params.get(path, {})), metadata)

    def operand(self, nodes: list[Node]) -> int:
        found = self.match(_NODE)
        if not found:
            self.fail(f"a node such as %0 is expected, not {self.found()}")
        if int(found.group(1)) >= len(nodes):
            self.fail(f"there is no node {found.group()} before this", found.start())
        return int(found.group(1))

    def node(self, nodes: list[Node], path: str) -> Node:
        start, node_id = self.skip(), len(nodes)
        found = self.match(_NODE)
        if not found or int(found.group(1)) != node_id:
            self.fail(
                f"node %{node_id} or return is expected, not {self.found() if not found else found.group()}", start
            )
        name = self.name()
        self.expect("=")
        at = self.skip()
        kind = find_kind(self.name("the kind of an op"))
        if kind is None:
            self.fail(f"{self.source[at : self.at]} is no kind of op", at)
        self.expect("(")
        inputs = self.operands(nodes)
        if kind is Constant:
            value = self.value()
            self.expect(")")
            type = self.type()
            op: Op = Constant(self.constant(value, type, at))
        else:
            given = self.named(f"{path}.{node_id}" if path else f"{node_id}")
            type = self.type()
            op = self.op(kind, given, derived(kind, name, [nodes[i].type for i in inputs], type), at)
        sources, channels = self.sources(), self.channels()
        return Node(node_id, op, tuple(inputs), type, name, sources, channels)

    def operands(self, nodes: list[Node]) -> list[int]:
        inputs: list[int] = []
        while self.source.startswith("%", self.skip()):
            inputs.append(self.operand(nodes))
            if not self.accept(","):
                break
        return inputs

    def op(self, kind: Any, given: Mapping[str, tuple[Any, int]], known: Mapping[str, object], at: int) -> Op:
        """The op of these attributes and of those that follow from the types."""
        hints = field_hints(kind)
        values: dict[str, Any] = {}
        for name, (value, start) in given.items():
            if name not in hints:
                self.fail(f"a {kind.__name__} has no attribute {name}", start)
            try:
                values[name] = decode(hints[name], value, name)
            except CodecError as error:
                self.fail(str(error), start)
        for field in fields(kind):
            if field.name in known and field.name not in given:
                values[field.name] = known[field.name]
            elif field.name not in given and field.default is MISSING:
                self.fail(f"a {kind.__name__} needs the attribute {field.name}", at)
        made: Op = kind(**values)
        return made

    def type(self) -> TensorType:
        self.expect(":")
        start = self.skip()
        word = self.match(_WORD)
        dtype = next((d for d in DType if word and d.value == word.group()), None)
        if dtype is None:
            self.fail(f"a dtype is expected, not {word.group() if word else self.found()}", start)
        self.expect("[")
        shape: list[int] = []
        while not self.accept("]"):
            if shape:
                self.expect(",")
            shape.append(self.size())
        return TensorType(tuple(shape), dtype, self.quant())

    def size(self) -> int:
        found = self.match(_DIM)
        if not found:
            self.fail(f"a size is expected, not {self.found()}")
        if found["size"]:
            return int(found["size"])
        if self.batch is None:
            self.fail("N stands for the batch: say which with batch=", found.start())
        factor = {"": 1, "-": -1}.get(found["factor"]) or int(found["factor"])
        return factor * self.batch + int(found["more"] or 0)

    def quant(self) -> QuantParams | None:
        if not self.accept("s="):
            return None
        start = self.skip()
        scales = self.value()
        self.expect("z=")
        zeros = self.value()
        axis = self.integer("an axis") if self.accept("axis=") else None
        try:
            held = decode(tuple[float, ...], scales if isinstance(scales, list) else [scales], "s")
            zeros = zeros if isinstance(zeros, list) else [zeros] * len(held)
            return QuantParams(held, decode(tuple[int, ...], zeros, "z"), axis)
        except CodecError as error:
            self.fail(str(error), start)

    def constant(self, value: Any, type: TensorType, at: int) -> bytes:
        if isinstance(value, bytes):
            return value
        count = math.prod(type.shape) if len(type.shape) <= MAX_DEPTH else MAX_FILLED + 1
        values = value if isinstance(value, list) else [value]
        if isinstance(value, list) and len(values) != count:
            self.fail(f"{len(values)} values for {type}", at)
        hint: Any = bool if type.dtype is DType.BOOL else int if type.dtype.is_integer else float
        hints: Any = tuple[hint, ...]
        if type.dtype.bits < 8 or type.dtype is DType.C64 or count * type.dtype.bits > 8 * MAX_FILLED:
            self.fail(f"values of {type}: its bytes, such as 0x00, are needed", at)
        try:
            with np.errstate(over="raise"):
                held = np.array(decode(hints, values, "value"), type.dtype.numpy)
        except (OverflowError, FloatingPointError):
            self.fail(f"a value that {type.dtype.value} does not hold", at)
        except CodecError as error:
            self.fail(str(error), at)
        return (held if isinstance(value, list) else np.full(count, held[0])).tobytes()

    def sources(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.accept("from"):
            found.append(self.name())
            while self.accept(","):
                found.append(self.name())
        return tuple(found)

    def channels(self) -> Channels | None:
        if not self.accept("channels"):
            return None
        start = self.skip()
        kept = self.value()
        self.expect("of")
        try:
            return Channels(decode(tuple[int, ...], kept, "channels"), self.integer("a number of channels"))
        except CodecError as error:
            self.fail(str(error), start)
