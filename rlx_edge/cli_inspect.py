"""The command `inspect`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.cgen.options import Optimize, Options
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import Prediction, predict
from rlx_edge.cgen.target import TargetConfig, get_target
from rlx_edge.cli_options import (
    CheckData,
    CheckImport,
    Dims,
    FlashBudget,
    Json,
    Model,
    OptimizeFor,
    Preprocessing,
    RamBudget,
    StackBudget,
    check_import,
    float_text,
    given_samples,
    open_model,
)
from rlx_edge.device.boards import load_board, load_boards
from rlx_edge.device.fitting import fits
from rlx_edge.device.memory import check_memory
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.ir import Graph, batch_shapes, to_text
from rlx_edge.ir.ops import Leaf, Param
from rlx_edge.quant.explain_json import explanation_facts, read_explanation
from rlx_edge.report import cost_tables, explain_tables, plots, tables
from rlx_edge.report.console import note, out, print_json, progress, say
from rlx_edge.report.fit_table import fit_facts, fit_table
from rlx_edge.report.graph_plot import plot_graph


def inspect(
    model: Model,
    target: Annotated[str | None, typer.Option("--target", help="portable (the default), cortex-m4, ...")] = None,
    board: Annotated[
        str | None, typer.Option("--board", help="for the core of this board, and whether it fits")
    ] = None,
    boards: Annotated[bool, typer.Option("--boards", help="which boards it fits, by what is predicted")] = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="of a model that was quantized here: why it is as good as it is")
    ] = False,
    dims: Dims = None,
    check: CheckImport = False,
    samples_file: CheckData = None,
    preprocess: Preprocessing = None,
    optimize: OptimizeFor = Optimize.BALANCED,
    flash_budget: FlashBudget = None,
    ram_budget: RamBudget = None,
    stack_budget: StackBudget = None,
    memory: Annotated[
        Path | None,
        typer.Option("--memory", help="also draw what lies in the arena, step by step, into this .svg, .png or .pdf"),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="the graph as text, a line a node (docs/graph-text.md)")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="also draw the graph into this .svg, .png or .pdf")
    ] = None,
    batch: Annotated[bool, typer.Option("--batch", help="sizes that follow the batch as N")] = False,
    json: Json = False,
) -> None:
    """Ops, shapes, MACs and parameters; for a core, the chosen kernels and their predicted cost; what cannot run."""
    options = Options(optimize, flash_budget, ram_budget, stack_budget)
    for figure in filter(None, (memory, plot)):
        plots.check_plot(figure)
    if text and json:
        raise EdgeError("--text and --json are two forms: leave one out")
    asked = load_board(board) if board else None
    if boards and (board or target or explained or memory):
        raise EdgeError("--boards looks at all boards: leave out --board, --target, --explain and --memory")
    if asked is not None and target not in (None, api.target_of(asked)):
        raise EdgeError(f"--board {board} has a {api.target_of(asked)}: leave out --target {target}")
    chosen = get_target(target or (api.target_of(asked) if asked else "portable"))
    graph = open_model(model, dims)
    if plot is not None:
        plot_graph(graph, plot)
        note(f"drew {plot}")
    if text:
        out.out(to_text(graph, batch=batch), end="", highlight=False)
        return
    if boards:
        _inspect_boards(model, graph, options, json)
        return
    explanation = read_explanation(graph)
    if explained and explanation is None:
        raise EdgeError(f"{model}: holds no explanation; the .rlx file that `rlx-edge quantize` writes does")
    plan, problems = _plan(graph, chosen, options)
    if plan is not None and asked is not None:
        check_memory(asked, {model.stem: plan})
    if memory is not None:
        _draw_memory(plan, memory, chosen.name, problems)
    facts = _facts(graph, plan, problems)
    if explanation is not None:
        facts["quantization"] = explanation_facts(explanation)
    if check:
        facts["checks"] = check_import(model, given_samples(samples_file, graph, preprocess), json, dims=dims)
    if json:
        print_json("inspect", facts)
    elif explanation is not None and explained:
        explain_tables.show(explanation, out)
    else:
        shapes = batch_shapes(graph) if batch else None
        out.print(tables.layers_table(graph, shapes))
        out.print(tables.ends_table(graph, shapes))
        if explanation is not None:
            say(f"when it was quantized: {explain_tables.explanation_text(explanation)} (more: --explain)")
        told = predict(plan) if plan is not None else None
        if plan is not None and told is not None:
            _show_prediction(told)
            left = sum(map(plan.graph.macs, plan.graph.nodes))
            if left != facts["macs"]:
                say(f"{left:,} of {facts['macs']:,} MACs are left: what no output needs is removed before")
        else:
            _say_what_runs(model, graph, chosen.name, facts)


def _inspect_boards(model: Path, graph: Graph, options: Options, json: bool) -> None:
    if is_float(graph):
        raise EdgeError(float_text(model))
    with progress("planning for each core") as report:
        found = fits(graph, model.stem, load_boards(), options, report)
    if json:
        print_json("inspect-boards", {"boards": [fit_facts(fit) for fit in found]})
    else:
        out.print(fit_table(model.name, found))
        for fit in found:
            if fit.problem:
                say(fit.problem)
        say(f"fits {sum(not fit.problem for fit in found)} of {len(found)} boards, with start-up, link and stack")


def _plan(graph: Graph, target: TargetConfig, options: Options) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan for a target, or why it cannot run the model."""
    try:
        return make_plan(graph, target, options), ()
    except UnsupportedError as error:
        return None, error.problems


