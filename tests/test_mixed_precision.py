"""Bits chosen layer by layer: within the budget, by what was measured, and one clear line where nothing will do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from command import good, refused

from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph, Requant
from rlx_edge.mixed_precision import LayerWidth, Limits, Measured, Mixed, Point, choose_bits, cost_of
from rlx_edge.mixed_precision.mixes import Mixes
from rlx_edge.mixed_precision.points import rules_for
from rlx_edge.passes.fuse import find_fusions
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import quality
from rlx_edge.quant.quantize import Quantized, apply_recipe, build_int8, calibrated
from rlx_edge.quant.recipe import Recipe, effort
from rlx_edge.quant.width_noise import measure_noise
from rlx_edge.quant.widths import KINDS, LayerRule, read_rules, recipe_text, rules_of
from rlx_edge.report.bits_curve import curve_table, mix_text, notes, plot_curve, warnings

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
SHARED = Path(__file__).parents[2] / "shared"
MODEL, DATA = DIGITS / "digits.onnx", DIGITS / "digits_calibration.npz"


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Data]:
    graph = load(MODEL)
    return graph, load_data(DATA, graph, samples="0:64")


@pytest.mark.parametrize(
    "target", ["cortex-m4", *(pytest.param(name, marks=pytest.mark.long) for name in ("cortex-m0", "portable"))]
)
def test_the_loss_stays_within_its_limit(digits: tuple[Graph, Data], target: str) -> None:
    graph, data = digits
    found = choose_bits(graph, data, effort("balanced"), Limits(target, max_loss=2.0))
    chosen = found.points[found.chosen]
    assert chosen.measured.loss is not None and chosen.measured.loss <= 2.0
    measured = quality(found.quantized.float_graph, found.quantized.graph, data)
    assert measured.output_sqnr_db == chosen.measured.sqnr_db
    assert cost_of(found.quantized.graph, target) == (chosen.measured.flash, chosen.measured.instructions)
    assert chosen.measured.flash < found.reference[8].measured.flash  # fewer bits than 8 somewhere
    for point in found.points:
        assert point.measured.loss is not None
        assert point.measured.loss > 2.0 or point.measured.flash >= chosen.measured.flash
    assert [p.measured.flash for p in found.points] == sorted(p.measured.flash for p in found.points)
    assert {4, 8} <= set(found.reference)


def test_a_mix_is_planned_as_generation_plans_it(digits: tuple[Graph, Data]) -> None:
    """To the byte, though kernels' code is there once for all layers that call them."""
    graph, data = digits
    few = Data({name: values[:32] for name, values in data.inputs.items()})
    recipe = Recipe()
    float_graph, calibration = calibrated(graph, few, recipe)
    noise = measure_noise(float_graph, calibration, few, recipe, (2, 4))
    mixes = Mixes(noise, (2, 4, 8), Requant.TFLM, "cortex-m4")
    for mix in ((8, 8, 8, 8, 8), (4, 4, 4, 4, 4), (8, 4, 4, 4, 4), (2, 8, 4, 2, 8), (4, 8, 8, 2, 4)):
        forms = {node.id: noise.forms[node.id][bits] for node, bits in zip(noise.layers, mix, strict=True)}
        built = build_int8(noise.assignment.with_layers(forms), Requant.TFLM)
        planned = mixes.plan(mix)
        flash, instructions = cost_of(built, "cortex-m4")
        assert planned.flash == flash
        assert abs(planned.instructions - instructions) <= len(built.nodes)  # each step is rounded


