"""From a C bundle to the firmware of a board."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from rlx_edge.device.boards import Board
from rlx_edge.device.buffers import max_payload
from rlx_edge.device.linker import linker_script
from rlx_edge.device.sizes import ImageSizes, image_bytes, image_sizes
from rlx_edge.device.sources import bare_main, board_header, board_setup, model_table
from rlx_edge.device.toolchain import (
    COMMON_FLAGS,
    CommandError,
    Compiler,
    Place,
    chip_flags,
    compile_units,
    find_compiler,
    link,
    region_overflows,
)
from rlx_edge.errors import ToolError
from rlx_edge.files import replacing
from rlx_edge.resources import firmware_dir

SCHEMA = "rlx-edge build 1"
BUILD_FILE = "build.json"
MARKER = ".rlx-edge-build"  # lies in folders that builds may write to, finished or not
BUNDLE = "bundle"
SETUP_FILE = "rlx_board_setup.c"
T = TypeVar("T")


@dataclass(frozen=True)
class FirmwareSizes:
    """Bytes. Flash and RAM of models, kernels and start-up, without the stack; what the link adds; the stack."""

    flash_bytes: int
    ram_bytes: int
    stack_bytes: int
    link_flash_bytes: int
    link_ram_bytes: int


@dataclass(frozen=True)
class Firmware:
    """A finished build, by a compiler of that version. `image_crc32` is over the bytes in flash, which the device can
    check for itself."""

    elf: Path
    binary: Path
    board: str
    app: str
    models: tuple[str, ...]
    image_bytes: int
    image_crc32: int
    image_sha256: str
    compiler: str
    sizes: FirmwareSizes


def build_firmware(
    bundle: Path,
    models: Sequence[str],
    board: Board,
    out: Path,
    *,
    app: str | Path = "parity",
    defines: Mapping[str, str] | None = None,
    objects: Path | None = None,
    warnings_are_errors: bool = False,
) -> Firmware:
    """Builds the image that runs `models` of `bundle` on `board`, into the folder `out`.

    `app` names an application of firmware/app/, or is a C file or a folder of them. `defines` are macros for all files;
    `objects` is a folder for compiled files in place of the user's cache; `warnings_are_errors` is for tests. The
    folder `out` gets firmware.elf, firmware.bin and firmware.map, the same with the link left out (bare.elf,
    bare.map), every file that was generated on the way, and at last build.json. Equal inputs give equal bytes.

    Raises `ToolError` when `out` holds anything but a build, when the compiler is missing or refuses, when a bundle
    lacks a model, and when the image does not fit the board.
    """
    bundle, out = bundle.resolve(), out.resolve()
    _check_bundle(bundle, models)
    compiler = find_compiler()
    application = _find_app(app)
    _prepare(out, board, models)

    common, own = _sources(bundle, models, board, out), _app_sources(application)
    macros = {"RLX_LINK_MAX_PAYLOAD": str(max_payload(board)), **(defines or {})}
    strict = ["-Werror"] if warnings_are_errors else []
    flags = [*COMMON_FLAGS, *strict, *chip_flags(board.chip), *(f"-D{key}={text}" for key, text in macros.items())]
    table, bare = Place(out / "rlx_app_models.c", "rlx_app_models.c"), Place(out / "bare_main.c", "bare_main.c")
    places = [*common, *own, table, bare]
    units = compile_units(compiler, places, flags, _includes(bundle, application, out), objects)
    made = dict(zip(places, units, strict=True))

    elf = _link(compiler, [made[p] for p in (*common, *own, table)], board, out / "firmware.elf")
    bare_elf = _link(compiler, [made[p] for p in (*common, bare)], board, out / "bare.elf")
    return _finish(out, elf, bare_elf, board, application.path.stem, models, compiler)


def check_build_folder(out: Path) -> None:
    """Raises `ToolError` when `out` holds anything that a build would have no right to replace; writes nothing.

    A build may go to a folder that is missing or empty, that has a bundle and nothing else, or that an earlier build
    has claimed, whether that one was finished or not.
    """
    if not out.exists():
        return
    try:
        names = {entry.name for entry in out.iterdir()}
    except OSError as error:
        raise _not_writable(out, error) from error
    if names - {BUNDLE} and MARKER not in names and not _is_build(out):
        raise ToolError(f"{out}: holds other files and is no build made by rlx-edge; choose another folder (-o)")


def claim_build_folder(out: Path) -> None:
    """Makes the folder `out` and marks it as a build's. Raises `ToolError` as `check_build_folder` does."""
    check_build_folder(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / MARKER).write_text("rlx-edge build writes to this folder.\n", encoding="utf-8")
    except OSError as error:
        raise _not_writable(out, error) from error


