"""What stands in for boards that are not here: programs on PATH, drives that behave, USB devices in a list."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench_device import make_bundle
from serial.tools import list_ports

from rlx_edge import cli
from rlx_edge.device import drives, usb
from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware

Builds = Callable[[str], Path]
"""The build for a board of that name."""
ST_LINK, MICROBIT, J_LINK = (0x0483, 0x374B), (0x0D28, 0x0204), (0x1366, 0x1015)


def build(folder: Path, board: str) -> Path:
    """A build of the parity firmware with the model `toy`."""
    out = folder / board
    build_firmware(make_bundle(folder / "bundle"), ["toy"], load_board(board), out)
    return out


def builds_of(folder: Path) -> Builds:
    """Builds by the name of their board, each made when it is first asked for, with the tools of this computer."""
    made: dict[str, Path] = {}
    path = os.environ["PATH"]

    def one(board: str) -> Path:
        if board not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PATH", path)
                made[board] = build(folder, board)
        return made[board]

    return one


class Desk:
    """A computer with nothing on its USB ports and no flashing tools, until a test puts some there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capsys = folder, monkeypatch, capsys
        self.tools, self.media = folder / "bin", folder / "media"
        self.tools.mkdir()
        self.media.mkdir()
        self._path = os.environ["PATH"]
        self.real_tools("sh", "cat", "sleep")
        monkeypatch.setenv("PATH", str(self.tools))
        monkeypatch.setenv(drives.DRIVES_VARIABLE, str(self.media))
        monkeypatch.setattr(drives, "BY_LABEL", folder / "by-label")
        monkeypatch.setattr(usb, "SYSFS", folder / "sysfs")
        self.plug()

    def plug(self, *ports: tuple[tuple[int, int], str, str]) -> None:
        """Serial ports with USB ids (vendor, product), serial number and device."""
        found = [
            SimpleNamespace(vid=ids[0], pid=ids[1], serial_number=serial, product="", device=device)
            for ids, serial, device in ports
        ]
        self._patch.setattr(list_ports, "comports", lambda: found)

    def plug_without_port(self, ids: tuple[int, int], serial: str, product: str) -> None:
        """A USB device as Linux shows it."""
        entry = self.folder / "sysfs" / f"1-{serial}"
        entry.mkdir(parents=True)
        facts = {"idVendor": f"{ids[0]:04x}", "idProduct": f"{ids[1]:04x}", "serial": serial, "product": product}
        for name, text in facts.items():
            (entry / name).write_text(f"{text}\n")

    def tool(self, name: str, *cases: tuple[str, str, int]) -> Path:
        """A program that prints what the first case says whose word is among its arguments, and exits with its code.
        What it was called with is in the file returned, an argument a line."""
        calls = self.tools / f"{name}.calls"
        lines = ["#!/bin/sh", f"printf '%s\\n' \"$@\" >> '{calls}'"]
        for word, text, code in cases:
            lines += [f'case " $* " in *" {word}"*) cat <<\'END\'', text, "END", f"exit {code};; esac"]
        program = self.tools / name
        program.write_text("\n".join([*lines, ""]))
        program.chmod(0o755)
        return calls

    def hanging_tool(self, name: str) -> Path:
        """A program that starts another one, and waits for it. The file returned gets its process number."""
        program, number = self.tools / name, self.tools / f"{name}.pid"
        program.write_text(f"#!/bin/sh\necho $$ > '{number}'\nsleep 3600\n")
        program.chmod(0o755)
        return number

    def real_tools(self, *names: str) -> None:
        """Programs of this computer, those of them that it has."""
        for name in names:
            found = shutil.which(name, path=self._path)
            if found:
                (self.tools / name).symlink_to(found)

    def all_tools(self) -> None:
        """What this computer has on its PATH."""
        self._patch.setenv("PATH", self._path)

    def without(self, name: str) -> None:
        """A PATH without this program: folders that have it are left out, and what else they hold is linked."""
        folders = [Path(part) for part in os.environ["PATH"].split(os.pathsep) if part]
        for folder in folders:
            if (folder / name).exists():
                for program in folder.iterdir():
                    if program.name != name and not (self.tools / program.name).exists():
                        (self.tools / program.name).symlink_to(program)
        kept = [str(folder) for folder in folders if not (folder / name).exists()]
        self._patch.setenv("PATH", os.pathsep.join([str(self.tools), *kept]))

    def drive(self, label: str, **files: str) -> Path:
        """A mounted drive; DETAILS_TXT is DETAILS.TXT."""
        drive = self.media / label
        drive.mkdir()
        for name, text in files.items():
            (drive / name.replace("_", ".")).write_text(text)
        return drive

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """The command's exit code, standard output and standard error."""
        self._patch.setattr("sys.argv", ["rlx-edge", *map(str, words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = self._capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    def good(self, *words: str | Path) -> str:
        code, out, err = self.run(*words)
        assert code == 0, err
        return out

    def refused(self, *words: str | Path) -> str:
        """The one line with which the command refuses, places of this computer left out."""
        code, out, err = self.run(*words)
        assert (code, out) == (2, ""), (code, out, err)
        (line,) = err.splitlines()
        assert line.startswith("rlx-edge: ")
        text = line.removeprefix("rlx-edge: ")
        for folder, name in ((self.media, "/media/you"), (self.folder, "FOLDER")):
            text = text.replace(str(folder), name)
        return text


@contextmanager
def taken(drive: Path, copy: str, size: int, *, comes_back: bool, **files: str) -> Iterator[list[bytes]]:
    """A drive that is taken away once a file of that size is on it; with `comes_back` it is there again a moment later,
    with these files beside those that it had. Yields the list that gets what was copied."""
    got: list[bytes] = []
    kept = {path.name: path.read_bytes() for path in drive.iterdir()}
    ended = threading.Event()

    def play() -> None:
        while not ended.wait(0.02):
            file = drive / copy
            if file.is_file() and file.stat().st_size >= size:
                time.sleep(0.1)  # until it is closed
                got.append(file.read_bytes())
                shutil.rmtree(drive)
                if comes_back:
                    time.sleep(0.1)
                    scratch = drive.with_name("mounting")
                    scratch.mkdir()
                    for name, data in kept.items():
                        (scratch / name).write_bytes(data)
                    for name, text in files.items():
                        (scratch / name.replace("_", ".")).write_text(text)
                    scratch.rename(drive)
                return

    player = threading.Thread(target=play)
    player.start()
    try:
        yield got
    finally:
        ended.set()
        player.join()


def words_after(calls: Path, flag: str) -> Sequence[str]:
    """What followed a flag each time."""
    lines = calls.read_text().splitlines()
    return [lines[index + 1] for index, line in enumerate(lines[:-1]) if line == flag]