def test_no_other_bits_in_one_layer_are_better_within_a_budget(digits: tuple[Graph, Data]) -> None:
    graph, data = digits
    budget, recipe = 19_000, effort("balanced")
    found = choose_bits(graph, data, recipe, Limits(flash_budget=budget))
    chosen = found.points[found.chosen]
    assert chosen.measured.flash <= budget
    for point in found.points:
        assert point.measured.flash > budget or point.measured.sqnr_db <= chosen.measured.sqnr_db
    names = list(chosen.bits)

    def measured(bits: Mapping[str, int]) -> tuple[int, float]:
        made = apply_recipe(graph, data, replace(recipe, weights=rules_for(bits)))
        return cost_of(made.graph, "cortex-m4")[0], quality(made.float_graph, made.graph, data).output_sqnr_db

    stem = {name: 8 if name.startswith("stem") else 4 for name in names}
    others = [{**chosen.bits, name: bits} for name in names for bits in (4, 8) if bits != chosen.bits[name]]
    for bits in (stem, *others):
        flash, sqnr_db = measured(bits)
        assert flash > budget or sqnr_db <= chosen.measured.sqnr_db + 0.2, bits
    assert list(bits_of(graph, chosen.rules)) == list(chosen.bits.values())


@pytest.mark.parametrize(
    "name", [":first", "a[0]*", "?", "a*/b\nc", '"q"\\x', "\x00\x1f\x7f\u2028", "\N{GRINNING FACE}", "a\ud800"]
)
def test_any_name_is_a_pattern_of_its_own_in_a_recipe_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bits.toml"
    path.write_bytes(recipe_text(rules_for({name: 4}), "made up").encode())
    (rule,) = read_rules(str(path))
    assert fnmatchcase(name, rule.pattern) and rule.pattern not in KINDS and not fnmatchcase("b", rule.pattern)


def bits_of(graph: Graph, rules: Sequence[LayerRule]) -> Iterator[int]:
    for _, rule in sorted(rules_of(find_fusions(prepare(graph)), rules).items()):
        yield rule.bits


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
def test_within_a_budget_kws_has_layers_of_8_bits() -> None:
    """Kernels that several layers share make mixes smaller than sums over layers say."""
    graph = load(SHARED / "models" / "kws_float.tflite")
    data = load_data(SHARED / "data" / "kws.npz", graph, samples="0:128")
    for budget, least_db in ((34_000, 28.0), (30_000, 26.9)):
        found = choose_bits(graph, data, effort("balanced"), Limits(flash_budget=budget))
        chosen = found.points[found.chosen].measured
        assert chosen.flash <= budget and chosen.sqnr_db > least_db


def test_what_cannot_be_met_is_told(digits: tuple[Graph, Data]) -> None:
    graph, data = digits
    few = Data({name: values[:32] for name, values in data.inputs.items()})
    with pytest.raises(
        EdgeError, match=r"--flash-budget 100: the smallest choice of bits found takes [\d,]+ bytes on cortex-m4"
    ):
        choose_bits(graph, few, effort("fast"), Limits(flash_budget=100))


def test_the_command_and_its_recipe(tmp_path: Path) -> None:
    """The recipe that is saved makes the same model, and `deploy` takes it."""
    out, picture, recipe = tmp_path / "auto.rlx", tmp_path / "curve.png", tmp_path / "bits.toml"
    given = ("--data", DATA, "--samples", "0:64")
    asked = ("--weights", "auto", "--max-loss", "2", "--curve", picture, "--save-recipe", recipe, "--json")
    curve = json.loads(good("quantize", MODEL, *given, *asked, "-o", out))["curve"]
    chosen = curve["points"][curve["chosen"]]
    assert chosen["measured"]["points_lost"] <= 2 and chosen["measured"]["points_of"] == "top-1"
    assert chosen["measured"]["samples"] == 64 and chosen["measured"]["samples_lost"] <= 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    by_layer = {(layer["name"], layer["bits"]): layer for layer in curve["layers"]}
    for name in chosen["bits"]:
        alone = [by_layer[name, bits] for bits in (2, 4, 8)]
        assert alone[0]["output_sqnr_db"] < alone[1]["output_sqnr_db"] <= alone[2]["output_sqnr_db"]
        assert all(layer["flash_bytes"] > 0 and layer["instructions"] > 0 for layer in alone)
    assert list(bits_of(load(MODEL), read_rules(str(recipe)))) == list(chosen["bits"].values())
    assert f"{chosen['measured']['flash_bytes']:,} bytes on cortex-m4" in recipe.read_text().splitlines()[0]
    again = tmp_path / "again.rlx"
    good("quantize", MODEL, *given, "--weights", recipe, "-o", again)
    one, other = load(out), load(again)
    assert one.nodes == other.nodes and all((one.params[k] == other.params[k]).all() for k in one.params)
    build = ("--emulate", "--samples", "0:1", "--calibrate", "0:64", "-o", tmp_path / "build", "--json")
    good("deploy", MODEL, "--data", DATA, "--weights", recipe, *build)
    (deployed,) = (tmp_path / "build").rglob("*.rlx")
    kept = load(deployed)
    assert all((one.params[k] == kept.params[k]).all() for k in one.params)


