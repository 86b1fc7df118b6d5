"""Measures all that a check file limits: metrics on this computer, the rest on emulated boards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlx_edge import api
from rlx_edge.data import Data, load_data, preprocess_metadata
from rlx_edge.device.doctor import check_emulator
from rlx_edge.device.toolchain import find_compiler
from rlx_edge.engines import Progress, is_float
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.evaluate import evaluate
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph
from rlx_edge.limits.file import LOSS, METRIC_LIMITS, NEED_EMULATOR, BoardLimits, CheckFile, DataSource
from rlx_edge.limits.finding import MODEL, PARITY, Bound, Finding, apart
from rlx_edge.quant.quantize import Progress as StageProgress
from rlx_edge.quant.quantize import apply_recipe
from rlx_edge.quant.recipe import effort

Warn = Callable[[Sequence[str]], None]


def measure(wanted: CheckFile, progress: StageProgress, warn: Warn) -> tuple[Finding, ...]:
    """A finding for every limit of the file, in its order.

    What keeps a board from being measured (the model does not fit, the firmware faults) is a finding without a figure.
    Raises EdgeError for models and data that cannot be used, ToolError for a missing compiler or emulator.
    """
    if wanted.boards:
        find_compiler()
    emulated = any(key in board.limits for board in wanted.boards for key in NEED_EMULATOR)
    if emulated or any(board.parity for board in wanted.boards):
        _require_emulator()
    graph, float_graph = _models(wanted, progress, warn)
    boards = [_BoardCheck(wanted, board, graph, progress) for board in wanted.boards]
    found = list(_metrics(wanted, graph, float_graph, progress, warn))
    for board in boards:
        found += board.findings()
    return tuple(found)


def _require_emulator() -> None:
    emulator = check_emulator()
    if not emulator.ok:
        raise ToolError(f"{emulator.detail}: {emulator.how_to_fix}")


def _models(wanted: CheckFile, progress: StageProgress, warn: Warn) -> tuple[Graph, Graph | None]:
    """The int8 model, and the float one where losses are counted from it."""
    graph = load(wanted.model)
    float_graph = None if wanted.float_model is None else load(wanted.float_model)
    if float_graph is not None and not is_float(float_graph):
        raise EdgeError(f"{wanted.float_model}: is an int8 model, but [model] names it as the float one")
    if wanted.calibration is None:
        if is_float(graph):
            raise EdgeError(
                f"{wanted.model}: is a float model: add a table [quantize] with data = ..., or name a quantized file"
            )
        return graph, float_graph
    if not is_float(graph):
        raise EdgeError(f"{wanted.model}: is quantized already: remove the table [quantize]")
    given = _samples(wanted.calibration.data, graph)
    made = apply_recipe(graph, given, effort(wanted.calibration.effort), progress=progress)
    warn((*given.warnings, *made.calibration.warnings))
    return made.graph.with_metadata(**preprocess_metadata(given)), graph


def _samples(source: DataSource, graph: Graph, samples: str | None = None) -> Data:
    """The samples of the source, or others of the same file."""
    chosen = samples or source.samples
    return load_data(source.file, graph, samples=chosen, labels=source.labels, preprocess=source.preprocess)


def _metrics(
    wanted: CheckFile, graph: Graph, float_graph: Graph | None, progress: StageProgress, warn: Warn
) -> Iterator[Finding]:
    if wanted.data is None or not wanted.limits:
        return
    data = _samples(wanted.data, graph)
    warn(data.warnings)
    float_data = None if float_graph is None else _samples(wanted.data, float_graph)
    for metric, kind in METRIC_LIMITS.items():
        if not {metric, metric + LOSS} & wanted.limits.keys():
            continue
        started = time.monotonic()
        value = evaluate(graph, data, metric, progress=_staged(progress, f"{metric} in int8")).value
        seconds = time.monotonic() - started
        if metric in wanted.limits:
            yield Finding(MODEL, metric, kind.bound, wanted.limits[metric], value, f"{len(data)} samples", seconds)
        if metric + LOSS in wanted.limits and float_graph is not None and float_data is not None:
            before = evaluate(float_graph, float_data, metric, progress=_staged(progress, f"{metric} in float")).value
            loss = apart(before, value) if kind.bound is Bound.AT_LEAST else apart(value, before)
            note, took = f"float {before:.6g}, int8 {value:.6g}", time.monotonic() - started - seconds
            yield Finding(MODEL, metric + LOSS, Bound.AT_MOST, wanted.limits[metric + LOSS], loss, note, took)


def _staged(progress: StageProgress, stage: str) -> Progress:
    progress(stage, 0, 1)
    return lambda done, total: progress(stage, done, total)


class _BoardCheck:
    """One board: build, profile and parity, each only where a limit needs it."""

    def __init__(self, wanted: CheckFile, board: BoardLimits, graph: Graph, progress: StageProgress) -> None:
        self._model = {wanted.name: graph}
        self._limits = board
        self._progress = progress
        self._name = board.board.name
        parity = board.parity
        self._samples = _samples(wanted.data, graph, parity) if wanted.data is not None and parity else None

    def findings(self) -> list[Finding]:
        with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
            folder = Path(scratch)
            self._progress(f"{self._name}: build", 0, 1)
            started = time.monotonic()
            try:
                sizes = api.build(self._model, self._limits.board, folder, options=self._limits.options).sizes
            except EdgeError as error:
                return self._unmeasured((*self._limits.limits, *([PARITY] if self._samples else ())), str(error))
            built = self._measured({"flash_bytes": sizes.flash_bytes, "ram_bytes": sizes.ram_bytes}, started)
            return [*built, *self._profiled(folder), *self._parity(folder)]

    def _profiled(self, folder: Path) -> list[Finding]:
        keys = [key for key in NEED_EMULATOR if key in self._limits.limits]
        if not keys:
            return []
        self._progress(f"{self._name}: profile", 0, 1)
        started = time.monotonic()
        try:
            profile = api.profile(folder)
        except EdgeError as error:
            return self._unmeasured(keys, str(error))
        return self._measured({"stack_bytes": profile.stack_bytes, "instructions": profile.instructions}, started)

    def _parity(self, folder: Path) -> list[Finding]:
        if self._samples is None:
            return []
        started = time.monotonic()
        shown = _staged(self._progress, f"{self._name}: parity")
        try:
            result = api.parity(folder, self._samples, emulate=True, layers=self._limits.layers, progress=shown)
        except EdgeError as error:
            return self._unmeasured([PARITY], str(error))
        if result.compared_bytes == 0:
            return self._unmeasured([PARITY], "nothing was compared")
        first = result.first_parted or result.first_difference
        note = f"{result.inputs} inputs, {result.compared_bytes:,} bytes compared"
        note = note if first is None else f"{note}; first: {first}"
        seconds = time.monotonic() - started
        return [Finding(self._name, PARITY, Bound.AT_MOST, 0, result.differing_bytes, note, seconds)]

    def _measured(self, figures: dict[str, float], started: float) -> list[Finding]:
        """Findings for those figures that are limited; the first of them took the time."""
        limits = self._limits.limits
        found = [Finding(self._name, k, Bound.AT_MOST, limits[k], v) for k, v in figures.items() if k in limits]
        return [replace(found[0], seconds=time.monotonic() - started), *found[1:]] if found else []

    def _unmeasured(self, keys: Sequence[str], why: str) -> list[Finding]:
        limits = {PARITY: 0, **self._limits.limits}
        return [Finding(self._name, key, Bound.AT_MOST, limits[key], None, why) for key in keys]
