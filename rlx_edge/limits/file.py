"""Reads rlx-edge.toml as strictly as board files are read: unknown keys, wrong types and missing files are refused.

docs/check.md describes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.cgen.options import BUDGETS, Optimize, Options
from rlx_edge.cgen.text import identifier, suggest_identifier
from rlx_edge.data import LABELS, parse_samples
from rlx_edge.device.boards import Board, load_board
from rlx_edge.device.tables import Table
from rlx_edge.errors import EdgeError
from rlx_edge.limits.finding import Bound
from rlx_edge.preprocess import Preprocess
from rlx_edge.quant.recipe import DEFAULT_EFFORT, EFFORTS


@dataclass(frozen=True)
class MetricLimit:
    """A limit on a metric of rlx_edge/metrics.py: its side, and the largest number that makes sense."""

    bound: Bound
    highest: float


METRIC_LIMITS: Mapping[str, MetricLimit] = {
    "top1": MetricLimit(Bound.AT_LEAST, 1.0),
    "auc": MetricLimit(Bound.AT_LEAST, 1.0),
    "mse": MetricLimit(Bound.AT_MOST, 1e30),
}
LOSS = "_loss"
"""top1_loss limits by how much top1 may be worse than the float model's."""

BOARD_LIMITS = ("flash_bytes", "ram_bytes", "stack_bytes", "instructions")
"""Keys of a board's table, which are those of `rlx-edge profile --json`; all of them at most."""
NEED_EMULATOR = ("stack_bytes", "instructions", "parity")


@dataclass(frozen=True)
class DataSource:
    """Which samples, as the options of the same names say."""

    file: Path
    samples: str | None
    labels: str
    preprocess: str | None


@dataclass(frozen=True)
class Calibration:
    """How a float model is quantized before it is measured."""

    data: DataSource
    effort: str


@dataclass(frozen=True)
class BoardLimits:
    """What must hold on one board. `parity` picks the samples whose bytes must all be equal, or is None."""

    board: Board
    options: Options
    limits: Mapping[str, int]
    parity: str | None
    layers: bool


@dataclass(frozen=True)
class CheckFile:
    """A whole file. `float_model` is what losses are counted from; `calibration` is there for a float `model` only."""

    model: Path
    name: str
    float_model: Path | None
    calibration: Calibration | None
    data: DataSource | None
    limits: Mapping[str, float]
    boards: tuple[BoardLimits, ...]


def read_check_file(path: Path) -> CheckFile:
    """Reads the file; paths in it are relative to its folder. Raises EdgeError, in one line, for anything wrong."""
    table = Table.load(path)
    reader = _Reader(path)
    model = table.table("model")
    file = reader.existing(model, "file")
    found = CheckFile(
        model=file,
        name=identifier(model.text("name") if model.has("name") else suggest_identifier(file.name)),
        float_model=reader.existing(model, "float") if model.has("float") else None,
        calibration=reader.calibration(table.table("quantize")) if table.has("quantize") else None,
        data=reader.data(table.table("data"), "file") if table.has("data") else None,
        limits=_metric_limits(table.table("limits")) if table.has("limits") else {},
        boards=tuple(reader.board(*entry) for entry in table.tables("boards").items()) if table.has("boards") else (),
    )
    for part in (model, table):
        part.done()
    reader.check(found)
    return found


class _Reader:
    """Reads tables of one file, whose folder paths are relative to."""

    def __init__(self, path: Path) -> None:
        self._where = path.name
        self._folder = path.parent

    def existing(self, table: Table, key: str) -> Path:
        """A file, or a folder of images, that is there."""
        path = self._folder / table.text(key)
        if not path.exists():
            raise EdgeError(f"{self._where}: {key} = {table.text(key)!r}: there is no {path}")
        return path

    def data(self, table: Table, key: str) -> DataSource:
        """A table that says which samples; its own other keys must have been read before."""
        samples, preprocess = (table.text(k) if table.has(k) else None for k in ("samples", "preprocess"))
        parse_samples(samples)
        if preprocess is not None:
            Preprocess.parse(preprocess)
        labels = table.text("labels") if table.has("labels") else LABELS
        source = DataSource(self.existing(table, key), samples, labels, preprocess)
        table.done()
        return source

    def calibration(self, table: Table) -> Calibration:
        effort = table.text("effort", EFFORTS) if table.has("effort") else DEFAULT_EFFORT
        return Calibration(self.data(table, "data"), effort)

    def board(self, name: str, table: Table) -> BoardLimits:
        try:
            board = load_board(name)
        except EdgeError as error:
            raise EdgeError(f"{self._where}: [boards.{name}]: {error}") from error
        optimize = table.text("optimize", tuple(Optimize)) if table.has("optimize") else Optimize.BALANCED
        budgets = {key: table.number(key) for key in BUDGETS if table.has(key)}
        found = BoardLimits(
            board=board,
            options=Options(Optimize(optimize), **budgets),
            limits={key: table.number(key, high=2**53) for key in BOARD_LIMITS if table.has(key)},
            parity=table.text("parity") if table.has("parity") else None,
            layers=table.flag("layers") if table.has("layers") else False,
        )
        table.done()
        parse_samples(found.parity)
        self._check_board(name, found)
        return found

    def _check_board(self, name: str, found: BoardLimits) -> None:
        where = f"{self._where}: [boards.{name}]"
        if not found.limits and found.parity is None:
            raise EdgeError(f"{where}: holds no limit; there are {', '.join(BOARD_LIMITS)} and parity")
        if found.layers and found.parity is None:
            raise EdgeError(f'{where}: layers says what parity compares: add parity = "0:8", say')
        asked = [key for key in NEED_EMULATOR if key in found.limits or (key == "parity" and found.parity)]
        if asked and found.board.emulation is None:
            raise EdgeError(f"{where}: no emulator runs this board, so {', '.join(asked)} cannot be measured here")

    def check(self, found: CheckFile) -> None:
        """Rules between tables."""
        if not found.limits and not found.boards:
            raise EdgeError(f"{self._where}: holds no limit: add a table [limits] or [boards.NAME]")
        if found.data is None and (found.limits or any(board.parity for board in found.boards)):
            raise EdgeError(f"{self._where}: [data] is missing: metrics and parity need samples")
        losses = [key for key in found.limits if key.endswith(LOSS)]
        if losses and found.float_model is None and found.calibration is None:
            raise EdgeError(f"{self._where}: {losses[0]} needs the float model: add float = ... to [model]")
        if found.float_model is not None and not losses:
            raise EdgeError(f"{self._where}: [model]: float is there for nothing: no limit is a loss, as top1{LOSS}")
        if found.float_model is not None and found.calibration is not None:
            raise EdgeError(f"{self._where}: [model]: float is file itself where [quantize] is given: remove float")


def _metric_limits(table: Table) -> dict[str, float]:
    """A limit for each key, a metric's name with or without _loss."""
    found = {}
    for name, kind in METRIC_LIMITS.items():
        for key in (name, name + LOSS):
            if table.has(key):
                found[key] = table.real(key, 0, kind.highest)
    table.done()
    return found
