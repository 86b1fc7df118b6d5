"""Commands on boards: build, parity, profile, deploy, doctor, demo."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.certificate.facts import statement
from rlx_edge.certificate.issue import certify
from rlx_edge.cgen.options import Optimize, Options
from rlx_edge.cgen.text import identifier, suggest_identifier
from rlx_edge.cli_options import (
    BoardName,
    Build,
    CheckImport,
    DataFile,
    Dims,
    Emulate,
    FlashBudget,
    Json,
    Layers,
    Model,
    Name,
    OneLayer,
    OptimizeFor,
    Output,
    Port,
    Preprocessing,
    RamBudget,
    Samples,
    StackBudget,
    Until,
    WhichModel,
    check_import,
    check_suffix,
    load_int8,
    note_untested,
    open_model,
    warn,
)
from rlx_edge.cli_quantize import Effort, FixedWeights, deployable, fixed_rules
from rlx_edge.data import load_data
from rlx_edge.demo import Demo
from rlx_edge.device.boards import DEFAULT_BOARD, Board, load_board
from rlx_edge.device.build import BUNDLE, Firmware, check_build_folder
from rlx_edge.device.doctor import check_emulator, run_checks
from rlx_edge.device.flash import Wishes
from rlx_edge.device.parity import ParityResult
from rlx_edge.device.toolchain import find_compiler
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.files import replacing
from rlx_edge.ir import Graph
from rlx_edge.quant.recipe import DEFAULT_EFFORT
from rlx_edge.report import tables
from rlx_edge.report.console import note, out, print_json, progress, say, stages
from rlx_edge.report.parity_tables import diagnosis_lines, parity_facts, parity_table, parity_verdict


def build(
    model: Model,
    out_dir: Output,
    board: BoardName = DEFAULT_BOARD,
    name: Name = None,
    optimize: OptimizeFor = Optimize.BALANCED,
    flash_budget: FlashBudget = None,
    ram_budget: RamBudget = None,
    stack_budget: StackBudget = None,
    json: Json = False,
) -> None:
    """Generate C and build firmware for a board."""
    options = Options(optimize, flash_budget, ram_budget, stack_budget)
    firmware = _build(load_int8(model), model, board, name, out_dir, options)
    _print_sizes(firmware, json)
    note_untested(load_board(board))


def _build(graph: Graph, path: Path, board: str, name: str | None, out_dir: Path, options: Options) -> Firmware:
    in_c = identifier(name or suggest_identifier(path.name))
    return api.build({in_c: graph}, load_board(board), out_dir, options=options)


def _print_sizes(firmware: Firmware, json: bool) -> None:
    facts = dataclasses.asdict(firmware.sizes)
    if json:
        print_json("build", {"board": firmware.board, "elf": str(firmware.elf), **facts})
    else:
        say(f"{firmware.board}: {tables.sizes_text(firmware.sizes)}")
        note(f"wrote {firmware.elf}")


def parity(
    folder: Build,
    data: DataFile,
    model: WhichModel = None,
    port: Port = None,
    samples: Samples = "0:8",
    preprocess: Preprocessing = None,
    emulate: Emulate = False,
    layers: Layers = False,
    until: Until = None,
    layer: OneLayer = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="where equality is stored as a .zip to verify later", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Compare the device with host C and the reference, bit by bit. Exits with 1 on any difference."""
    if not folder.is_dir():
        raise EdgeError(f"there is no folder {folder}")
    if certificate is not None:
        check_suffix(certificate, ".zip")
        if until is not None or layer is not None:
            raise EdgeError("a certificate states what all layers, or the outputs, gave: leave out --until and --layer")
    models = api.open_models(folder)
    given = load_data(data, api.pick(models, model).plan.graph, samples=samples, preprocess=preprocess)
    if certificate is None:
        with progress("parity") as report:
            result = api.parity(
                folder,
                given,
                model=model,
                port=port,
                emulate=emulate,
                layers=layers,
                until=until,
                layer=layer,
                progress=report,
            )
        _finish_parity(result, json)
        return
    with progress("parity") as report:
        result, sealed = certify(folder, given, model=model, port=port, emulate=emulate, layers=layers, progress=report)
    if sealed is None:
        note("no certificate was written")
    else:
        with replacing(certificate) as file:
            file.write(sealed)
    _finish_parity(result, json, {"certificate": None if sealed is None else str(certificate)})
    note(f"wrote {certificate}: {statement(result.inputs)}")


