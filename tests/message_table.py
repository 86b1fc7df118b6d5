"""A table of error messages in a page of the docs, between two comments; tests keep it current."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEAD = "| fault | planted | message |\n|---|---|---|\n"
END = "<!-- end of errors -->\n"


@dataclass(frozen=True)
class MessageTable:
    """The table of docs/`page` that tests/`test` keeps."""

    page: str
    test: str

    @property
    def _start(self) -> str:
        return f"<!-- errors: pytest tests/{self.test} --update-golden -->\n"

    @property
    def rows(self) -> str:
        """As the page has them."""
        table = (DOCS / self.page).read_text(encoding="utf-8").partition(self._start)[2].partition(END)[0]
        return table.removeprefix(HEAD)

    def write(self, rows: str) -> None:
        """Put these in their place."""
        before, _, rest = (DOCS / self.page).read_text(encoding="utf-8").partition(self._start)
        text = before + self._start + HEAD + rows + END + rest.partition(END)[2]
        (DOCS / self.page).write_text(text, encoding="utf-8")
