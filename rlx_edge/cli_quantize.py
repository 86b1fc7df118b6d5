"""The command `quantize`, its options, and the step that `deploy` shares with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.cli_options import (
    CheckImport,
    DataFile,
    Dims,
    Json,
    Labels,
    Model,
    Output,
    Preprocessing,
    Rule,
    Samples,
    check_import,
    check_suffix,
    open_model,
    warn,
)
from rlx_edge.data import Data, load_data, preprocess_metadata
from rlx_edge.errors import EdgeError
from rlx_edge.files import replacing
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.ir import Graph, Requant
from rlx_edge.mixed_precision import DEFAULT_TARGET, Limits, Mixed, choose_bits
from rlx_edge.quant.explain import Explanation, explain
from rlx_edge.quant.explain_json import explanation_facts, with_explanation
from rlx_edge.quant.quantize import Quantized, apply_recipe
from rlx_edge.quant.recipe import DEFAULT_EFFORT, EFFORTS, ROUNDINGS, Recipe, effort
from rlx_edge.quant.widths import LayerRule, read_rules, recipe_text
from rlx_edge.report import bits_curve, explain_tables, plots, tables
from rlx_edge.report.console import note, out, print_json, progress, say, stages

ENOUGH_SAMPLES = 50
"""From here on a top-1 near chance is no accident."""
FEW_SAMPLES = 8
"""A calibration with fewer is worth a warning."""

Effort = Annotated[str, typer.Option("--effort", help=f"{', '.join(EFFORTS)}: a bundle of methods (docs/accuracy.md)")]
ObserverName = Annotated[
    str | None, typer.Option("--observer", help="how ranges are chosen: minmax, percentile, mse, auto ...")
]
Search = Annotated[
    bool | None, typer.Option("--search/--no-search", help="judge ranges at the model's output, not at each tensor")
]
Equalize = Annotated[
    bool | None, typer.Option("--equalize/--no-equalize", help="even out channels between layers, before calibration")
]
Headroom = Annotated[
    bool | None, typer.Option("--headroom/--no-headroom", help="widen ranges that few values were seen for")
]
BiasCorrection = Annotated[
    bool | None, typer.Option("--bias-correction/--no-bias-correction", help="cancel each layer's mean error")
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", help="bits of weights: 8, 4, 3, 2 (ternary), a recipe file, or auto: layer by layer"),
]
FixedWeights = Annotated[
    str | None, typer.Option("--weights", help="bits of weights: 8, 4, 3, 2 (ternary), or a recipe file")
]
FlashBudget = Annotated[
    int | None, typer.Option("--flash-budget", min=1, help="with --weights auto: most bytes of model and kernels")
]
MaxLoss = Annotated[
    float | None,
    typer.Option("--max-loss", min=0, help="with --weights auto: most points of top-1 (agreement without labels) lost"),
]
ForTarget = Annotated[str | None, typer.Option("--target", help="with --weights auto: the core whose costs count")]
Curve = Annotated[
    Path | None, typer.Option("--curve", help="with --weights auto: draw flash against SQNR (.svg, .png, .pdf)")
]
SaveRecipe = Annotated[
    Path | None, typer.Option("--save-recipe", help="with --weights auto: write what it chose as a recipe file (.toml)")
]
Rounding = Annotated[str | None, typer.Option("--rounding", help=f"of weights: {', '.join(ROUNDINGS)}")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="also draw each layer's SQNR into this .svg, .png or .pdf (extra: plots)")
]


def quantize(
    model: Model,
    data: DataFile,
    out_file: Output,
    samples: Samples = None,
    labels: Labels = "y",
    preprocess: Preprocessing = None,
    level: Effort = DEFAULT_EFFORT,
    observer: ObserverName = None,
    search: Search = None,
    equalize: Equalize = None,
    headroom: Headroom = None,
    bias_correction: BiasCorrection = None,
    rounding: Rounding = None,
    weights: Weights = None,
    flash_budget: FlashBudget = None,
    max_loss: MaxLoss = None,
    target: ForTarget = None,
    curve: Curve = None,
    save_recipe: SaveRecipe = None,
    rule: Rule = Requant.TFLM,
    plot: Plot = None,
    dims: Dims = None,
    check: CheckImport = False,
    json: Json = False,
) -> None:
    """Calibrate a float model on data and quantize it to int8; explain every choice.

    Options that name a method are changes to what --effort bundles.
    """
    check_suffix(out_file, ".rlx")
    methods = dict(observer=observer, search=search, equalize=equalize, headroom=headroom)
    limits = auto_limits(weights, flash_budget, max_loss, target, curve, save_recipe)
    rules = None if weights is None or limits is not None else read_rules(weights)
    recipe = changed(level, methods | dict(bias_correction=bias_correction, rounding=rounding, weights=rules))
    for figure in (plot, curve):
        if figure is not None:
            plots.check_plot(figure)
    graph = open_model(model, dims)
    given = load_data(data, graph, samples=samples, labels=labels, preprocess=preprocess)
    checks = check_import(model, given, json, dims=dims) if check else None
    mixed = None
    if limits is not None:
        made, mixed, recipe = mixed_quantized(graph, given, recipe, limits, rule)
    else:
        made = quantized(graph, given, recipe, rule)
    with progress("explain") as shown:
        explanation = explain(made.float_graph, made.graph, made.calibration, given, progress=shown)
    late = (*explanation.warnings, *at_chance(explanation, made.graph))
    warnings = (*warnings_of(given, made), *late)
    save_rlx(with_explanation(made.graph, explanation, recipe=asdict(recipe)), out_file)
    if json:
        facts = explanation_facts(explanation) | ({} if checks is None else {"checks": checks})
        facts["warnings"] = list(warnings)
        if mixed is not None and limits is not None:
            facts["curve"] = bits_curve.curve_facts(mixed, limits)
        print_json("quantize", facts)
    else:
        if mixed is not None and limits is not None:
            show_curve(mixed, limits)
        explain_tables.show(explanation, out)
        if mixed is None and any((layer.weight_bits or 8) < 8 for layer in explanation.layers):
            say("which layers need more bits: --weights auto measures it")
        note(f"wrote {out_file}")
    warn(late)
    if len(warnings) > len(late) and not json:
        note(f"{tables.counted(len(warnings) - len(late), 'warning')} above the tables")
    if plot is not None:
        plots.plot_quality(explanation, plot)
        note(f"wrote {plot}")
    if mixed is not None and limits is not None:
        write_choice(mixed, limits, curve, save_recipe)


def show_curve(mixed: Mixed, limits: Limits) -> None:
    """What was tried, and what was measured, as tables."""
    out.print(bits_curve.widths_table(mixed))
    out.print(bits_curve.curve_table(mixed, limits))
    for line in bits_curve.notes(mixed):
        say(line)


def write_choice(mixed: Mixed, limits: Limits, curve: Path | None, recipe: Path | None) -> None:
    """The picture and the recipe file, if they were asked for."""
    if curve is not None:
        bits_curve.plot_curve(mixed, limits, curve)
        note(f"wrote {curve}")
    if recipe is not None:
        with replacing(recipe) as file:
            file.write(recipe_text(mixed.points[mixed.chosen].rules, bits_curve.about(mixed, limits)).encode())
        note(f"wrote {recipe}")


def auto_limits(
    weights: str | None,
    flash_budget: int | None,
    max_loss: float | None,
    target: str | None,
    curve: Path | None,
    save_recipe: Path | None,
) -> Limits | None:
    """What `--weights auto` is to keep to; None for other weights. Raises EdgeError for options that need auto."""
    given = {"--flash-budget": flash_budget, "--max-loss": max_loss, "--target": target, "--curve": curve}
    given["--save-recipe"] = save_recipe
    if weights == "auto":
        if save_recipe is not None:
            check_suffix(save_recipe, ".toml")
        return Limits(target or DEFAULT_TARGET, flash_budget, max_loss)
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise EdgeError(f"{named[0]} goes with --weights auto")
    return None


def mixed_quantized(
    graph: Graph, data: Data, recipe: Recipe, limits: Limits, rule: Requant
) -> tuple[Quantized, Mixed, Recipe]:
    """The model with bits chosen layer by layer, with progress and warnings on standard error, and its whole recipe."""
    with stages() as shown:
        mixed = choose_bits(graph, data, recipe, limits, rule, shown)
    made = mixed.quantized
    warn((*warnings_of(data, made), *bits_curve.warnings(mixed, limits)))
    made = replace(made, graph=made.graph.with_metadata(**preprocess_metadata(data)))
    return made, mixed, replace(recipe, weights=mixed.points[mixed.chosen].rules)


def changed(level: str, methods: Mapping[str, Any]) -> Recipe:
    """The recipe of an effort with those methods that were named. Raises EdgeError for a name that does not exist."""
    return replace(effort(level), **{name: value for name, value in methods.items() if value is not None})


def quantized(graph: Graph, data: Data, recipe: Recipe, rule: Requant) -> Quantized:
    """The int8 model, with progress and warnings on standard error."""
    if len(data) < FEW_SAMPLES:
        note(f"warning: only {tables.counted(len(data), 'sample')}")
    with stages() as shown:
        made = apply_recipe(graph, data, recipe, rule, shown)
    warn(warnings_of(data, made))
    return replace(made, graph=made.graph.with_metadata(**preprocess_metadata(data)))


def warnings_of(data: Data, made: Quantized) -> tuple[str, ...]:
    return (*data.warnings, *made.calibration.warnings)


def at_chance(explanation: Explanation, graph: Graph) -> Iterator[str]:
    """Whether the float model itself guesses, on labels that are given: then it does not see what it was trained on."""
    classes = graph.output_nodes[0].type.elements
    if explanation.top1 is not None and explanation.samples >= ENOUGH_SAMPLES and classes > 2:
        right = explanation.top1[0]
        if right < 2 / classes:
            yield (
                f"the float model itself is right on {right:.1%} of the samples only, of {classes} classes: "
                "check --preprocess and the labels"
            )


def deployable(graph: Graph, data: Data, level: str, rules: tuple[LayerRule, ...] | None, json: bool) -> Graph:
    """What `deploy` makes of a float model: quantized, its quality told in a line."""
    made = quantized(graph, data, changed(level, {"weights": rules}), Requant.TFLM)
    if not json:
        say(tables.quality_text(api.quality(made.float_graph, made.graph, data)))
    return made.graph


def fixed_rules(weights: str | None, command: str) -> tuple[LayerRule, ...] | None:
    """What `--weights` says to a command that does not search. Raises EdgeError for `auto`, as `read_rules` does."""
    if weights == "auto":
        raise EdgeError(
            f"--weights auto belongs to `quantize`: with --save-recipe bits.toml it writes what it chose, and "
            f"`{command}` takes --weights bits.toml"
        )
    return None if weights is None else read_rules(weights)
