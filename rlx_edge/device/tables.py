"""Strict reading of TOML: every key is asked for by name and type, and a key nobody asked for is refused."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from rlx_edge.errors import DeviceError


class Table:
    """One TOML table. Each reader takes a key and checks its type; `done()` refuses whatever was not read.

    Raises `DeviceError` naming the file, the table, the key, what was found and what is wanted.
    """

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where
        self._read: set[str] = set()
        self._known: set[str] = set()

    @classmethod
    def load(cls, path: Path) -> Table:
        try:
            return cls(tomllib.loads(path.read_text(encoding="utf-8")), path.name)
        except OSError as error:
            raise DeviceError(f"{path}: cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DeviceError(f"{path.name}: is not valid TOML: {error}") from error
        except RecursionError as error:
            raise DeviceError(f"{path.name}: is nested too deep") from error

    @property
    def where(self) -> str:
        """File and table, for messages."""
        return self._where

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._values

    def text(self, key: str, allowed: Collection[str] = ()) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a text", value)
        if allowed and value not in allowed:
            raise self._wrong(key, f"one of {', '.join(sorted(allowed))}", value)
        return value

    def number(self, key: str, low: int = 0, high: int = 0xFFFF_FFFF) -> int:
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, f"a whole number from {low} to {high}", value)
        return value

    def real(self, key: str, low: float, high: float) -> float:
        value = self._get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def names(self) -> tuple[str, ...]:
        """What there is to read, where the keys are names of somebody's choice."""
        return tuple(self._values)

    def table(self, key: str) -> Table:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "a table", value)
        return Table(value, f"{self._where}: [{key}]")

    def tables(self, key: str) -> dict[str, Table]:
        """A table of tables, such as [regions.flash] and [regions.ram]; at least one."""
        group = self.table(key)
        found = {name: group.table(name) for name in group._values}
        if not found:
            raise DeviceError(f"{self._where}: [{key}] is empty")
        return found

    def rows(self, key: str) -> tuple[Table, ...]:
        """A list of tables, such as steps = [{ ... }, { ... }]; counted from 1 in messages."""
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._wrong(key, "a list of tables", value)
        return tuple(Table(item, f"{self._where}: {key}, number {i}") for i, item in enumerate(value, 1))

    def done(self) -> None:
        for key in self._values:
            if key not in self._read:
                near = difflib.get_close_matches(key, self._known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(sorted(self._known))}"
                raise DeviceError(f"{self._where}: unknown key {key}{hint}")

    def _get(self, key: str) -> object:
        self._read.add(key)
        self._known.add(key)
        if key not in self._values:
            raise DeviceError(f"{self._where}: the key {key} is missing")
        return self._values[key]

    def _wrong(self, key: str, wanted: str, found: object) -> DeviceError:
        return DeviceError(f"{self._where}: {key} must be {wanted}, found {found!r}")