def _finish_parity(result: ParityResult, json: bool, more: dict[str, Any] | None = None) -> None:
    if json:
        print_json("parity", {**parity_facts(result), **(more or {})})
    else:
        out.print(parity_table(result))
        say(parity_verdict(result))
        for line in () if result.diagnosis is None else diagnosis_lines(result.diagnosis):
            say(line)
    if not result.exact:
        raise typer.Exit(1)


def deploy(
    model: Model,
    data: DataFile,
    board: BoardName = DEFAULT_BOARD,
    samples: Annotated[str, typer.Option("--samples", help="samples for parity, as start:stop:step")] = "0:8",
    calibrate: Annotated[
        str | None, typer.Option("--calibrate", help="samples for calibration, as start:stop:step; all by default")
    ] = None,
    preprocess: Preprocessing = None,
    level: Effort = DEFAULT_EFFORT,
    weights: FixedWeights = None,
    name: Name = None,
    out_dir: Annotated[Path | None, typer.Option("-o", "--out", help="keep the build in this folder")] = None,
    port: Port = None,
    flash_first: Annotated[bool, typer.Option("--flash/--no-flash", help="write the image to the board first")] = True,
    emulate: Emulate = False,
    layers: Layers = False,
    dims: Dims = None,
    check: CheckImport = False,
    optimize: OptimizeFor = Optimize.BALANCED,
    flash_budget: FlashBudget = None,
    ram_budget: RamBudget = None,
    stack_budget: StackBudget = None,
    json: Json = False,
) -> None:
    """Quantize if needed, generate, build, flash, run on the board, and prove parity, in one go."""
    options = Options(optimize, flash_budget, ram_budget, stack_budget)
    rules = fixed_rules(weights, "deploy")
    on = _check_before_deploy(load_board(board), out_dir, port, emulate)
    if on is not None:
        note_untested(load_board(board))
    graph = open_model(model, dims)
    if rules is not None and not is_float(graph):
        raise EdgeError(f"--weights: {model} is quantized already; give the float model")
    checks = None
    if check or is_float(graph):
        whole = load_data(data, graph, samples=calibrate, preprocess=preprocess)
        checks = check_import(model, whole, json, dims=dims) if check else None
        graph = deployable(graph, whole, level, rules, json) if is_float(graph) else graph
    given = load_data(data, graph, samples=samples, preprocess=preprocess)
    warn(given.warnings)
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as scratch:
        folder = out_dir or Path(scratch)
        firmware = _build(graph, model, board, name, folder, options)
        if not json:
            say(f"{firmware.board}: {tables.sizes_text(firmware.sizes)}")
        if out_dir is None:
            note("no file was kept; -o FOLDER keeps them")
        else:
            in_c = firmware.models[0]
            note(f"wrote {firmware.elf}; the int8 model is {folder / BUNDLE / in_c / in_c}.rlx")
        if on is not None and flash_first and not load_board(board).purely_emulated:
            with stages() as report:
                done = api.flash(folder, Wishes(port=on), progress=report)
            note(f"wrote {done.image_bytes:,} bytes to {done.board} by {done.method}, verified by the device")
        with progress("parity") as report:
            result = api.parity(folder, given, port=on, emulate=emulate, layers=layers, progress=report)
        more = {"flash_bytes": firmware.sizes.flash_bytes, "ram_bytes": firmware.sizes.ram_bytes}
        _finish_parity(result, json, more if checks is None else more | {"checks": checks})


def _check_before_deploy(board: Board, out_dir: Path | None, port: str | None, emulate: bool) -> str | None:
    """What would fail at the end, checked before the long work. Returns the board's port, None for the emulator."""
    on = api.port_or_emulator(board, port, emulate)
    if on is None and not (emulator := check_emulator()).ok:
        raise ToolError(f"{emulator.detail}: {emulator.how_to_fix}")
    find_compiler()
    if out_dir is not None:
        check_build_folder(out_dir)
    return on


def doctor() -> None:
    """Check compilers, emulator, gdb and serial permissions; say how to get what lacks. Exits with 1 if any lacks."""
    checks = run_checks()
    out.print(tables.doctor_table(checks))
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


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
