"""Budgets: met where they can be, and else refused with the layer that needs most and the smallest that can be met."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import good, refused
from models import ModelMaker, random_model, tiny_model

from rlx_edge import api
from rlx_edge.cgen.bundle import generate, open_bundle
from rlx_edge.cgen.memory import placed
from rlx_edge.cgen.options import BUDGETS, DEFAULT, Optimize, Options
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import Prediction, predict
from rlx_edge.cgen.target import get_target
from rlx_edge.device.boards import load_board
from rlx_edge.device.memory import check_memory
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Concat
from rlx_edge.report.plots import plot_arena

M4 = get_target("cortex-m4")


def figure(options: Options, budget: str) -> int:
    """What the budget is about, in a plan of the tiny model."""
    told = predict(make_plan(tiny_model(), M4, options))
    assert told is not None
    return {"flash_budget": told.flash_bytes, "ram_budget": told.ram_bytes, "stack_budget": told.stack_bytes}[budget]


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_smallest_budget_that_is_named_can_be_met(budget: str) -> None:
    with pytest.raises(EdgeError, match=f"^--{budget.replace('_', '-')} 1: layer '.*' needs most") as told:
        make_plan(tiny_model(), M4, replace(DEFAULT, **{budget: 1}))
    numbers = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) bytes is the smallest", str(told.value))]
    assert len(numbers) == 1
    assert figure(replace(DEFAULT, **{budget: numbers[0]}), budget) <= numbers[0]
    with pytest.raises(EdgeError, match="is the smallest"):
        make_plan(tiny_model(), M4, replace(DEFAULT, **{budget: numbers[0] - 1}))


@pytest.mark.parametrize("optimize", Optimize)
def test_a_flash_budget_is_kept_and_used(optimize: Optimize) -> None:
    most = figure(Options(Optimize.SPEED), "flash_budget")
    least = figure(Options(Optimize.SIZE), "flash_budget")
    assert least < most, "or this test shows nothing"
    for budget in (most, (least + most) // 2, least):
        assert figure(Options(optimize, flash_budget=budget), "flash_budget") <= budget
    told = predict(make_plan(tiny_model(), M4, Options(Optimize.SPEED, flash_budget=most)))
    assert told == predict(make_plan(tiny_model(), M4, Options(Optimize.SPEED)))


def test_options_are_remembered_by_the_bundle(tmp_path: Path) -> None:
    options = Options(Optimize.SIZE, flash_budget=90_000, ram_budget=9_000)
    (made,) = generate({"tiny": tiny_model()}, tmp_path, M4, options=options)
    (opened,) = open_bundle(tmp_path)
    assert opened.plan.options == options
    assert [step.variant for step in opened.plan.steps] == [step.variant for step in made.plan.steps]
    assert opened.plan.arena_bytes == made.plan.arena_bytes
    (again,) = generate({"tiny": opened.plan.graph}, tmp_path, M4)
    assert again.plan.options == DEFAULT, "old options do not leak into a new bundle"
    assert open_bundle(tmp_path)[0].plan.options == DEFAULT


@pytest.mark.parametrize("text", ["quick", "12.5"])
def test_options_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(EdgeError, match="the model's options cannot be read"):
        Options.of_metadata({"optimize": text} if text == "quick" else {"ram_budget": text})


def test_a_budget_below_nothing_is_refused() -> None:
    with pytest.raises(EdgeError, match="--flash-budget -1: a budget is a number of bytes"):
        Options(flash_budget=-1)


def test_a_board_that_is_too_small_is_told_before_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("mps2-an386")
    place = board.placement
    plans = {"tiny": make_plan(tiny_model(), M4)}
    check_memory(board, plans)
    flash = replace(place.code, bytes=12_000)
    small = replace(board, placement=replace(place, code=flash, weights=flash), stack_bytes=16)
    with pytest.raises(
        EdgeError,
        match=r"^tiny will not fit mps2-an386: needs [\d,]+ bytes of \w+, [\d,]+ more than there are \(12,000\); "
        r"most of it is layer '(conv|depthwise|dense)' \([\d,]+ bytes of constants\)",
    ):
        check_memory(small, plans)
    with pytest.raises(EdgeError, match=r"[\d,]+ bytes of stack, [\d,]+ more than the board reserves \(16\)"):
        check_memory(small, plans)
    ram = replace(place.data, bytes=4_196)
    small = replace(board, placement=replace(place, data=ram, arena=ram))
    with pytest.raises(
        EdgeError,
        match=r"bytes of \w+, [\d,]+ more than there are \(4,196\) \(arena [\d,]+, stack 4,096, link [\d,]+\); "
        r"the arena is fullest in layer '\w+' \([\d,]+ bytes\)",
    ):
        check_memory(small, plans)

    def compiling(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(api, "build_firmware", compiling)
    with pytest.raises(EdgeError, match="will not fit"):
        api.build({"tiny": tiny_model()}, small, tmp_path / "out")
    assert not (tmp_path / "out" / "bundle").exists()


def test_flags_of_the_commands(tmp_path: Path) -> None:
    model = tmp_path / "tiny.rlx"
    api.save(tiny_model(), model)
    made = good("generate", model, "-o", tmp_path / "c", "--target", "cortex-m4", "--optimize", "size")
    assert "predicted for cortex-m4" in made
    assert open_bundle(tmp_path / "c")[0].plan.options == Options(Optimize.SIZE)
    assert refused("build", model, "-o", tmp_path / "b", "--flash-budget", "100").startswith(
        "--flash-budget 100: layer"
    )
    shown = good("inspect", model, "--board", "mps2-an386")
    assert "variant" in shown and "predicted for cortex-m4" in shown


def test_a_build_that_cannot_be_leaves_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "build"
    with pytest.raises(EdgeError, match="--ram-budget 16"):
        api.build({"tiny": tiny_model()}, "mps2-an386", out, options=Options(ram_budget=16))
    assert not out.exists()


@pytest.mark.parametrize("ram_budget", [None, 0])
def test_no_layer_is_said_to_take_more_than_the_arena(ram_budget: int | None) -> None:
    """Bytes that an input and an output share count once; some layer fills what is not padding."""
    told = predict(make_plan(tiny_model(), M4, Options(ram_budget=ram_budget)))
    assert told is not None
    assert told.ram_bytes - 16 < max(layer.ram_bytes for layer in told.layers) <= told.ram_bytes


def test_the_arena_is_drawn(tmp_path: Path) -> None:
    """A box a buffer, in a file that is the same every time."""
    pytest.importorskip("matplotlib")
    model, picture = tmp_path / "tiny.rlx", tmp_path / "arena.svg"
    api.save(tiny_model(), model)
    good("inspect", model, "--board", "mps2-an386", "--memory", picture)
    first = picture.read_text()
    plan = make_plan(tiny_model(), M4)
    boxes = len(placed(plan.graph, plan.steps, plan.offsets, plan.scratch_offsets))
    assert boxes > len(plan.steps) and first.count("opacity: 0.75") == boxes
    good("inspect", model, "--board", "mps2-an386", "--memory", picture)
    assert picture.read_text() == first
    assert "give it such an ending" in refused("inspect", model, "--memory", tmp_path / "arena.bmp")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4"])
def test_budgets_hold_together(core: str, seed: int) -> None:
    """A RAM budget that binds nothing changes no answer; one that asks for stages does not exceed the others."""
    graph, target = random_model(seed), get_target(core)
    free, small = (predict(make_plan(graph, target, Options(ram_budget=budget))) for budget in (None, 0))
    size = predict(make_plan(graph, target, Options(Optimize.SIZE)))
    assert free and small and size
    assert make_plan(graph, target, Options(flash_budget=size.flash_bytes, ram_budget=1 << 24))
    met = 0
    for flash in (size.flash_bytes, (size.flash_bytes + free.flash_bytes) // 2, free.flash_bytes):
        for stack in (None, small.stack_bytes):
            told, refusal = _told(graph, core, Options(flash_budget=flash, ram_budget=0, stack_budget=stack))
            met += told is not None
            assert told or re.search(r"[\d,]+ bytes is the (smallest|least)", refusal)
            assert told is None or told.flash_bytes <= flash
            assert told is None or stack is None or told.stack_bytes <= stack
    assert met


def _told(graph: Graph, core: str, options: Options) -> tuple[Prediction | None, str]:
    """What is predicted, or why there is no plan."""
    try:
        return predict(make_plan(graph, get_target(core), options)), ""
    except EdgeError as error:
        return None, str(error)


@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an385-m0"])
def test_the_stack_of_steps_of_several_calls_is_bounded(board: str, tmp_path: Path) -> None:
    """A concatenation copies each operand, and each image of a batch is a call."""
    several = ModelMaker("several", 1)
    out = several.quant()
    parts = [several.conv(several.input((1, 2, 2, 3), f"x{i}"), 3, 1, name=f"c{i}", out=out) for i in range(8)]
    joined = several.builder.add(Concat(3), parts, "joined", out)
    batch = ModelMaker("batch", 2)
    x = batch.conv(batch.input((4, 5, 5, 4)), 4, name="conv")
    models = {"several": several.builder.build([joined]), "batch": batch.builder.build([batch.add(x, x)])}
    options = Options(Optimize.SIZE)
    api.build(models, board, tmp_path, options=options)
    for name, graph in models.items():
        plan = make_plan(graph, get_target(load_board(board).chip.cpu), options)
        assert max(len(step.calls) for step in plan.steps) >= 4
        assert api.profile(tmp_path, name).stack_bytes <= plan.stack_bytes, name


@pytest.mark.filterwarnings("error")
def test_names_of_models_are_shown_as_text(tmp_path: Path) -> None:
    maker = ModelMaker('model\n\x1b[31m"<x>$*/', 1)
    made = maker.conv(maker.input((1, 6, 6, 2)), 3, name="a*/\n#error\x1b[31m $x_{")
    graph = maker.builder.build([maker.conv(made, 3, name="b")])
    api.save(graph, tmp_path / "m.rlx")
    shown = good("inspect", tmp_path / "m.rlx", "--target", "cortex-m4", "--ram-budget", "0")
    assert "\x1b" not in shown and "model\\n\\x1b[31m" in shown
    pytest.importorskip("matplotlib")
    plot_arena(make_plan(graph, M4), tmp_path / "arena.svg")
