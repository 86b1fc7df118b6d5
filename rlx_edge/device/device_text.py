"""What a device says in words, made fit for a terminal: no control characters, and not without end."""

from __future__ import annotations

from collections.abc import Callable

LINE_CHARACTERS = 200
LINES_PER_REQUEST = 50


def printable(text: str) -> str:
    r"""The text with all that could steer a terminal spelled out, such as `\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class TextLimit:
    """Passes on lines of text, cut to `LINE_CHARACTERS`, and after `LINES_PER_REQUEST` only counts them."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._lines = 0
        self._left_out = 0

    def show(self, line: str) -> None:
        self._lines += 1
        if self._lines > LINES_PER_REQUEST:
            self._left_out += len(line)
            return
        more = len(line) - LINE_CHARACTERS
        self._on_text(f"{line[:LINE_CHARACTERS]} (… {more:,} more bytes of text)" if more > 0 else line)

    def end_request(self) -> None:
        """Says how much was left out, and starts anew."""
        if self._left_out:
            self._on_text(f"(… {self._left_out:,} more bytes of text)")
        self._lines = self._left_out = 0