def _draw_memory(plan: Plan | None, memory: Path, target: str, problems: Sequence[str]) -> None:
    if plan is None:
        raise UnsupportedError(f"{memory} was not drawn: the model cannot run on {target}:", problems)
    plots.plot_arena(plan, memory)
    note(f"drew {memory}")


def _show_prediction(told: Prediction) -> None:
    out.print(cost_tables.prediction_table(f"predicted for {told.core}", told))
    say(cost_tables.prediction_text(told))
    for name in told.rough:
        note(f"warning: {name} was not measured on {told.core}; what is predicted of it is a rough guess")
    for line in cost_tables.reason_lines(told.layers):
        say(f"not taken: {line}")


def _facts(graph: Graph, plan: Plan | None, problems: tuple[str, ...]) -> dict[str, Any]:
    """What is known of the model, for JSON."""
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
        "inputs": [tables.tensor_facts(node) for node in graph.inputs],
        "outputs": [tables.tensor_facts(node) for node in graph.output_nodes],
    }
    if plan is None:
        return facts | {"problems": list(problems)}
    facts |= {"arena_bytes": plan.arena_bytes, "constant_bytes": plan.constant_bytes, "problems": []}
    told = predict(plan)
    return facts if told is None else facts | _predicted_facts(told)


def _predicted_facts(told: Prediction) -> dict[str, Any]:
    """The prediction for JSON; its layers are the steps of the plan, which may be fewer than the model's."""
    facts = dataclasses.asdict(told)
    return {
        "core": told.core,
        "predicted_instructions": told.instructions,
        "flash_bytes": told.flash_bytes,
        "stack_bytes": told.stack_bytes,
        "steps": [
            {"predicted_instructions" if key == "instructions" else key: value for key, value in layer.items()}
            for layer in facts["layers"]
        ],
    }


def _say_what_runs(model: Path, graph: Graph, target: str, facts: dict[str, Any]) -> None:
    if is_float(graph):
        note(float_text(model))
    elif facts["problems"]:
        note(f"{target} cannot run it as it is:")
        for problem in facts["problems"]:
            note(f"  {problem}")
    else:
        arena, constants = facts["arena_bytes"], facts["constant_bytes"]
        say(f"on {target}: arena {arena:,} bytes of RAM, constants {constants:,} bytes of flash")
