"""What the commands share: arguments and options, and the checks that are made before long work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge.cgen.options import Optimize
from rlx_edge.check import GIVEN_SAMPLES, Check, check_exported, check_model
from rlx_edge.data import Data, load_data
from rlx_edge.device.boards import Board
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError
from rlx_edge.files import check_place
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph, Requant
from rlx_edge.report import check_table
from rlx_edge.report.console import note, out, print_json, say

WARNINGS_SHOWN = 8
RULES = "rounding rule; C is generated for tflm, tflite_ref, tflite_uint8 and onnx (docs/numerics.md)"

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
MODEL_SUFFIXES = (".tflite", ".onnx", ".rlx")
WhichModel = Annotated[str | None, typer.Option("--model", help="which model, when the build holds several")]
Layers = Annotated[bool, typer.Option("--layers", help="compare every tensor, not only the outputs")]
Until = Annotated[
    str | None, typer.Option("--until", help="compare every tensor up to this one, named as in the source model")
]
OneLayer = Annotated[str | None, typer.Option("--layer", help="compare this tensor only")]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", help="size of a symbolic axis of an ONNX model, as NAME=SIZE; repeatable")
]
CheckImport = Annotated[
    bool, typer.Option("--check", help="also run the file in its own runtime (an extra) and compare; 1 on a difference")
]
CheckData = Annotated[
    Path | None, typer.Option("--data", help="samples for --check, beside random ones", show_default=False)
]
OptimizeFor = Annotated[
    Optimize,
    typer.Option("--optimize", help="fewest instructions, least flash, or balanced: the least product of the two"),
]
FlashBudget = Annotated[
    int | None, typer.Option("--flash-budget", help="bytes that constants, kernels and the model's own code may take")
]
RamBudget = Annotated[
    int | None, typer.Option("--ram-budget", help="bytes that the arena may take; 0 for the smallest that is found")
]
StackBudget = Annotated[int | None, typer.Option("--stack-budget", help="bytes that a run may take of the stack")]
Rule = Annotated[Requant, typer.Option("--requant", help=RULES)]


def warn(warnings: Sequence[str]) -> None:
    """What a person should know, a line each; of many the first ones."""
    for warning in warnings[:WARNINGS_SHOWN]:
        note(f"warning: {warning}")
    if len(warnings) > WARNINGS_SHOWN:
        note(f"warning: and {len(warnings) - WARNINGS_SHOWN} more like these; quantize --json has all of them")


def note_untested(board: Board) -> None:
    """Said where firmware for a real board is made, until somebody has run it on one."""
    if board.hardware and not board.hardware_tested:
        note(f"{board.name} is untested: no such board was at hand; docs/boards.md says how its image was checked")


def check_suffix(path: Path, suffix: str) -> None:
    """Before long work, so that it is not lost for want of a place."""
    if path.suffix != suffix:
        raise EdgeError(f"{path}: the result is written as {suffix}; give it that ending")
    check_place(path)


def parse_dims(dims: list[str] | None) -> dict[str, int]:
    """NAME=SIZE texts as sizes by name. Raises EdgeError for a text that is not of this form, or a size below 1."""
    found = {}
    for text in dims or ():
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal() or int(size) < 1:
            raise EdgeError(f"--dim {text}: a name and a size of 1 or more are needed, as width=64")
        found[name] = int(size)
    return found


def open_model(path: Path, dims: list[str] | None) -> Graph:
    """The model of a file, its symbolic axes with these sizes."""
    return load(path, dims=parse_dims(dims))


def given_samples(file: Path | None, graph: Graph, preprocess: str | None) -> Data | None:
    """The samples of `--data` for `--check`, or None where no file was named."""
    return None if file is None else load_data(file, graph, samples=f"0:{GIVEN_SAMPLES}", preprocess=preprocess)


def check_import(model: Path, data: Data | None, json: bool, dims: list[str] | None = None) -> list[dict[str, Any]]:
    """Compare a file's import with what its own runtimes compute; the facts, for JSON.

    On a difference it is told, the facts are printed where JSON is wanted, and the command ends with 1.
    """
    return _told(f"import of {model.name}", check_model(model, data, parse_dims(dims)), json)


def check_export(file: Path, graph: Graph, data: Data | None) -> None:
    """The same for a file and the graph that was written to it."""
    _told(f"export to {file.name}", check_exported(file, graph, data), json=False)


def _told(title: str, checks: Sequence[Check], json: bool) -> list[dict[str, Any]]:
    facts = [check_table.check_facts(check) for check in checks]
    if not json:
        out.print(check_table.check_table(title, checks))
        say(check_table.check_verdict(checks))
    for text in filter(None, map(check_table.parted_text, checks)):
        note(text)
    if not all(check.same for check in checks):
        if json:
            print_json("check", {"checks": facts})
        raise typer.Exit(1)
    return facts


def float_text(path: Path) -> str:
    """What to do with a float model where an int8 one is needed."""
    return f"{path}: is a float model: quantize it first: rlx-edge quantize {path} --data DATA.npz -o OUT.rlx"


def load_int8(path: Path) -> Graph:
    """The model of a file. Raises EdgeError for a float model, which no C is generated from."""
    graph = load(path)
    if is_float(graph):
        raise EdgeError(float_text(path))
    return graph
