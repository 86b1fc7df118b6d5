"""Whether a board's memory will hold some models, from their plans alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from rlx_edge.cgen.costs import CoreCosts, costs_of
from rlx_edge.cgen.memory import fullest_step
from rlx_edge.cgen.options import Optimize
from rlx_edge.cgen.plan import Plan, constants_of
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import get_target
from rlx_edge.device.boards import Board
from rlx_edge.device.buffers import buffer_bytes
from rlx_edge.device.chips import Region
from rlx_edge.errors import EdgeError
from rlx_edge.ir.graph import brief


def check_memory(board: Board, plans: Mapping[str, Plan]) -> None:
    """Raises EdgeError when flash or RAM would be too small for the models with start-up, link and stack.

    What is predicted leaves out small things (names of tensors, alignment), so what passes here may still be refused by
    the linker; what is refused here never fits.
    """
    targets = {plan.target for plan in plans.values()}
    costs = costs_of(get_target(next(iter(targets)))) if len(targets) == 1 else None
    if costs is None:
        return
    placement = board.placement
    parts = []
    flash = flash_bytes(costs, plans)
    if flash > placement.code.bytes:
        parts.append(f"{_over(flash, placement.code)}; most of it is {_largest_constants(plans)}")
    arena = max((plan.arena_bytes for plan in plans.values()), default=0)
    ram = costs.start_up_ram + costs.link_ram + buffer_bytes(board) + board.stack_bytes
    if placement.arena != placement.data and arena > placement.arena.bytes:
        parts.append(f"{_over(arena, placement.arena)}; {_fullest(plans)}")
    elif placement.arena == placement.data and ram + arena > placement.data.bytes:
        link = costs.link_ram + buffer_bytes(board)
        shares = f"arena {arena:,}, stack {board.stack_bytes:,}, link {link:,}"
        parts.append(f"{_over(ram + arena, placement.data)} ({shares}); {_fullest(plans)}")
    stack = max((plan.stack_bytes for plan in plans.values()), default=0)
    if stack > board.stack_bytes:
        over = stack - board.stack_bytes
        parts.append(f"{stack:,} bytes of stack, {over:,} more than the board reserves ({board.stack_bytes:,})")
    if parts:
        hints = [*_hints(plans, board, flash, ram), "a larger board"]
        raise EdgeError(
            f"{', '.join(plans)} will not fit {board.name}: needs {'; '.join(parts)}; try {' or '.join(hints)}"
        )


def _over(needed: int, region: Region) -> str:
    over = needed - region.bytes
    return f"{needed:,} bytes of {region.name}, {over:,} more than there are ({region.bytes:,})"


def _largest_constants(plans: Mapping[str, Plan]) -> str:
    """The layer with most bytes in flash."""
    sizes = {
        brief(plan.graph.nodes[step.node].name): sum(constant.values.nbytes for constant in constants_of(step.calls))
        for plan in plans.values()
        for step in plan.steps
    }
    layer = max(sizes, key=lambda name: sizes[name], default="")
    return f"layer {layer!r} ({sizes.get(layer, 0):,} bytes of constants)"


def _fullest(plans: Mapping[str, Plan]) -> str:
    """The layer during which most of the largest arena is in use."""
    plan = max(plans.values(), key=lambda plan: plan.arena_bytes)
    layer, held = fullest_step(plan.graph, plan.steps, plan.offsets, plan.scratch_offsets)
    return f"the arena is fullest in layer {layer!r} ({held:,} bytes)"


def _hints(plans: Mapping[str, Plan], board: Board, flash: int, ram: int) -> list[str]:
    """Flags that may help. ram: what is taken beside the arena, of the memory that has data and stack."""
    placement, hints = board.placement, []
    if flash > placement.code.bytes and any(plan.options.optimize is not Optimize.SIZE for plan in plans.values()):
        hints.append("--optimize size")
    room = placement.data.bytes - ram if placement.arena == placement.data else placement.arena.bytes
    large = [plan for plan in plans.values() if plan.arena_bytes > room]
    wanted = any(plan.options.ram_budget is None or plan.options.ram_budget > room for plan in large)
    if room > 0 and wanted and all(_smallest_arena(plan) <= room for plan in large):
        hints.append(f"--ram-budget {room}")
    return hints


@lru_cache(maxsize=64)
def _smallest_arena(plan: Plan) -> int:
    """Bytes of the smallest arena that is found for a model. Takes seconds for large ones."""
    return make_plan(plan.graph, get_target(plan.target), replace(plan.options, ram_budget=0)).arena_bytes


def flash_bytes(costs: CoreCosts, plans: Mapping[str, Plan]) -> int:
    """Predicted flash of several models in one image, with start-up and link."""
    kernels = {kernel.name for plan in plans.values() for kernel in plan.kernels}
    own = sum(plan.constant_bytes + costs.code_bytes(plan.steps) for plan in plans.values())
    return costs.start_up_flash + costs.link_flash + costs.kernel_bytes(kernels) + own