def test_commands_that_do_not_search_say_who_does(tmp_path: Path) -> None:
    for command in ("deploy", *(["finetune"] if find_spec("torch") else [])):
        line = refused(command, MODEL, "--data", DATA, "--weights", "auto", "-o", tmp_path / "out.rlx")
        assert "--save-recipe bits.toml" in line and f"`{command}` takes --weights bits.toml" in line


def measured_point(bits: Mapping[str, int], flash: int, sqnr_db: float, loss: float = 0.0) -> Point:
    return Point(bits, sqnr_db, Measured(flash, 1000, sqnr_db, loss, "top-1", 128))


def test_what_is_shown_says_which_layers_and_how_many_samples(tmp_path: Path) -> None:
    """With names where they are short, else with the table's numbers; the points that none other beats are marked."""
    names = ["stem", "head"] + [f"a_layer_of_the_body_{i}" for i in range(4)]
    four = dict.fromkeys(names, 4)
    points = (
        measured_point(four, 900, 20.0, 100 / 128),
        measured_point(four | {names[2]: 2, names[3]: 2, "stem": 8}, 950, 19.0),
        measured_point(four | {"stem": 8, "head": 8}, 1000, 25.0),
        measured_point(dict.fromkeys(names, 8), 1400, 30.0),
    )
    layers = tuple(LayerWidth(n, b, {2: 40, 4: 30, 8: 35}[b], 9, float(b)) for n in names for b in (2, 4, 8))
    mixed = Mixed(layers, points, 2, cast(Quantized, None))
    assert [mix_text(p) for p in points] == ["all 4", "4; 8: no. 1; 2: no. 3-4", "4; 8: stem, head", "all 8"]
    assert mixed.front == (points[0], points[2], points[3]) and mixed.reference == {4: points[0], 8: points[3]}
    limits = Limits(max_loss=0.5)
    rows = list(zip(*(column.cells for column in curve_table(mixed, limits).columns), strict=True))
    assert [row[0] for row in rows] == ["best", "", "chosen", "best"]
    assert rows[0][1:5] == ("900", "1,000", "20.0", "1 (0.78)")
    assert [column.header for column in curve_table(mixed, limits).columns][4] == "lost of 128 (points)"
    (warning,) = warnings(mixed, limits)
    assert "--max-loss 0.5 is less than one of the 128 samples, 0.78 points" in warning
    assert not list(warnings(mixed, Limits(max_loss=1.0))) and not list(warnings(mixed, Limits(flash_budget=1000)))
    assert "lists" in next(notes(mixed))
    assert not list(notes(replace(mixed, layers=tuple(layer for layer in layers if layer.bits != 2))))
    picture = tmp_path / "curve.svg"
    plot_curve(mixed, replace(limits, flash_budget=1100), picture)
    drawn = picture.read_text()
    for text in ("all 4", "all 8", "4; 8: stem, head", "flash budget", "loses more than 0.5 points", "chosen"):
        assert f"<!-- {text} -->" in drawn
    assert "no. 3-4" not in drawn  # neither chosen nor best


@pytest.mark.parametrize(
    "option",
    [("--max-loss", "1"), ("--flash-budget", "1000"), ("--target", "cortex-m4"), ("--save-recipe", "bits.toml")],
)
def test_options_of_auto_need_auto(tmp_path: Path, option: tuple[str, str]) -> None:
    out = tmp_path / "out.rlx"
    line = refused("quantize", MODEL, "--data", DATA, "--weights", "4", *option, "-o", out)
    assert line == f"{option[0]} goes with --weights auto" and not out.exists()
