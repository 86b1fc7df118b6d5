"""The command `inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TargetConfig, get_target
from rlx_edge.cli_options import (
    CheckData,
    CheckImport,
    Dims,
    Json,
    Model,
    Preprocessing,
    check_import,
    float_text,
    given_samples,
    open_model,
)
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Leaf, Param
from rlx_edge.quant.explain_json import explanation_facts, read_explanation
from rlx_edge.report import explain_tables, tables
from rlx_edge.report.console import note, out, print_json, say


def inspect(
    model: Model,
    target: Annotated[str, typer.Option("--target", help="portable, cortex-m4, ...")] = "portable",
    explained: Annotated[
        bool, typer.Option("--explain", help="of a model that was quantized here: why it is as good as it is")
    ] = False,
    dims: Dims = None,
    check: CheckImport = False,
    samples_file: CheckData = None,
    preprocess: Preprocessing = None,
    json: Json = False,
) -> None:
    """Ops, shapes, MACs and parameters; predicted RAM and flash; what the target cannot run, and why."""
    graph = open_model(model, dims)
    explanation = read_explanation(graph)
    if explained and explanation is None:
        raise EdgeError(f"{model}: holds no explanation; the .rlx file that `rlx-edge quantize` writes does")
    facts = _facts(graph, get_target(target))
    if explanation is not None:
        facts["quantization"] = explanation_facts(explanation)
    if check:
        facts["checks"] = check_import(model, given_samples(samples_file, graph, preprocess), json, dims=dims)
    if json:
        print_json("inspect", facts)
    elif explanation is not None and explained:
        explain_tables.show(explanation, out)
    else:
        out.print(tables.layers_table(graph))
        out.print(tables.ends_table(graph))
        if explanation is not None:
            say(f"when it was quantized: {explain_tables.explanation_text(explanation)} (more: --explain)")
        _say_what_runs(model, graph, target, facts)


def _facts(graph: Graph, target: TargetConfig) -> dict[str, Any]:
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
    try:
        plan = make_plan(graph, target)
    except UnsupportedError as error:
        return facts | {"problems": list(error.problems)}
    return facts | {"arena_bytes": plan.arena_bytes, "constant_bytes": plan.constant_bytes, "problems": []}


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
