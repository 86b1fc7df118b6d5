"""Commands about boards: boards, new-board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_edge.cli_options import Json
from rlx_edge.device.boards import load_boards, own_boards_dir
from rlx_edge.device.connected import connections, needs
from rlx_edge.device.external import how_to_get
from rlx_edge.device.flash_facts import METHODS, PROBES
from rlx_edge.device.new_board import Facts
from rlx_edge.device.new_board import new_board as write_board
from rlx_edge.report import tables
from rlx_edge.report.console import note, out, print_json, say


def boards(json: Json = False) -> None:
    """The boards that firmware can be built for, what each needs, and which are connected now."""
    found = load_boards()
    plugged = connections(found)
    if json:
        print_json("boards", {"boards": [tables.board_facts(board, plugged[board.name]) for board in found]})
        return
    out.print(tables.boards_table(found, plugged))
    if any(not one.sure for ones in plugged.values() for one in ones):
        say("?: its USB id is that of several boards")
    missing = {need.program: need.purpose for board in found for need in needs(board) if not need.found}
    for program, purpose in missing.items():
        say(f"{program} is not there: some boards need it to {purpose}{how_to_get(program)}")
    if any(board.hardware and not board.hardware_tested for board in found):
        say("untested: no such board was at hand; how its image was checked says docs/boards.md")
    for board in found:
        if board.wiring is not None:
            say(f"{board.name}: {board.wiring}")


def new_board(
    name: Annotated[str, typer.Argument(help="what to call it: small letters, digits and -", show_default=False)],
    like: Annotated[str | None, typer.Option("--like", help="the known board that it resembles")] = None,
    chip: Annotated[str | None, typer.Option("--chip", help="its chip, where it is like no board")] = None,
    title: Annotated[str | None, typer.Option("--title", help="its name for people")] = None,
    uart: Annotated[str | None, typer.Option("--uart", help="which of the chip's UARTs")] = None,
    baud: Annotated[int | None, typer.Option("--baud", help="115200 by default")] = None,
    tx_pin: Annotated[int | None, typer.Option("--tx-pin", help="Nordic chips: 32 * port + pin")] = None,
    rx_pin: Annotated[int | None, typer.Option("--rx-pin", help="Nordic chips: 32 * port + pin")] = None,
    wiring: Annotated[str | None, typer.Option("--wiring", help="how to reach the UART, where USB does not")] = None,
    usb: Annotated[list[str] | None, typer.Option("--usb", help="VENDOR:PRODUCT of its port; repeatable")] = None,
    core_hz: Annotated[int | None, typer.Option("--core-hz", help="the core's clock after set-up")] = None,
    uart_hz: Annotated[int | None, typer.Option("--uart-hz", help="the UART's clock; the core's by default")] = None,
    stack: Annotated[int | None, typer.Option("--stack", help="bytes of stack to reserve")] = None,
    code: Annotated[str | None, typer.Option("--code", help="the chip's region for code and weights")] = None,
    data: Annotated[str | None, typer.Option("--data", help="the chip's region for data and stack")] = None,
    arena: Annotated[str | None, typer.Option("--arena", help="the chip's region for the arena")] = None,
    method: Annotated[str | None, typer.Option("--flash", help=f"how to flash it: {', '.join(METHODS)}")] = None,
    probe: Annotated[str | None, typer.Option("--probe", help=f"for OpenOCD: {', '.join(PROBES)}")] = None,
    drive: Annotated[str | None, typer.Option("--drive", help="label of the drive that takes an image")] = None,
    folder: Annotated[Path | None, typer.Option("-o", "--out", help="where; by default your folder of boards")] = None,
) -> None:
    """Write a board file of your own, which all commands then know by its name."""
    facts = Facts(
        title=title,
        uart=uart,
        baud=baud,
        tx_pin=tx_pin,
        rx_pin=rx_pin,
        wiring=wiring,
        usb=tuple(usb) if usb else None,
        core_hz=core_hz,
        uart_hz=uart_hz,
        stack_bytes=stack,
        code=code,
        data=data,
        arena=arena,
        method=method,
        probe=probe,
        drive=drive,
    )
    path = write_board(name, folder or own_boards_dir(), facts, like=like, chip=chip)
    say(f"wrote {path}")
    if like is not None:
        note(f"its steps of set-up are those of {like}: change them where crystal, clocks or pins differ")
    if folder is not None and folder.resolve() != own_boards_dir().resolve():
        note(f"boards are looked for in {own_boards_dir()} (RLX_EDGE_BOARDS names another folder)")
