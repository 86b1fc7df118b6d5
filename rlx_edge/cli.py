"""The `rlx-edge` command: parses, calls the API, prints. Exit codes: 0 good, 1 a check failed, 2 bad use or input."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import get_target
from rlx_edge.cgen.text import identifier, suggest_identifier
from rlx_edge.data import Data, load_data
from rlx_edge.demo import Demo
from rlx_edge.device.boards import DEFAULT_BOARD, load_board, load_boards
from rlx_edge.device.build import Firmware
from rlx_edge.device.doctor import run_checks
from rlx_edge.device.parity import ParityResult
from rlx_edge.engines import is_float, predict
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.evaluate import evaluate as evaluate_model
from rlx_edge.files import save_npz
from rlx_edge.formats.load import load
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.ir import Graph, Requant
from rlx_edge.ir.ops import Leaf, Param
from rlx_edge.report import tables
from rlx_edge.report.console import note, out, print_json, progress

INTERRUPTED = 130
"""What typer returns after Ctrl-C."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Neural networks on microcontrollers, proven bit for bit.",
)

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
Engine = Annotated[str | None, typer.Option("--engine", help="host or reference")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object instead of text")]
Port = Annotated[str | None, typer.Option("--port", help="serial port, or a pyserial URL such as socket://host:1")]
Emulate = Annotated[bool, typer.Option("--emulate", help="run a board that one can buy in the emulator")]
Taps = Annotated[bool, typer.Option("--taps", help="compare every tensor, not only the outputs")]
Rule = Annotated[Requant, typer.Option("--requant", help="rounding rule (docs/numerics.md)")]
BUILD_ONLY_MODEL = Annotated[str | None, typer.Option("--model", help="which model, when the build holds several")]


@app.command()
def inspect(
    model: Model,
    target: Annotated[str, typer.Option("--target", help="portable, cortex-m4, ...")] = "portable",
    json: Json = False,
) -> None:
    """Ops, shapes, MACs and parameters; predicted RAM and flash; what the target cannot run, and why."""
    graph = load(model)
    layers = [
        {
            "name": node.name,
            "op": node.op.kind_name,
            "shape": list(node.type.shape),
            "macs": graph.macs(node),
            "parameters": tables.parameters_of(graph, node.inputs),
        }
        for node in graph.nodes
        if not isinstance(node.op, Leaf)
    ]
    facts: dict[str, Any] = {
        "macs": sum(graph.macs(node) for node in graph.nodes),
        "parameters": sum(node.type.elements for node in graph.nodes if isinstance(node.op, Param)),
        "layers": layers,
    }
    try:
        plan = make_plan(graph, get_target(target))
        facts |= {"arena_bytes": plan.arena_bytes, "constant_bytes": plan.constant_bytes, "problems": []}
    except UnsupportedError as error:
        facts["problems"] = list(error.problems)
    if json:
        print_json("inspect", facts)
        return
    out.print(tables.layers_table(graph))
    if facts["problems"]:
        note(f"{target} cannot run it as it is:")
        for problem in facts["problems"]:
            note(f"  {problem}")
        if is_float(graph):
            note("it is a float model: quantize it first (rlx-edge quantize)")
    else:
        arena, constants = facts["arena_bytes"], facts["constant_bytes"]
        out.print(f"on {target}: arena {arena:,} bytes of RAM, constants {constants:,} bytes of flash")


@app.command()
def quantize(
    model: Model,
    data: DataFile,
    out_file: Output,
    samples: Samples = None,
    preprocess: Preprocessing = None,
    rule: Rule = Requant.TFLM,
    json: Json = False,
) -> None:
    """Calibrate a float model on data and quantize it to int8."""
    _check_suffix(out_file, ".rlx")
    graph = load(model)
    given = load_data(data, graph, samples=samples, preprocess=preprocess)
    int8, facts = _quantized(graph, given, rule, quiet=json)
    save_rlx(int8, out_file)
    if json:
        print_json("quantize", facts)
    else:
        note(f"wrote {out_file}")


def _quantized(graph: Graph, data: Data, rule: Requant, quiet: bool) -> tuple[Graph, dict[str, Any]]:
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
        out.print(tables.quality_text(quality))
    facts = dataclasses.asdict(quality)
    return int8, facts


@app.command()
def convert(model: Model, out_file: Output, rule: Annotated[Requant | None, typer.Option("--requant")] = None) -> None:
    """Import a model and write it as .rlx, without calibration."""
    _check_suffix(out_file, ".rlx")
    graph = load(model)
    save_rlx(graph if rule is None else api.with_rule(graph, rule), out_file)
    note(f"wrote {out_file}")


@app.command()
def evaluate(
    model: Model,
    data: DataFile,
    metric: Annotated[str, typer.Option("--metric", help="top1 or mse")] = "top1",
    samples: Samples = None,
    labels: Labels = "y",
    preprocess: Preprocessing = None,
    engine: Engine = None,
    json: Json = False,
) -> None:
    """Accuracy on labeled data: host C for int8 models, the reference for float ones."""
    graph = load(model)
    given = load_data(data, graph, samples=samples, labels=labels, preprocess=preprocess)
    with progress("evaluate") as report:
        result = evaluate_model(graph, given, metric, engine, report)
    if json:
        print_json("evaluate", {result.metric: result.value, "n": result.n})
    else:
        shown = f"{result.value:.2%}" if metric == "top1" else f"{result.value:.6g}"
        out.print(f"{metric} {shown} on {result.n} samples")


@app.command()
def run(
    model: Model,
    data: DataFile,
    out_file: Output,
    samples: Samples = None,
    preprocess: Preprocessing = None,
    engine: Engine = None,
) -> None:
    """Run a model on data and store its outputs as .npz, by output name."""
    _check_suffix(out_file, ".npz")
    graph = load(model)
    given = load_data(data, graph, samples=samples, preprocess=preprocess)
    with progress("run") as report:
        outputs = predict(graph, given, engine, report)
    save_npz(out_file, outputs)
    note(f"wrote {out_file}: {', '.join(f'{name} {list(values.shape)}' for name, values in outputs.items())}")


@app.command()
def generate(
    models: Annotated[list[Path], typer.Argument(help="int8 models (.tflite or .rlx)", show_default=False)],
    out_dir: Output,
    name: Name = None,
    target: Annotated[str, typer.Option("--target", help="portable, cortex-m4, ...")] = "portable",
    with_link: Annotated[bool, typer.Option("--with-link", help="add the serial link, for your own firmware")] = False,
) -> None:
    """Write C: a shared folder of kernels and a folder a model. Several names are separated by commas."""
    names = name.split(",") if name else [suggest_identifier(path.name) for path in models]
    if len(names) != len(models) or len(set(names)) != len(names):
        wanted = ",".join(f"{names[0]}_{i + 1}" for i in range(len(models)))
        raise EdgeError(f"{len(models)} models need as many different names: say --name {wanted}")
    graphs = {identifier(n): load(path) for n, path in zip(names, models, strict=True)}
    for bundled in api.generate(graphs, out_dir, get_target(target), with_link):
        plan = bundled.plan
        out.print(
            f"{bundled.name}: {len(plan.steps)} steps, arena {plan.arena_bytes:,} bytes, "
            f"constants {plan.constant_bytes:,} bytes, in {out_dir / bundled.name}",
            markup=False,
        )


@app.command()
def build(
    model: Model, out_dir: Output, board: BoardName = DEFAULT_BOARD, name: Name = None, json: Json = False
) -> None:
    """Generate C and build firmware for a board."""
    firmware = _build(load(model), model, board, name, out_dir)
    _print_sizes(firmware, json)


def _build(graph: Graph, path: Path, board: str, name: str | None, out_dir: Path) -> Firmware:
    return api.build({identifier(name or suggest_identifier(path.name)): graph}, load_board(board), out_dir)


def _print_sizes(firmware: Firmware, json: bool) -> None:
    facts = dataclasses.asdict(firmware.sizes)
    if json:
        print_json("build", {"board": firmware.board, "elf": str(firmware.elf), **facts})
    else:
        out.print(f"{firmware.board}: {tables.sizes_text(firmware.sizes)}")
        note(f"wrote {firmware.elf}")


@app.command()
def parity(
    folder: Build,
    data: DataFile,
    model: BUILD_ONLY_MODEL = None,
    port: Port = None,
    samples: Samples = "0:8",
    preprocess: Preprocessing = None,
    emulate: Emulate = False,
    taps: Taps = False,
    json: Json = False,
) -> None:
    """Compare the device with host C and the reference, bit by bit. Exits with 1 on any difference."""
    models = api.open_models(folder)
    given = load_data(data, api.pick(models, model).plan.graph, samples=samples, preprocess=preprocess)
    result = _parity(folder, given, model, port, emulate, taps)
    _finish_parity(result, json)


def _parity(folder: Path, data: Data, model: str | None, port: str | None, emulate: bool, taps: bool) -> ParityResult:
    with progress("parity") as report:
        return api.parity(folder, data, model=model, port=port, emulate=emulate, taps=taps, progress=report)


def _finish_parity(result: ParityResult, json: bool, more: dict[str, Any] | None = None) -> None:
    if json:
        keys = ("board", "inputs", "compared_bytes", "differing_bytes", "exact")
        first = result.first_parted or result.first_difference
        facts = {key: getattr(result, key) for key in keys} | {"first_difference": str(first) if first else None}
        print_json("parity", facts | (more or {}))
    else:
        out.print(tables.parity_table(result))
        out.print(tables.parity_verdict(result), markup=False)
    if not result.exact:
        raise typer.Exit(1)


@app.command()
def profile(
    source: Annotated[Path, typer.Argument(help="a build folder, or a model (with --board)", show_default=False)],
    board: Annotated[str | None, typer.Option("--board", help="build the model for this board first")] = None,
    model: BUILD_ONLY_MODEL = None,
    json: Json = False,
) -> None:
    """Instructions per layer, flash, RAM and stack, counted in the emulator."""
    if source.is_dir():
        made = api.profile(source, model)
    else:
        with tempfile.TemporaryDirectory(prefix="rlx-edge-") as folder:
            _build(load(source), source, board or DEFAULT_BOARD, None, Path(folder))
            made = api.profile(Path(folder), model)
    if json:
        print_json("profile", dataclasses.asdict(made))
        return
    out.print(tables.profile_table(made))
    out.print(
        f"flash {made.flash_bytes:,} bytes, RAM {made.ram_bytes:,} bytes, stack used {made.stack_bytes:,} bytes "
        f"(the link adds {made.link_flash_bytes:,} of flash and {made.link_ram_bytes:,} of RAM)"
    )


@app.command()
def deploy(
    model: Model,
    data: DataFile,
    board: BoardName = DEFAULT_BOARD,
    samples: Samples = "0:8",
    preprocess: Preprocessing = None,
    name: Name = None,
    out_dir: Annotated[Path | None, typer.Option("-o", "--out", help="keep the build in this folder")] = None,
    port: Port = None,
    emulate: Emulate = False,
    taps: Taps = False,
    json: Json = False,
) -> None:
    """Quantize if needed, generate, build, run on the board, and prove parity, in one go."""
    graph = load(model)
    if is_float(graph):
        whole = load_data(data, graph, preprocess=preprocess)
        graph, _ = _quantized(graph, whole, Requant.TFLM, quiet=json)
    given = load_data(data, graph, samples=samples, preprocess=preprocess)
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        folder = out_dir or Path(scratch)
        firmware = _build(graph, model, board, name, folder)
        if not json:
            out.print(f"{firmware.board}: {tables.sizes_text(firmware.sizes)}")
        if out_dir is not None:
            note(f"wrote {firmware.elf}")
        result = _parity(folder, given, None, port, emulate, taps)
        _finish_parity(result, json, {"flash_bytes": firmware.sizes.flash_bytes, "ram_bytes": firmware.sizes.ram_bytes})


@app.command()
def boards(json: Json = False) -> None:
    """The boards that firmware can be built for."""
    found = load_boards()
    if json:
        names = [
            {"name": b.name, "title": b.title, "cpu": b.chip.cpu, "hardware_tested": b.hardware_tested} for b in found
        ]
        print_json("boards", {"boards": names})
        return
    rows = [(b.name, b.chip.cpu, b.placement.code.bytes, b.placement.data.bytes, tables.board_state(b)) for b in found]
    out.print(tables.table("boards", ("board", "core", "flash", "RAM", "runs in"), rows))


@app.command()
def doctor() -> None:
    """Check compilers, emulator, gdb and serial permissions; say how to get what lacks. Exits with 1 if any lacks."""
    checks = run_checks()
    out.print(tables.doctor_table(checks))
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


@app.command()
def demo(
    board: BoardName = DEFAULT_BOARD,
    out_dir: Annotated[Path | None, typer.Option("-o", "--out", help="keep all files in this folder")] = None,
) -> None:
    """The whole path on an example: a network that reads digits, from ONNX to an emulated board, in half a minute."""
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        result = Demo(out_dir or Path(scratch), load_board(board), out).run()
    kept = f"all files are in {out_dir}" if out_dir else "no file was kept; rlx-edge demo -o FOLDER keeps them"
    note(f"{kept}, where the commands above work too" if out_dir else kept)
    if not result.exact:
        raise typer.Exit(1)


def _check_suffix(path: Path, suffix: str) -> None:
    """Before long work, so that it is not lost for want of a place."""
    if path.suffix != suffix:
        raise EdgeError(f"{path}: the result is written as {suffix}; give it that ending")
    if not path.parent.is_dir():
        raise EdgeError(f"{path}: there is no folder {path.parent}; make it first")


def main() -> None:
    """Run the command; errors meant for people become one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # names from models may not fit the terminal's encoding
    try:
        status = app(standalone_mode=False)
        if status == INTERRUPTED:
            note("rlx-edge: interrupted")
        sys.exit(status)
    except EdgeError as error:
        note(f"rlx-edge: {error}")
    except typer.TyperException as error:
        if error.format_message():  # empty where a bare `rlx-edge` has printed its help
            asked = getattr(getattr(error, "ctx", None), "command_path", "rlx-edge")
            note(f"rlx-edge: {error.format_message()} See {asked} --help")
    except OSError as error:
        note(f"rlx-edge: {error.filename or ''}: {error.strerror or error}")
    sys.exit(2)
