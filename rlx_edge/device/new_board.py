"""A board file of the user's own, written from a few facts: like a board that is known, or from its chip alone."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx_edge.device.boards import Board, board_file, board_names, chip_dirs, find_chip, read_board
from rlx_edge.device.chips import Chip
from rlx_edge.errors import DeviceError
from rlx_edge.files import replacing

NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
SMALL_STACK, STACK = 1536, 4096


@dataclass(frozen=True)
class Facts:
    """What is known of the new board; None: as on the board that it is like, or as is usual for the chip.

    Clocks in Hz. `code`, `data` and `arena` name regions of the chip. `method`, `probe` and `drive` (a label) say how
    it is flashed.
    """

    title: str | None = None
    uart: str | None = None
    baud: int | None = None
    tx_pin: int | None = None
    rx_pin: int | None = None
    wiring: str | None = None
    usb: tuple[str, ...] | None = None
    core_hz: int | None = None
    uart_hz: int | None = None
    stack_bytes: int | None = None
    code: str | None = None
    data: str | None = None
    arena: str | None = None
    method: str | None = None
    probe: str | None = None
    drive: str | None = None


# Where each fact stands in a board file.
_TABLES = {
    "placement": ("code", "data", "arena"),
    "clock": ("core_hz", "uart_hz"),
    "link": ("uart", "baud", "tx_pin", "rx_pin", "wiring"),
}


def new_board(name: str, folder: Path, facts: Facts, *, like: str | None = None, chip: str | None = None) -> Path:
    """Writes `folder`/`name`.toml and returns its path. The file is read back before it is put there.

    The board is `like` another, whose set-up steps it gets, or has this `chip`, and then only the chip's own steps.
    Raises `DeviceError` when the name is taken or no name, when the facts do not fit the chip, and when facts lack.
    """
    if NAME.fullmatch(name) is None:
        raise DeviceError(f"{name!r} cannot name a board: use small letters, digits and -")
    path = folder / f"{name}.toml"
    if path.exists() or name in board_names():
        raise DeviceError(f"there is a board {name} already; choose another name")
    if (like is None) == (chip is None):
        raise DeviceError("say which board it is like (--like), or which chip it has (--chip): one of the two")
    values = _like(name, like) if like is not None else _plain(name, find_chip("--chip", chip or "", chip_dirs()))
    _apply(values, facts)
    text = board_text(values)
    _check(name, text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceError(f"{folder}: cannot be made: {error.strerror}") from error
    with replacing(path) as file:
        file.write(text.encode())
    return path


def board_text(values: Mapping[str, Any]) -> str:
    """A board file in TOML: plain values first, then its tables; steps of set-up one a line, in hexadecimal."""
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for name, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {_steps(value) if key == 'steps' else _value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _like(name: str, like: str) -> dict[str, Any]:
    """The other board's file; no emulator, for that models the other one."""
    values = tomllib.loads(board_file(like).read_text(encoding="utf-8"))
    values.pop("emulator", None)
    values |= {"title": f"{name}, like {values['title']}", "hardware": True, "hardware_tested": False}
    return values


def _plain(name: str, chip: Chip) -> dict[str, Any]:
    """The first regions and the first UART of the chip; its clocks are for the user to say."""
    flash = next(region.name for region in chip.regions.values() if region.kind == "flash")
    ram = next(region for region in chip.regions.values() if region.kind == "ram")
    return {
        "title": f"{name} ({chip.name})",
        "chip": chip.name,
        "hardware": True,
        "hardware_tested": False,
        "stack_bytes": STACK if ram.bytes > 4 * STACK else SMALL_STACK,
        "usb": [],
        "placement": {"code": flash, "weights": flash, "data": ram.name, "arena": ram.name},
        "clock": {},
        "link": {"uart": next(iter(chip.uarts)), "baud": 115200},
        "flash": {"method": "openocd", "probe": "cmsis-dap"} if chip.tools.openocd else {"method": "gdb"},
    }


def _apply(values: dict[str, Any], facts: Facts) -> None:
    for key in ("title", "stack_bytes"):
        if getattr(facts, key) is not None:
            values[key] = getattr(facts, key)
    if facts.usb is not None:
        values["usb"] = list(facts.usb)
    for table, keys in _TABLES.items():
        values[table] |= {key: getattr(facts, key) for key in keys if getattr(facts, key) is not None}
    _apply_flashing(values["flash"], facts)
    values["placement"]["weights"] = values["placement"]["code"]
    if "core_hz" not in values["clock"]:
        raise DeviceError("--core-hz is missing: how fast the core runs after the chip's set-up steps, in Hz")
    values["clock"].setdefault("uart_hz", values["clock"]["core_hz"])


def _apply_flashing(values: dict[str, Any], facts: Facts) -> None:
    values |= {key: getattr(facts, key) for key in ("method", "probe") if getattr(facts, key) is not None}
    if facts.usb is not None:  # those of the other board's probe
        values.pop("usb", None)
    if facts.drive is not None:
        values.pop("drive_ids", None)
        values["uf2" if values["method"] == "uf2" else "daplink"] = [facts.drive]


def _check(name: str, text: str) -> Board:
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        file = Path(scratch) / f"{name}.toml"
        file.write_text(text, encoding="utf-8")
        return read_board(file, *chip_dirs())


def _value(value: object) -> str:
    """A plain TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04X}", escaped) + '"'


def _steps(steps: list[dict[str, Any]]) -> str:
    def step(values: dict[str, Any]) -> str:
        pairs = (f"{k} = {hex(v) if isinstance(v, int) else _value(v)}" for k, v in values.items())
        return f"    {{ {', '.join(pairs)} }},\n"

    return "[\n" + "".join(step(values) for values in steps) + "]"
