"""Bits chosen layer by layer: within the budget, by what was measured, and one clear line where nothing will do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import good, refused

from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph
from rlx_edge.mixed_precision import Limits, choose_bits, cost_of
from rlx_edge.passes.fuse import find_fusions
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant import quality
from rlx_edge.quant.recipe import effort
from rlx_edge.quant.widths import read_rules, rules_of

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
MODEL, DATA = DIGITS / "digits.onnx", DIGITS / "digits_calibration.npz"


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Data]:
    graph = load(MODEL)
    return graph, load_data(DATA, graph, samples="0:96")


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0", "portable"])
def test_the_loss_stays_within_its_limit(digits: tuple[Graph, Data], target: str) -> None:
    graph, data = digits
    found = choose_bits(graph, data, effort("balanced"), Limits(target, max_loss=2.0))
    chosen = found.points[found.chosen]
    assert chosen.measured is not None and chosen.measured.loss is not None and chosen.measured.loss <= 2.0
    measured = quality(found.quantized.float_graph, found.quantized.graph, data)
    assert measured.output_sqnr_db == chosen.measured.sqnr_db
    assert cost_of(found.quantized.graph, target) == (chosen.measured.flash, chosen.measured.instructions)
    assert chosen.measured.flash < max(point.flash for point in found.points)  # fewer bits than 8 somewhere
    flash = [point.flash for point in found.points]
    assert flash == sorted(flash) and [p.sqnr_db for p in found.points] == sorted(p.sqnr_db for p in found.points)


def test_a_flash_budget_is_kept_and_used(digits: tuple[Graph, Data]) -> None:
    graph, data = digits
    whole = choose_bits(graph, data, effort("balanced"), Limits(max_loss=0.0))
    ends = [point.flash for point in whole.points]
    budget = (ends[0] + ends[-1]) // 2
    found = choose_bits(graph, data, effort("balanced"), Limits(flash_budget=budget))
    chosen = found.points[found.chosen].measured
    assert chosen is not None and chosen.flash <= budget
    for point in found.points:
        if point.measured is not None and point.measured.flash <= budget:
            assert point.measured.sqnr_db <= chosen.sqnr_db
    bits = [
        rule.bits
        for _, rule in sorted(rules_of(find_fusions(prepare(graph)), found.points[found.chosen].rules).items())
    ]
    assert bits == list(found.points[found.chosen].bits.values())


def test_what_cannot_be_met_is_told(digits: tuple[Graph, Data]) -> None:
    graph, data = digits
    few = Data({name: values[:32] for name, values in data.inputs.items()})
    with pytest.raises(
        EdgeError, match=r"--flash-budget 100: the smallest choice of bits takes [\d,]+ bytes on cortex-m4"
    ):
        choose_bits(graph, few, effort("fast"), Limits(flash_budget=100))


def test_the_command(tmp_path: Path) -> None:
    out, picture = tmp_path / "auto.rlx", tmp_path / "curve.png"
    options = (
        "--data",
        DATA,
        "--samples",
        "0:64",
        "--weights",
        "auto",
        "--max-loss",
        "2",
        "--curve",
        picture,
        "--json",
    )
    facts = json.loads(good("quantize", MODEL, *options, "-o", out))
    curve = facts["curve"]
    chosen = curve["points"][curve["chosen"]]
    assert chosen["measured"]["points_lost"] <= 2 and chosen["measured"]["points_of"] == "top-1"
    assert picture.read_bytes().startswith(b"\x89PNG")
    by_layer = {(layer["name"], layer["bits"]): layer for layer in curve["layers"]}
    for name in chosen["bits"]:
        alone = [by_layer[name, bits] for bits in (2, 4, 8)]
        assert alone[0]["output_sqnr_db"] < alone[1]["output_sqnr_db"] <= alone[2]["output_sqnr_db"]
        assert all(layer["flash_bytes"] > 0 and layer["instructions"] > 0 for layer in alone)
    recipe = tmp_path / "recipe.toml"
    lines = [f"{json.dumps(name)} = {bits}" for name, bits in chosen["bits"].items()]
    recipe.write_text("[layers]\n" + "\n".join(lines) + "\n")
    again = tmp_path / "again.rlx"
    good("quantize", MODEL, "--data", DATA, "--samples", "0:64", "--weights", recipe, "-o", again)
    one, other = load(out), load(again)
    assert one.nodes == other.nodes and all((one.params[k] == other.params[k]).all() for k in one.params)
    assert read_rules(str(recipe))


@pytest.mark.parametrize("option", [("--max-loss", "1"), ("--flash-budget", "1000"), ("--target", "cortex-m4")])
def test_options_of_auto_need_auto(tmp_path: Path, option: tuple[str, str]) -> None:
    out = tmp_path / "out.rlx"
    line = refused("quantize", MODEL, "--data", DATA, "--weights", "4", *option, "-o", out)
    assert line == f"{option[0]} goes with --weights auto" and not out.exists()
