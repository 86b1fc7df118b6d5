"""Which boards a model fits, from one plan for each core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_edge.cgen.costs import costs_of
from rlx_edge.cgen.options import Options
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TARGETS, get_target
from rlx_edge.device.boards import Board
from rlx_edge.device.buffers import buffer_bytes
from rlx_edge.device.memory import check_memory, flash_bytes
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.ir import Graph

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Room:
    """Bytes that a model needs of one of a board's memories with start-up, link and stack, and bytes that are there.

    `kind` is flash, RAM, stack, or arena where that has a region of its own.
    """

    kind: str
    needed: int
    there: int


@dataclass(frozen=True)
class Fit:
    """A model on a board: what is predicted of its memories, nothing where no costs of the core are known; `problem` is
    what a build would say, empty where it would begin."""

    board: str
    rooms: tuple[Room, ...]
    problem: str


def fits(graph: Graph, name: str, boards: Sequence[Board], options: Options, progress: Progress) -> list[Fit]:
    """How an int8 model fits each board. `progress` gets the cores that are planned, of how many."""
    cores = sorted({core_of(board) for board in boards})
    plans: dict[str, Plan | UnsupportedError] = {}
    for done, core in enumerate(cores):
        progress(done, len(cores))
        try:
            plans[core] = make_plan(graph, get_target(core), options)
        except UnsupportedError as error:
            plans[core] = error
    return [_fit(board, name, plans[core_of(board)]) for board in boards]


def core_of(board: Board) -> str:
    """The name of the target that a board's core is."""
    return board.chip.cpu if board.chip.cpu in TARGETS else "portable"


def _fit(board: Board, name: str, plan: Plan | UnsupportedError) -> Fit:
    if isinstance(plan, UnsupportedError):
        return Fit(board.name, (), f"{name} cannot run on {board.name}: {'; '.join(plan.problems) or plan}")
    try:
        check_memory(board, {name: plan})
    except EdgeError as error:
        return Fit(board.name, _rooms(board, name, plan), str(error))
    return Fit(board.name, _rooms(board, name, plan), "")


def _rooms(board: Board, name: str, plan: Plan) -> tuple[Room, ...]:
    costs, place = costs_of(get_target(plan.target)), board.placement
    if costs is None:
        return ()
    ram = costs.start_up_ram + costs.link_ram + buffer_bytes(board) + board.stack_bytes
    apart = place.arena != place.data
    return (
        Room("flash", flash_bytes(costs, {name: plan}), place.code.bytes),
        Room("RAM", ram if apart else ram + plan.arena_bytes, place.data.bytes),
        *([Room("arena", plan.arena_bytes, place.arena.bytes)] if apart else []),
        Room("stack", plan.stack_bytes, board.stack_bytes),
    )
