"""Text from a model made safe for C: identifiers, strings, comments, number tables."""

from __future__ import annotations

import re

from rlx_edge.errors import EdgeError
from rlx_edge.ir import Array

_KEYWORD_LIST = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
alignas and asm bitand bitor catch class compl concept constexpr decltype delete explicit export friend main mutable
namespace new noexcept not nullptr operator or private protected public rlx template this throw try typeid typename
using virtual wchar_t xor link std
"""
_KEYWORDS = frozenset(_KEYWORD_LIST.split())
LINE_WIDTH = 116


def identifier(name: str) -> str:
    """A name for a model's files and functions: lower-case letters, digits and underscores.

    Raises EdgeError when it cannot be one (empty, a keyword, over 32 characters, a leading digit or underscore).
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name) or name in _KEYWORDS or name.startswith("rlx_"):
        raise EdgeError(
            f"{name!r} cannot name a model in C: use 1 to 32 lower-case letters, digits and underscores, "
            "beginning with a letter, no keyword, and not rlx_... (--name)"
        )
    return name


def suggest_identifier(text: str) -> str:
    """An identifier that resembles a file name: "KWS-int8.tflite" gives "kws_int8"."""
    stem = re.sub(r"[^a-z0-9]+", "_", text.rsplit(".", 1)[0].lower()).strip("_")[:32].rstrip("_")
    if not stem or not stem[0].isalpha():
        stem = f"model_{stem}".rstrip("_")[:32]
    return f"m_{stem[:30]}" if stem in _KEYWORDS or stem.startswith("rlx_") else stem


def comment(text: str) -> str:
    """Text that can stand in a C comment: printable ASCII on one line, which neither ends nor nests the comment."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "?").replace("\\", "/")


def c_string(text: str) -> str:
    """A C string literal for the text's UTF-8 bytes, without trigraphs and with unambiguous escapes."""
    out = []
    for byte in text.encode("utf-8", "replace"):
        char = chr(byte)
        out.append(char if (char.isalnum() and byte < 128) or char in " _-./:;,+=()[]" else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def number_table(values: Array, indent: str = "        ") -> str:
    """The numbers of an array as comma-separated lines."""
    lines, line = [], indent
    for value in values.reshape(-1).tolist():
        word = "INT32_MIN," if value == -(1 << 31) else f"{value},"
        if len(line) + len(word) > LINE_WIDTH:
            lines.append(line.rstrip())
            line = indent
        line += word + " "
    lines.append(line.rstrip())
    return "\n".join(lines)