def load_firmware(out: Path) -> Firmware:
    """The finished build in the folder `out`. Raises `ToolError` when there is none, or only half of one."""
    try:
        facts = _read_facts(out)
        if facts.get("schema") != SCHEMA:
            raise ToolError(f"{out}: was built by another rlx-edge ({facts.get('schema')!r}); build it again")
        firmware = _read_firmware(out, facts)
        image = firmware.binary.read_bytes()
    except FileNotFoundError as error:
        raise ToolError(
            f"{out}: is not a finished build ({Path(error.filename).name} is missing); build it again"
        ) from error
    except (OSError, ValueError) as error:
        raise ToolError(f"{out}: {BUILD_FILE} cannot be read ({error}); build it again") from error
    if hashlib.sha256(image).hexdigest() != firmware.image_sha256:
        raise ToolError(f"{out}: {firmware.binary.name} is not the file that was built; build it again")
    return firmware


def _is_build(out: Path) -> bool:
    """Whether a build ended here, of this or of another version."""
    try:
        return str(_read_facts(out).get("schema")).startswith("rlx-edge build ")
    except (OSError, ValueError):
        return False


def _read_facts(out: Path) -> dict[str, Any]:
    """What build.json says, not yet checked. Raises OSError, and ValueError when it is no JSON object."""
    try:
        facts = json.loads((out / BUILD_FILE).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(facts, dict):
        raise ValueError("it is no JSON object")
    return facts


def _read_firmware(out: Path, facts: dict[str, Any]) -> Firmware:
    """Raises ValueError when a fact is missing or of another type than it was written with."""
    sizes = _fact(facts, "sizes", dict)
    models = _fact(facts, "models", list)
    if not all(isinstance(name, str) for name in models):
        raise ValueError("'models' is not as it was written")
    return Firmware(
        elf=out / _fact(facts, "elf", str),
        binary=out / _fact(facts, "binary", str),
        board=_fact(facts, "board", str),
        app=_fact(facts, "app", str),
        models=tuple(models),
        image_bytes=_fact(facts, "image_bytes", int),
        image_crc32=_fact(facts, "image_crc32", int),
        image_sha256=_fact(facts, "image_sha256", str),
        compiler=_fact(facts, "compiler", str),
        sizes=FirmwareSizes(**{field.name: _fact(sizes, field.name, int) for field in fields(FirmwareSizes)}),
    )


def _fact(facts: dict[str, Any], name: str, kind: type[T]) -> T:
    found = facts.get(name)
    if type(found) is not kind:  # isinstance would take true for a number
        raise ValueError(f"{name!r} is not as it was written")
    return found


def _check_bundle(bundle: Path, models: Sequence[str]) -> None:
    for name in models:
        if not (bundle / name / f"{name}.h").is_file():
            raise ToolError(f"{bundle}: has no model {name} ({name}/{name}.h is missing); generate it first")
    if not (bundle / "rlx" / "rlx.h").is_file():
        raise ToolError(f"{bundle}: is not a bundle (rlx/rlx.h is missing); generate it first")


def generated_files(board: Board, models: Sequence[str]) -> dict[str, str]:
    """What a build writes for the compiler and the linker, by name in its folder."""
    files = {
        "rlx_board.h": board_header(board),
        "rlx_app_models.c": model_table(models),
        "bare_main.c": bare_main(models),
        "link.ld": linker_script(board),
    }
    if board.setup:
        files[SETUP_FILE] = board_setup(board)
    return files


def _prepare(out: Path, board: Board, models: Sequence[str]) -> None:
    """Makes the folder, no longer a finished build, and the sources that are generated."""
    claim_build_folder(out)
    try:
        (out / BUILD_FILE).unlink(missing_ok=True)
        for name, text in generated_files(board, models).items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(out, error) from error


def _not_writable(out: Path, error: OSError) -> ToolError:
    return ToolError(f"{out}: cannot be written: {error.strerror}; choose another folder")


def soc_parts(board: Board) -> list[str]:
    """The files of firmware/soc/ that an image for this board is made of, without their ".c"."""
    chip = board.chip
    parts = ["startup", "setup", "boot", "fault", "stack", "receive", "exit"]
    parts += [f"uart_{board.uart.driver}", f"counter_{chip.counter}"]
    parts += ["reset_cause_none" if chip.reset_cause is None else "reset_cause_flags"]
    parts += [f"image_{chip.image}"] if chip.image is not None else []
    parts += ["caches"] if chip.caches else []
    return parts


def _sources(bundle: Path, models: Sequence[str], board: Board, out: Path) -> list[Place]:
    """What every image has: start-up and drivers of the board, the kernels, the models."""
    soc = firmware_dir() / "soc"
    places = [Place(soc / f"{part}.c", f"firmware/soc/{part}.c") for part in soc_parts(board)]
    places += [Place(out / SETUP_FILE, SETUP_FILE)] if board.setup else []
    places += _folder(firmware_dir() / "runtime", "firmware/runtime")
    for folder in ("rlx", *models):
        places += _folder(bundle / folder, f"bundle/{folder}")
    return places


def _find_app(app: str | Path) -> Place:
    """A C file or a folder of them."""
    if isinstance(app, Path):
        if not app.exists():
            raise ToolError(f"{app}: no such application")
        return Place(app.resolve(), f"app/{app.name}")
    home = firmware_dir() / "app"
    for entry in (home / f"{app}.c", home / app):
        if entry.exists():
            return Place(entry, f"firmware/app/{entry.name}")
    known = ", ".join(sorted({entry.stem for entry in home.iterdir()}))
    raise ToolError(f"unknown application {app}; known: {known}")


def _app_sources(app: Place) -> list[Place]:
    own = _folder(app.path, app.shown_as) if app.path.is_dir() else [app]
    return [*_folder(firmware_dir() / "link", "firmware/link"), *own]


def _folder(folder: Path, shown_as: str) -> list[Place]:
    return [Place(path, f"{shown_as}/{path.name}") for path in sorted(folder.glob("*.c"))]


def _includes(bundle: Path, app: Place, out: Path) -> list[Place]:
    """Not the models' folders: a model named stdint would hide <stdint.h>. Its header is "stdint/stdint.h"."""
    firmware = firmware_dir()
    app_folder = app if app.path.is_dir() else Place(app.path.parent, str(PurePosixPath(app.shown_as).parent))
    return [
        Place(out, "build"),
        Place(firmware / "soc", "firmware/soc"),
        Place(firmware / "link", "firmware/link"),
        app_folder,
        Place(bundle, "bundle"),
        Place(bundle / "rlx", "bundle/rlx"),
    ]


def _link(compiler: Compiler, objects: Sequence[Path], board: Board, elf: Path) -> Path:
    try:
        link(compiler, objects, chip_flags(board.chip), elf.parent / "link.ld", elf)
    except CommandError as error:
        overflows = region_overflows(error)
        if not overflows:
            raise
        raise ToolError(_overflow_message(board, overflows)) from error
    return elf


def _overflow_message(board: Board, overflows: Mapping[str, int]) -> str:
    parts = []
    for name, excess in sorted(overflows.items()):
        size = board.chip.regions[name].bytes
        stack = f", {board.stack_bytes} of them stack" if name == board.placement.data.name else ""
        parts.append(f"it needs {size + excess} bytes of {name}{stack}, and there are {size} ({excess} too many)")
    return f"the image does not fit {board.name}: {'; '.join(parts)}; use a smaller model or a larger board"


def _finish(
    out: Path, elf: Path, bare_elf: Path, board: Board, app: str, models: Sequence[str], compiler: Compiler
) -> Firmware:
    """Writes firmware.bin, and build.json last: a folder without it is half a build."""
    image = image_bytes(elf)
    binary = out / "firmware.bin"
    with replacing(binary) as file:
        file.write(image)
    firmware = Firmware(
        elf=elf,
        binary=binary,
        board=board.name,
        app=app,
        models=tuple(models),
        image_bytes=len(image),
        image_crc32=zlib.crc32(image),
        image_sha256=hashlib.sha256(image).hexdigest(),
        compiler=compiler.version,
        sizes=_sizes(image_sizes(elf), image_sizes(bare_elf)),
    )
    facts = {"schema": SCHEMA, **asdict(firmware), "elf": elf.name, "binary": binary.name}
    with replacing(out / BUILD_FILE) as file:
        file.write((json.dumps(facts, indent=2) + "\n").encode())
    return firmware


def _sizes(full: ImageSizes, bare: ImageSizes) -> FirmwareSizes:
    return FirmwareSizes(
        flash_bytes=bare.flash,
        ram_bytes=bare.ram,
        stack_bytes=full.stack,
        link_flash_bytes=full.flash - bare.flash,
        link_ram_bytes=full.ram - bare.ram,
    )
