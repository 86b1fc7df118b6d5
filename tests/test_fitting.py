"""inspect --boards: which boards a model fits, in agreement with what a build refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import good, refused

import rlx_edge
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import get_target
from rlx_edge.device import fitting
from rlx_edge.device.boards import Board, load_boards
from rlx_edge.device.fitting import core_of, fits
from rlx_edge.device.memory import check_memory
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph
from rlx_edge.resources import boards_dir, digits_dir


@pytest.fixture(scope="module")
def digits() -> Graph:
    graph = rlx_edge.load(digits_dir() / "digits.onnx")
    data = rlx_edge.load_data(digits_dir() / "digits_calibration.npz", graph, samples="0:64")
    return rlx_edge.quantize(graph, rlx_edge.calibrate(graph, data))


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Board]:
    """All boards, with less RAM on the smallest one, less flash on the next, and less stack on another."""
    own = tmp_path / "boards"
    monkeypatch.setenv("RLX_EDGE_BOARDS", str(own))
    (own / "chips").mkdir(parents=True)
    for file, old, new in (
        ("chips/stm32f100.toml", "bytes = 0x2000", "bytes = 0x1000"),
        ("chips/nrf51822.toml", "bytes = 0x4_0000", "bytes = 0x4000"),
        ("pico.toml", "stack_bytes = 4096", "stack_bytes = 512"),
    ):
        text = (boards_dir() / file).read_text()
        assert old in text
        (own / file).write_text(text.replace(old, new))
    return load_boards()


def test_what_does_not_fit_is_what_a_build_refuses(digits: Graph, boards: list[Board]) -> None:
    found = {fit.board: fit for fit in fits(digits, "digits", boards, DEFAULT, lambda done, total: None)}
    assert found.keys() == {board.name for board in boards}
    for board in boards:
        plan, fit = make_plan(digits, get_target(core_of(board)), DEFAULT), found[board.name]
        assert fit.problem == refusal(board, plan)
        assert bool(fit.problem) == any(room.needed > room.there for room in fit.rooms)
    small = {name: fit for name, fit in found.items() if fit.problem}
    too_small = {name: [room.kind for room in fit.rooms if room.needed > room.there] for name, fit in small.items()}
    assert too_small == {"microbit": ["flash"], "pico": ["stack"], "stm32vldiscovery": ["RAM"]}
    assert small["microbit"].problem.startswith("digits will not fit microbit: needs ")


def refusal(board: Board, plan: Plan) -> str:
    try:
        check_memory(board, {"digits": plan})
    except EdgeError as error:
        return str(error)
    return ""


def test_each_core_is_planned_once(digits: Graph, boards: list[Board], monkeypatch: pytest.MonkeyPatch) -> None:
    planned, steps = [], []

    def spy(graph: Graph, target: object, options: Options) -> object:
        planned.append(target)
        return make_plan(graph, target, options)

    monkeypatch.setattr(fitting, "make_plan", spy)
    fits(digits, "digits", boards, DEFAULT, lambda done, total: steps.append((done, total)))
    cores = {core_of(board) for board in boards}
    assert len(planned) == len(cores) < len(boards)
    assert steps == [(done, len(cores)) for done in range(len(cores))]


def test_the_command(digits: Graph, boards: list[Board], tmp_path: Path) -> None:
    rlx_edge.save(digits, tmp_path / "digits.rlx")
    said = good("inspect", tmp_path / "digits.rlx", "--boards")
    assert f"fits {len(boards) - 3} of {len(boards)} boards, with start-up, link and stack" in said
    assert "digits will not fit microbit: needs " in said and "; try --optimize size" in said
    rows = json.loads(good("inspect", tmp_path / "digits.rlx", "--boards", "--json"))["boards"]
    facts = {row["board"]: row for row in rows}
    assert facts["mps2-an386"]["fits"] and not facts["microbit"]["fits"]
    flash = {memory["kind"]: memory for memory in facts["microbit"]["memories"]}["flash"]
    assert flash["needed_bytes"] > flash["there_bytes"] == 16384


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    float_model = digits_dir() / "digits.onnx"
    assert "quantize it first" in refused("inspect", float_model, "--boards")
    assert "leave out --board" in refused("inspect", float_model, "--boards", "--board", "pico")
