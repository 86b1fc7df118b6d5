"""The `rlx-edge` command: parses, calls the API, prints. Exit codes: 0 good, 1 a check failed, 2 bad use or input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from rlx_edge.cli_boards import boards, new_board
from rlx_edge.cli_certificate import verify
from rlx_edge.cli_check import check
from rlx_edge.cli_device import build, demo, deploy, doctor, parity
from rlx_edge.cli_finetune import finetune
from rlx_edge.cli_flash import flash
from rlx_edge.cli_inspect import inspect
from rlx_edge.cli_models import convert, evaluate, generate, run
from rlx_edge.cli_profile import profile
from rlx_edge.cli_quantize import quantize
from rlx_edge.errors import EdgeError
from rlx_edge.report.console import note, say
from rlx_edge.user_code import load_module

INTERRUPTED = 130
"""What typer returns after Ctrl-C."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(inspect, quantize, finetune, convert, evaluate, run, generate),
    *(build, flash, parity, profile, deploy, verify, check, boards, new_board, doctor, demo),
)
for command in COMMANDS:
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"rlx-edge {version('rlx-edge')}")
        raise typer.Exit()


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
    ops: Annotated[
        list[Path] | None, typer.Option("--ops", help="a Python file of yours that registers custom ops; repeatable")
    ] = None,
) -> None:
    """Neural networks on microcontrollers, proven bit for bit."""
    for path in ops or ():
        load_module(path, "--ops FILE.py")


def main() -> None:
    """Run the command; errors meant for people become one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # names from models may not fit the terminal's encoding
    try:
        status = app(standalone_mode=False)
        if status == INTERRUPTED:
            note("rlx-edge: interrupted")
        sys.exit(status)
    except EdgeError as error:
        note(f"rlx-edge: {error}")
    except typer.TyperException as error:
        if error.format_message():  # empty where a bare `rlx-edge` has printed its help
            asked = getattr(getattr(error, "ctx", None), "command_path", "rlx-edge")
            said = error.format_message().replace("Value error, ", "")
            note(f"rlx-edge: {said.rstrip('.')}. See {asked} --help")
    except OSError as error:
        note(f"rlx-edge: {error.filename or ''}: {error.strerror or error}")
    sys.exit(2)
