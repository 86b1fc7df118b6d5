"""What the commands share: arguments and options, and the checks that are made before long work."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.data import Data
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph, Requant
from rlx_edge.report import tables
from rlx_edge.report.console import note, out, progress, say

FEW_SAMPLES = 8
"""A calibration with fewer is worth a warning."""
RULES = "rounding rule; C is generated for tflm and tflite_ref (docs/numerics.md)"

Model = Annotated[Path, typer.Argument(help="a .tflite, .onnx or .rlx file", show_default=False)]
Build = Annotated[Path, typer.Argument(help="a folder that `rlx-edge build` made", show_default=False)]
DataFile = Annotated[Path, typer.Option("--data", help="an .npz file with one array per input (or x), labels in y")]
Samples = Annotated[str | None, typer.Option("--samples", help="which samples, as start:stop:step")]
Labels = Annotated[str, typer.Option("--labels", help="the array with the labels")]
Preprocessing = Annotated[
    str | None, typer.Option("--preprocess", help="what integers in the data mean, as scale=1/255,mean=0.5,std=0.2")
]
Output = Annotated[Path, typer.Option("-o", "--out", help="where the result goes")]
Name = Annotated[str | None, typer.Option("--name", help="the model's name in C; from the file name by default")]
BoardName = Annotated[str, typer.Option("--board", help="see `rlx-edge boards`")]
Engine = Annotated[
    str | None, typer.Option("--engine", help="host or reference; by default host for int8 models, else reference")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object instead of text")]
Port = Annotated[str | None, typer.Option("--port", help="serial port, or a pyserial URL such as socket://host:1")]
Emulate = Annotated[bool, typer.Option("--emulate", help="run a board that one can buy in the emulator")]
Taps = Annotated[bool, typer.Option("--taps", help="compare every tensor, not only the outputs")]
Rule = Annotated[Requant, typer.Option("--requant", help=RULES)]


def check_suffix(path: Path, suffix: str) -> None:
    """Before long work, so that it is not lost for want of a place."""
    if path.suffix != suffix:
        raise EdgeError(f"{path}: the result is written as {suffix}; give it that ending")
    if not path.parent.is_dir():
        raise EdgeError(f"{path}: there is no folder {path.parent}; make it first")


def float_text(path: Path) -> str:
    """What to do with a float model where an int8 one is needed."""
    return f"{path}: is a float model: quantize it first: rlx-edge quantize {path} --data DATA.npz -o OUT.rlx"


def load_int8(path: Path) -> Graph:
    """The model of a file. Raises EdgeError for a float model, which no C is generated from."""
    graph = load(path)
    if is_float(graph):
        raise EdgeError(float_text(path))
    return graph


def quantized(graph: Graph, data: Data, rule: Requant, quiet: bool) -> tuple[Graph, dict[str, Any]]:
    """The int8 model, and its quality as facts for JSON; without `quiet` the quality is shown."""
    if len(data) < FEW_SAMPLES:
        note(f"warning: only {tables.counted(len(data), 'sample')}")
    with progress("calibrate") as report:
        calibration = api.calibrate(graph, data, report)
    for warning in calibration.warnings:
        note(f"warning: {warning}")
    int8 = api.quantize(graph, calibration, rule)
    if data.preprocess:
        int8 = int8.with_metadata(preprocess=data.preprocess)
    quality = api.quality(graph, int8, data)
    if not quiet:
        out.print(tables.quality_table(quality))
        say(tables.quality_text(quality))
    facts = dataclasses.asdict(quality)
    return int8, facts
