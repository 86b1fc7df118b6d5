"""Reads the vocabulary's Rust file: enums, ops with their fields, operand counts and display strings.

No Rust parser: it knows the few forms that the file has, and raises VocabularyError where it meets another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OPENING, CLOSING = "([{", ")]}"

COMMENT_OR_TEXT = re.compile(r"""("(?:[^"\\]|\\.)*")|'[^'\\\n]'|//[^\n]*|#!?\[[^\n]*\]""", re.DOTALL)
"""A string, a character, a comment or an attribute, whichever comes first."""


class VocabularyError(Exception):
    """The file has a form that is not known here."""


@dataclass(frozen=True)
class Arm:
    """`Op::A { .. } | Op::B => expression`: the kinds, the pattern as it stands, and the expression."""

    kinds: tuple[str, ...]
    pattern: str
    expression: str


@dataclass(frozen=True)
class Template:
    """`write!(f, "text {a:?} {}", b)`: the text, and the expressions that fill its `{}` in order."""

    text: str
    arguments: tuple[str, ...]


class Vocabulary:
    """The file's facts. Only strings are left of what COMMENT_OR_TEXT finds."""

    def __init__(self, path: Path) -> None:
        self.source = COMMENT_OR_TEXT.sub(lambda found: found[1] or "", path.read_text(encoding="utf-8"))

    @cached_property
    def enums(self) -> Mapping[str, tuple[str, ...]]:
        """The members of each public enum but Op, by its name."""
        names = re.findall(r"pub enum (\w+) \{", self.source)
        return {name: tuple(self._variants(name)) for name in names if name != "Op"}

    @cached_property
    def fields(self) -> Mapping[str, Mapping[str, str]]:
        """The fields of each kind, with their Rust types. The one of a tuple variant is called `0`."""
        return self._variants("Op")

    @cached_property
    def arities(self) -> tuple[Arm, ...]:
        """The arms that say how many operands a kind has; those of `arity` come first and count."""
        both = (self._arms("pub fn arity"), self._arms("fn exact_num_inputs"))
        return tuple(arm for arms in both for arm in arms if "unreachable!" not in arm.expression)

    @cached_property
    def displays(self) -> tuple[Arm, ...]:
        """The arms of `impl Display for Op`."""
        return tuple(self._arms("impl std::fmt::Display for Op"))

    def _variants(self, enum: str) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        for text in split(self._block(f"pub enum {enum} "), ","):
            match = re.fullmatch(r"(\w+)\s*(?:\((.*)\)|\{(.*)\})?", text, re.DOTALL)
            if match is None:
                raise VocabularyError(f"a member of {enum}: {text}")
            name, positional, named = match.groups()
            if positional is not None:
                found[name] = {str(i): kind for i, kind in enumerate(split(positional, ","))}
            else:
                pairs = (field.partition(":") for field in split(named or "", ","))
                found[name] = {field.strip(): kind.strip() for field, _, kind in pairs}
        return found

    def _arms(self, start: str) -> Iterator[Arm]:
        """The arms of the first `match self` after `start`."""
        body = self._block("match self ", self.source.index(start))
        at = 0
        while body[at:].strip():
            arrow = find(body, "=>", at)
            pattern = body[at:arrow].strip()
            at = arrow + 2
            while body[at].isspace():
                at += 1
            end = matching(body, at) + 1 if body[at] == "{" else find(body, ",", at)
            expression = body[at:end].strip()
            at = end + (body[end : end + 1] == ",")
            yield Arm(tuple(re.findall(r"Op::(\w+)", pattern)), pattern, expression)

    def _block(self, start: str, after: int = 0) -> str:
        """What stands between the braces that follow `start`."""
        opening = self.source.index("{", self.source.index(start, after) + len(start) - 1)
        return self.source[opening + 1 : matching(self.source, opening)]


def template(expression: str) -> Template | None:
    """The only thing that an arm of a Display writes, or None where the arm decides what to write."""
    while expression.startswith("{") and matching(expression, 0) == len(expression) - 1:
        expression = expression[1:-1].strip()
    if not expression.startswith("write!(") or matching(expression, 6) != len(expression) - 1:
        return None
    _, text, *arguments = split(expression[7:-1], ",")
    return Template(text.strip('"').replace('\\"', '"'), tuple(arguments))


def tokens(text: str, start: int = 0) -> Iterator[tuple[int, int, str]]:
    """(place, depth, character) outside of strings; a bracket has the depth of what stands around it."""
    depth, quoted, at = 0, False, start
    while at < len(text):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif quoted:
            at += char == "\\"
        elif char in CLOSING:
            depth -= 1
            yield at, depth, char
        else:
            yield at, depth, char
            depth += char in OPENING
        at += 1


def matching(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes."""
    return next(at for at, depth, char in tokens(text, opening) if depth == 0 and char in CLOSING)


def find(text: str, what: str, start: int) -> int:
    """Where `what` stands outside of brackets and strings, from `start` on; the end where it does not."""
    places = (at for at, depth, _ in tokens(text, start) if depth == 0 and text.startswith(what, at))
    return next(places, len(text))


def split(text: str, separator: str) -> list[str]:
    """Parts between separators outside of brackets, without the space around them; empty ones are left out."""
    cuts = [at for at, depth, char in tokens(text) if depth == 0 and char == separator]
    parts = [
        text[start:end].strip() for start, end in zip([0, *(at + 1 for at in cuts)], [*cuts, len(text)], strict=True)
    ]
    return [part for part in parts if part]
