"""Bits and methods of layers: patterns, recipe files, and one clear line for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import good, refused
from rich.text import Text

from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.ir import DType, Graph, GraphBuilder, TensorType
from rlx_edge.ir.graph import BRIEF_WIDTH, brief
from rlx_edge.ir.ops import MatMul, QConv2d, QMatMul
from rlx_edge.passes.fuse import find_fusions
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.widths import GPTQ, MSE, NEAREST, LayerRule, everywhere, read_rules, rules_of
from rlx_edge.report.plots import label
from rlx_edge.report.tables import short

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


@pytest.fixture(scope="module")
def digits() -> Graph:
    return prepare(load(DIGITS / "digits.onnx"))


def bits(graph: Graph, rules: tuple[LayerRule, ...]) -> list[int]:
    return [rule.bits for _, rule in sorted(rules_of(find_fusions(graph), rules).items())]


def test_the_last_rule_that_matches_counts(digits: Graph) -> None:
    everything = bits(digits, everywhere(4))
    assert set(everything) == {4} and bits(digits, ()) == [8] * len(everything)
    ends = bits(digits, (*everywhere(2), LayerRule(":first", 8), LayerRule(":last", 4)))
    assert ends == [8, *[2] * (len(everything) - 2), 4]
    assert bits(digits, (LayerRule(":dense", 3),))[-1] == 3
    named = sorted(rules_of(find_fusions(digits), ()))[1]
    assert bits(digits, (LayerRule(digits.nodes[named].name, 4),))[:3] == [8, 4, 8]


def test_a_name_that_matches_nothing_is_named_with_those_that_exist(digits: Graph) -> None:
    first = digits.nodes[min(rules_of(find_fusions(digits), ()))].name
    with pytest.raises(EdgeError, match="'nothing' matches no layer; there are ") as caught:
        bits(digits, (LayerRule("nothing", 4),))
    assert first in str(caught.value)
    assert bits(digits, (LayerRule(":depthwise", 4),))  # a kind may be missing: recipes serve many models


FUSED = "net/Relu;net/conv_{0}/Conv2D;net/conv_{0}/BiasAdd/ReadVariableOp/resource1"


def test_a_name_as_it_is_shown_means_its_layer() -> None:
    """In tables, in messages and in figures: one form, by which layers can be told apart and which recipes take."""
    builder, values = GraphBuilder("names"), np.random.default_rng(1)
    x = builder.input("x", TensorType((1, 4), DType.F32))
    names = [FUSED.format(i) for i in range(2)] + ["a/name/beyond/what/fits/a/column/layer[0]", "plain[1]"]
    for name in names:
        x = builder.add(MatMul(), [x, builder.param(f"{name}/w", values.normal(size=(4, 4)).astype(np.float32))], name)
    graph = prepare(builder.build([x]))
    shown = [brief(name) for name in names]
    assert shown == ["net/conv_0", "net/conv_1", "…/beyond/what/fits/a/column/layer[0]", "plain[1]"]
    assert max(map(len, shown)) == BRIEF_WIDTH
    with pytest.raises(EdgeError, match="matches no layer") as caught:
        bits(graph, (LayerRule("nothing", 4),))
    for index, name in enumerate(shown):
        assert Text.from_markup(short(names[index])).plain == name == label(names[index])
        assert bits(graph, (LayerRule("*", 4), LayerRule(name, 2))) == [2 if i == index else 4 for i in range(4)]
        assert name in str(caught.value)


def test_methods_of_rules() -> None:
    recipe = Recipe()
    assert recipe.method(LayerRule("*", 8)) == NEAREST and recipe.method(LayerRule("*", 2)) == GPTQ
    assert recipe.method(LayerRule("*", 4, MSE)) == MSE
    assert recipe.method(LayerRule("*", 8, GPTQ)) == GPTQ


def test_a_recipe_file_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "bits.toml"
    path.write_text('[layers]\n"*" = 2\n":first" = 8\n"conv*" = { bits = 4, method = "mse" }\n')
    assert read_rules(str(path)) == (LayerRule("*", 2), LayerRule(":first", 8), LayerRule("conv*", 4, "mse"))
    assert read_rules("4") == everywhere(4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a recipe is a table"),
        ("layers = 3", "a recipe is a table"),
        ("[layers]\n[other]", "a recipe is a table"),
        ("[layers", "not a readable recipe"),
        ('[layers]\n"*" = 5', "weights of 5 bits for '\\*'; there are 8, 4, 3, 2"),
        ('[layers]\n"*" = true', "should be bits"),
        (f'[layers]\n"*" = {"9" * 5000}', "not a readable recipe: Exceeds the limit"),
        (f'[layers]\n"*" = 0x{"f" * 5000}', "not a readable recipe: Exceeds the limit"),
        (f'[layers]\n"*" = {"[" * 5000}{"]" * 5000}', "nested too deeply"),
        (f"[layers]\n{'.'.join('a' * 3000)} = 4", "nested too deeply"),
        ('[layers]\n"*" = { method = "mse" }', "should be bits"),
        ('[layers]\n"*" = { bits = 4, scale = "tensor" }', "'scale'; there are bits, method, scales"),
        ('[layers]\n"*" = { bits = 4, method = 3 }', "is one of nearest"),
        ('[layers]\n"*" = { bits = 4, scales = "row" }', "no scales 'row'"),
        ('[layers]\n"*" = { bits = 4, method = "magic" }', "no method 'magic'"),
        ('[layers]\n":pool" = 4', "no kind ':pool'"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bits.toml"
    path.write_text(text)
    with pytest.raises(EdgeError, match=message) as caught:
        read_rules(str(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_mark_of_the_encoding_is_no_part_of_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "bits.toml"
    path.write_text('\ufeff[layers]\n"*" = 4\n', encoding="utf-8")
    assert read_rules(str(path)) == everywhere(4)


@pytest.mark.parametrize("value", ["5", "0", "", "four", "no/such.toml"])
def test_the_command_refuses_other_weights(tmp_path: Path, value: str) -> None:
    out = tmp_path / "digits.rlx"
    model, data = DIGITS / "digits.onnx", DIGITS / "digits_calibration.npz"
    assert "8, 4, 3, 2" in refused("quantize", model, "--data", data, "--weights", value, "-o", out)
    assert not out.exists()


def test_the_command_stores_few_bits(tmp_path: Path) -> None:
    out = tmp_path / "digits.rlx"
    model, data = DIGITS / "digits.onnx", DIGITS / "digits_calibration.npz"
    recipe = tmp_path / "bits.toml"
    recipe.write_text('[layers]\n"*" = 4\n":dense" = 2\n')
    good("quantize", model, "--data", data, "--samples", "0:64", "--weights", recipe, "-o", out)
    graph = load(out)
    layers = [node for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul)]
    for node in layers:
        wanted = DType.I2 if isinstance(node.op, QMatMul) else DType.I4
        assert graph.operand_types(node)[1].dtype is wanted
