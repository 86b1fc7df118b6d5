"""The command `flash`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rlx_edge import api
from rlx_edge.cli_options import Build, Json, Port, note_untested
from rlx_edge.device.boards import load_board
from rlx_edge.device.flash import TIMEOUT_SECONDS, Wishes
from rlx_edge.device.flash_facts import METHODS
from rlx_edge.errors import EdgeError
from rlx_edge.report.console import print_json, say, stages


def flash(
    folder: Build,
    by: Annotated[str | None, typer.Option("--by", help=f"{', '.join(METHODS)}; as the board's file says")] = None,
    port: Port = None,
    probe: Annotated[str | None, typer.Option("--probe", help="serial number of the debug probe, or drive")] = None,
    drive: Annotated[Path | None, typer.Option("--drive", help="the folder where the board's drive is mounted")] = None,
    gdb: Annotated[str | None, typer.Option("--gdb", help="flash over this gdb server: HOST:PORT or a socket")] = None,
    board: Annotated[str | None, typer.Option("--board", help="refuse a build for any other board")] = None,
    verify: Annotated[bool, typer.Option(help="ask the device for the hash of its image afterwards")] = True,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds that a tool may take")] = TIMEOUT_SECONDS,
    json: Json = False,
) -> None:
    """Write a build's image to the board it was built for, and verify it by the device's own hash."""
    if not folder.is_dir():
        raise EdgeError(f"there is no folder {folder}")
    if timeout <= 0:
        raise EdgeError(f"--timeout {timeout:g}: a number of seconds above 0 is needed")
    wishes = Wishes(by, port, probe, drive, gdb, verify, timeout)
    with stages() as report:
        done = api.flash(folder, wishes, board=board, progress=report)
    if json:
        print_json("flash", dataclasses.asdict(done) | {"verified": done.port is not None})
        return
    say(f"wrote {done.image_bytes:,} bytes to {done.board} by {done.method}")
    if done.port is not None:
        say(f"verified by the device on {done.port}: it runs this image, CRC-32 {done.image_crc32:08x}")
    else:
        say(f"not verified by the device: {done.why_not}")
    note_untested(load_board(done.board))
