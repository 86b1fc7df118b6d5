"""The command `verify`: what can be checked of a certificate of parity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_edge.certificate.verify import read_file
from rlx_edge.certificate.verify import verify as verify_archive
from rlx_edge.cli_options import Json, Port
from rlx_edge.device.ports import open_port
from rlx_edge.report.certificate_table import about_text, verdict_facts, verdict_table, verdict_text
from rlx_edge.report.console import note, out, print_json, say, stages

PROBE_BAUD = 115200


def verify(
    file: Annotated[Path, typer.Argument(help="what `rlx-edge parity --certificate` wrote", show_default=False)],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="also build the firmware again: the same bytes?")] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="also run the certificate's firmware in the emulator")] = False,
    port: Port = None,
    json: Json = False,
) -> None:
    """Check a certificate: unchanged, computed again, and on demand built and run again. Exits with 1 if one fails.

    With --port the inputs are sent to a board there, which must have been flashed with that firmware.
    """
    archive = read_file(file)
    if port is not None:
        open_port(port, PROBE_BAUD).close()  # a wrong name is no fault of the certificate
    if rerun and port is None:
        note("runs build/firmware.elf of the certificate in QEMU, without semihosting")
    if rebuild:
        note("compiles C that this rlx-edge generates from the certificate's model; runs none of it")
    with stages() as shown:
        verdict = verify_archive(archive, rebuild=rebuild, rerun=rerun, port=port, progress=shown)
    if json:
        print_json("verify", verdict_facts(verdict))
    else:
        if verdict.certificate is not None:
            say(about_text(verdict.certificate))
        out.print(verdict_table(verdict))
        say(verdict_text(verdict))
    if not verdict.good:
        raise typer.Exit(1)
