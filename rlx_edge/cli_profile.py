"""The command that says what each layer costs: counted in the emulator, or on a board."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_edge import api
from rlx_edge.cgen.bundle import is_bundle
from rlx_edge.cgen.options import DEFAULT, Optimize, Options
from rlx_edge.cgen.text import identifier, suggest_identifier
from rlx_edge.cli_options import (
    MODEL_SUFFIXES,
    FlashBudget,
    Json,
    OptimizeFor,
    Port,
    RamBudget,
    StackBudget,
    WhichModel,
    load_int8,
)
from rlx_edge.device.board_profile import BoardProfile
from rlx_edge.device.boards import DEFAULT_BOARD, load_board
from rlx_edge.device.profile import Profile
from rlx_edge.device.sizes import Section, sections
from rlx_edge.errors import EdgeError
from rlx_edge.report import cost_tables
from rlx_edge.report.console import note, out, print_json, say


def profile(
    source: Annotated[Path, typer.Argument(help="a build folder, or a model (with --board)", show_default=False)],
    board: Annotated[str | None, typer.Option("--board", help="build the model for this board first")] = None,
    model: WhichModel = None,
    port: Port = None,
    optimize: OptimizeFor = Optimize.BALANCED,
    flash_budget: FlashBudget = None,
    ram_budget: RamBudget = None,
    stack_budget: StackBudget = None,
    json: Json = False,
) -> None:
    """Instructions (emulated) or cycles (--port) per layer, stack, and flash and RAM by section."""
    options = Options(optimize, flash_budget, ram_budget, stack_budget)
    if not source.exists() and source.suffix not in MODEL_SUFFIXES:
        raise EdgeError(f"there is no folder {source}")
    if is_bundle(source):
        raise EdgeError(f"{source}: this is a bundle; build it for a board first (rlx-edge build)")
    if not source.is_dir():
        if port is not None:
            raise EdgeError(f"{source} is a model: build it, flash the board, and give the build folder with --port")
        with tempfile.TemporaryDirectory(prefix="rlx-edge-") as folder:
            in_c = identifier(suggest_identifier(source.name))
            api.build({in_c: load_int8(source)}, board or DEFAULT_BOARD, folder, options=options)
            _show(api.profile(folder, model), sections(Path(folder) / "firmware.elf"), json)
        return
    if options != DEFAULT:
        raise EdgeError(f"{source} is built already: give --optimize and budgets to rlx-edge build")
    if board is not None:
        raise EdgeError(f"{source} is built already: give --board to rlx-edge build")
    made = api.profile(source, model) if port is None else api.profile_on(port, source, model)
    if port is not None and load_board(made.board).purely_emulated:
        note("this board is an emulator, whose clock counts no cycles: leave out --port to count instructions")
    _show(made, sections(source / "firmware.elf"), json)


def _show(made: Profile | BoardProfile, found: tuple[Section, ...], json: bool) -> None:
    if json:
        facts: dict[str, Any] = dataclasses.asdict(made)
        print_json("profile", facts | {"sections": [dataclasses.asdict(section) for section in found]})
        return
    if isinstance(made, BoardProfile):
        out.print(cost_tables.board_profile_table(made))
        out.print(cost_tables.sections_table(found))
        if made.stack_bytes is not None:
            say(f"stack used {made.stack_bytes:,} bytes; {made.stack_left_bytes:,} bytes were never touched")
        return
    out.print(cost_tables.profile_table(made))
    out.print(cost_tables.sections_table(found))
    if made.predicted_instructions is not None:
        say(cost_tables.profile_verdict(made))
    say(
        f"flash {made.flash_bytes:,} bytes, RAM {made.ram_bytes:,} bytes, stack used {made.stack_bytes:,} bytes "
        f"(the link adds {made.link_flash_bytes:,} of flash and {made.link_ram_bytes:,} of RAM)"
    )
