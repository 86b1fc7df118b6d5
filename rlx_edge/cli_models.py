"""Commands on models and data: inspect, quantize, convert, evaluate, run, generate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rlx_edge import api
from rlx_edge.cgen.bundle import is_bundle
from rlx_edge.cgen.options import Optimize, Options
from rlx_edge.cgen.predict import predict as predict_costs
from rlx_edge.cgen.target import get_target
from rlx_edge.cgen.text import identifier, suggest_identifier
from rlx_edge.cli_options import (
    RULES,
    CheckData,
    CheckImport,
    DataFile,
    Dims,
    Engine,
    FlashBudget,
    Json,
    Labels,
    Model,
    Name,
    OptimizeFor,
    Output,
    Preprocessing,
    RamBudget,
    Samples,
    StackBudget,
    check_export,
    check_import,
    check_suffix,
    given_samples,
    load_int8,
    open_model,
    warn,
)
from rlx_edge.data import load_data
from rlx_edge.engines import left_in_float, predict
from rlx_edge.errors import EdgeError
from rlx_edge.evaluate import evaluate as evaluate_model
from rlx_edge.files import save_npz
from rlx_edge.formats.save import check_ending
from rlx_edge.ir import Array, Graph, Requant
from rlx_edge.passes.widen_weights import widen_weights
from rlx_edge.quant.weights_only import BLOCK
from rlx_edge.quant.weights_only import weights_only as quantize_weights_only
from rlx_edge.report import cost_tables, tables
from rlx_edge.report.console import note, print_json, progress, say


def convert(
    model: Model,
    out_file: Output,
    rule: Annotated[Requant | None, typer.Option("--requant", help=f"another {RULES}")] = None,
    int8_weights: Annotated[
        bool,
        typer.Option("--int8-weights", help="a byte for each weight of 4 or 2 bits, for tools that read no others"),
    ] = False,
    weights_only: Annotated[
        int | None,
        typer.Option(
            "--weights-only", help="8 or 4: dense weights of a float model in so many bits, the rest in float32"
        ),
    ] = None,
    block: Annotated[
        int | None, typer.Option("--block", help=f"with --weights-only: how many weights share a scale ({BLOCK})")
    ] = None,
    dims: Dims = None,
    check: CheckImport = False,
    samples_file: CheckData = None,
    preprocess: Preprocessing = None,
) -> None:
    """Import a model and write it as .rlx, .tflite or .onnx, without calibration.

    With --check the written file is checked too, against its own runtime.
    """
    if block is not None and weights_only is None:
        raise EdgeError("--block goes with --weights-only")
    check_ending(out_file)
    check_suffix(out_file, out_file.suffix)
    graph = open_model(model, dims)
    if check and model.suffix != ".rlx":
        check_import(model, given_samples(samples_file, graph, preprocess), json=False, dims=dims)
    graph = graph if rule is None else api.with_rule(graph, rule)
    graph = widen_weights(graph) if int8_weights else graph
    if weights_only is not None:
        graph = quantize_weights_only(graph, weights_only, BLOCK if block is None else block)
        kinds = Counter(node.op.kind_name for node in left_in_float(graph))
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            note(f"warning: left in float32, where devices have no kernel: {counts}")
    for line in api.save(graph, out_file):
        note(f"{out_file}: {line}")
    note(f"wrote {out_file}")
    if check and out_file.suffix != ".rlx":
        # .onnx has one rule: a graph under another keeps its function there, not its last bits.
        meant = api.with_rule(graph, Requant.ONNX) if out_file.suffix == ".onnx" else graph
        check_export(out_file, meant, given_samples(samples_file, graph, preprocess))


def evaluate(
    model: Model,
    data: DataFile,
    metric: Annotated[str, typer.Option("--metric", help="top1, auc, mse, or FILE.py:FUNCTION of yours")] = "top1",
    samples: Samples = None,
    labels: Labels = "y",
    preprocess: Preprocessing = None,
    engine: Engine = None,
    dims: Dims = None,
    json: Json = False,
) -> None:
    """Accuracy on labeled data: host C for int8 models, the reference for float ones."""
    graph = open_model(model, dims)
    given = load_data(data, graph, samples=samples, labels=labels, preprocess=preprocess)
    warn(given.warnings)
    with progress("evaluate") as report:
        result = evaluate_model(graph, given, metric, engine, report)
    if json:
        print_json("evaluate", {result.metric: result.value, "n": result.n})
    else:
        shown = f"{result.value:.2%}" if metric == "top1" else f"{result.value:.6g}"
        say(f"{metric} {shown} on {tables.counted(result.n, 'sample')}")


def run(
    model: Model,
    data: DataFile,
    out_file: Output,
    samples: Samples = None,
    preprocess: Preprocessing = None,
    engine: Engine = None,
    dims: Dims = None,
) -> None:
    """Run a model on data and store its outputs as .npz, by output name.

    An int8 model's outputs are stored as they are, with arrays NAME_scale and NAME_zero_point beside them.
    """
    check_suffix(out_file, ".npz")
    graph = open_model(model, dims)
    given = load_data(data, graph, samples=samples, preprocess=preprocess)
    warn(given.warnings)
    with progress("run") as report:
        outputs = predict(graph, given, engine, report)
    save_npz(out_file, outputs | _output_params(graph))
    note(f"wrote {out_file}: {', '.join(f'{name} {list(values.shape)}' for name, values in outputs.items())}")


def _output_params(graph: Graph) -> dict[str, Array]:
    """What turns stored integers into real values: (q - NAME_zero_point) * NAME_scale."""
    params: dict[str, Array] = {}
    for node in graph.output_nodes:
        if node.type.quant is not None and node.type.quant.axis is None:
            params[f"{node.name}_scale"] = np.array(node.type.quant.scale, np.float32)
            params[f"{node.name}_zero_point"] = np.array(node.type.quant.zero_point, np.int32)
    return params


def generate(
    models: Annotated[list[Path], typer.Argument(help="int8 models (.tflite, .onnx or .rlx)", show_default=False)],
    out_dir: Output,
    name: Name = None,
    target: Annotated[str, typer.Option("--target", help="portable, cortex-m4, ...")] = "portable",
    with_link: Annotated[bool, typer.Option("--with-link", help="add the serial link, for your own firmware")] = False,
    optimize: OptimizeFor = Optimize.BALANCED,
    flash_budget: FlashBudget = None,
    ram_budget: RamBudget = None,
    stack_budget: StackBudget = None,
) -> None:
    """Write C: a shared folder of kernels and a folder a model. Several names are separated by commas.

    A bundle that is in the folder already is replaced, with all of its models.
    """
    names = name.split(",") if name else [suggest_identifier(path.name) for path in models]
    if len(names) != len(models) or len(set(names)) != len(names):
        wanted = ",".join(f"{names[0]}_{i + 1}" for i in range(len(models)))
        raise EdgeError(f"{len(models)} models need as many different names: say --name {wanted}")
    graphs = {identifier(n): load_int8(path) for n, path in zip(names, models, strict=True)}
    before = _models_there(out_dir)
    options = Options(optimize, flash_budget, ram_budget, stack_budget)
    made = api.generate(graphs, out_dir, get_target(target), with_link, options)
    for verb, there in (("replaced", [n for n in before if n in graphs]), ("removed", set(before) - set(graphs))):
        if there:
            note(f"{out_dir} held a bundle already: {verb} {', '.join(sorted(there))}")
    for bundled in made:
        plan, told = bundled.plan, predict_costs(bundled.plan)
        say(
            f"{bundled.name}: {len(plan.steps)} steps, arena {plan.arena_bytes:,} bytes, "
            f"constants {plan.constant_bytes:,} bytes, in {out_dir / bundled.name}"
        )
        if told is not None:
            say(f"{bundled.name}: {cost_tables.prediction_text(told)}")


def _models_there(folder: Path) -> list[str]:
    """The names of the models of the bundle in a folder, if there is one."""
    models = folder.glob("*/*.rlx") if is_bundle(folder) else ()
    return sorted(path.parent.name for path in models if path.stem == path.parent.name)
