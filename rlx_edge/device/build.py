"""From a C bundle to the firmware of a board."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from rlx_edge.device.boards import Board
from rlx_edge.device.linker import linker_script
from rlx_edge.device.sizes import ImageSizes, image_bytes, image_sizes
from rlx_edge.device.sources import bare_main, board_header, model_table
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
from rlx_edge.resources import firmware_dir

SCHEMA = "rlx-edge build 1"
BUILD_FILE = "build.json"
SMALL_RAM_BYTES = 16 * 1024


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
    """A finished build. `image_crc32` is over the bytes in flash, which the device can check for itself."""

    elf: Path
    binary: Path
    board: str
    app: str
    models: tuple[str, ...]
    image_bytes: int
    image_crc32: int
    image_sha256: str
    sizes: FirmwareSizes


def build_firmware(
    bundle: Path,
    models: Sequence[str],
    board: Board,
    out: Path,
    *,
    app: str | Path = "parity",
    defines: Mapping[str, str] | None = None,
) -> Firmware:
    """Builds the image that runs `models` of `bundle` on `board`, into the folder `out`.

    `app` names an application of firmware/app/, or is a C file or a folder of them. `defines` are macros for all
    files. The folder gets firmware.elf, firmware.bin and firmware.map, the same with the link left out (bare.elf,
    bare.map), every file that was generated on the way, and at last build.json. Equal inputs give equal bytes.

    Raises `ToolError` when the compiler is missing or refuses, when a bundle lacks a model, and when the image does
    not fit the board.
    """
    bundle, out = bundle.resolve(), out.resolve()
    _check_bundle(bundle, models)
    compiler = find_compiler()
    _prepare(out, board, models)

    application = _find_app(app)
    common, own = _sources(bundle, models, board), _app_sources(application)
    macros = {"RLX_LINK_MAX_PAYLOAD": str(_max_payload(board)), **(defines or {})}
    flags = [*COMMON_FLAGS, *chip_flags(board.chip), *(f"-D{key}={text}" for key, text in macros.items())]
    table, bare = Place(out / "rlx_app_models.c", "rlx_app_models.c"), Place(out / "bare_main.c", "bare_main.c")
    places = [*common, *own, table, bare]
    objects = dict(
        zip(places, compile_units(compiler, places, flags, _includes(bundle, models, application, out)), strict=True)
    )

    elf = _link(compiler, [objects[p] for p in (*common, *own, table)], board, out / "firmware.elf")
    bare_elf = _link(compiler, [objects[p] for p in (*common, bare)], board, out / "bare.elf")
    return _finish(out, elf, bare_elf, board, application.path.stem, models, compiler)


def load_firmware(out: Path) -> Firmware:
    """The finished build in the folder `out`. Raises `ToolError` when there is none, or only half of one."""
    try:
        facts = json.loads((out / BUILD_FILE).read_text(encoding="utf-8"))
        if facts.get("schema") != SCHEMA:
            raise ToolError(f"{out}: was built by another version of rlx-edge ({facts.get('schema')}); build it again")
        firmware = Firmware(
            elf=out / facts["elf"],
            binary=out / facts["binary"],
            board=facts["board"],
            app=facts["app"],
            models=tuple(facts["models"]),
            image_bytes=facts["image_bytes"],
            image_crc32=facts["image_crc32"],
            image_sha256=facts["image_sha256"],
            sizes=FirmwareSizes(**facts["sizes"]),
        )
        image = firmware.binary.read_bytes()
    except FileNotFoundError as error:
        raise ToolError(
            f"{out}: is not a finished build ({Path(error.filename).name} is missing); build it again"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"{out}: {BUILD_FILE} cannot be read ({error}); build it again") from error
    if hashlib.sha256(image).hexdigest() != firmware.image_sha256:
        raise ToolError(f"{out}: {firmware.binary.name} is not the file that was built; build it again")
    return firmware


def _max_payload(board: Board) -> int:
    """The link's payload: it has two buffers of that size, which must leave room for a model on small chips."""
    return 1024 if board.placement.data.bytes > SMALL_RAM_BYTES else 256


def _check_bundle(bundle: Path, models: Sequence[str]) -> None:
    for name in models:
        if not (bundle / name / f"{name}.h").is_file():
            raise ToolError(f"{bundle}: has no model {name} ({name}/{name}.h is missing); generate it first")
    if not (bundle / "rlx" / "rlx.h").is_file():
        raise ToolError(f"{bundle}: is not a bundle (rlx/rlx.h is missing); generate it first")


def _prepare(out: Path, board: Board, models: Sequence[str]) -> None:
    """Makes the folder, no longer a finished build, and the sources that are generated."""
    files = {
        "rlx_board.h": board_header(board),
        "rlx_app_models.c": model_table(models),
        "bare_main.c": bare_main(models),
        "link.ld": linker_script(board),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / BUILD_FILE).unlink(missing_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ToolError(f"{out}: cannot be written: {error.strerror}; choose another folder") from error


def _sources(bundle: Path, models: Sequence[str], board: Board) -> list[Place]:
    """What every image has: start-up and drivers of the board, the kernels, the models."""
    soc, chip = firmware_dir() / "soc", board.chip
    parts = ["startup", "boot", "fault", "stack", "idle", "exit"]
    parts += [f"uart_{board.uart.driver}", f"counter_{chip.counter}", f"reset_cause_{chip.family}"]
    places = [Place(soc / f"{part}.c", f"firmware/soc/{part}.c") for part in parts]
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


def _includes(bundle: Path, models: Sequence[str], app: Place, out: Path) -> list[Place]:
    firmware = firmware_dir()
    app_folder = app if app.path.is_dir() else Place(app.path.parent, str(PurePosixPath(app.shown_as).parent))
    return [
        Place(out, "build"),
        Place(firmware / "soc", "firmware/soc"),
        Place(firmware / "link", "firmware/link"),
        app_folder,
        *(Place(bundle / name, f"bundle/{name}") for name in ("rlx", *models)),
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
    binary.write_bytes(image)
    firmware = Firmware(
        elf=elf,
        binary=binary,
        board=board.name,
        app=app,
        models=tuple(models),
        image_bytes=len(image),
        image_crc32=zlib.crc32(image),
        image_sha256=hashlib.sha256(image).hexdigest(),
        sizes=_sizes(image_sizes(elf), image_sizes(bare_elf)),
    )
    facts = {"schema": SCHEMA, **asdict(firmware), "elf": elf.name, "binary": binary.name, "compiler": compiler.version}
    scratch = out / f"{BUILD_FILE}.{os.getpid()}"
    scratch.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    scratch.replace(out / BUILD_FILE)
    return firmware


def _sizes(full: ImageSizes, bare: ImageSizes) -> FirmwareSizes:
    return FirmwareSizes(
        flash_bytes=bare.flash,
        ram_bytes=bare.ram,
        stack_bytes=full.stack,
        link_flash_bytes=full.flash - bare.flash,
        link_ram_bytes=full.ram - bare.ram,
    )
