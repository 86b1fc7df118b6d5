"""The C bundle: one shared folder of kernels, and a folder for each model.

`bundle.json` in it lists the files that were written, with their hashes: what is not in the list belongs to somebody
else and stays, and a file that was changed since is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rlx_edge.cgen.emit import emit
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TARGETS, TargetConfig, get_target
from rlx_edge.errors import EdgeError
from rlx_edge.formats.rlx import load_rlx, rlx_bytes
from rlx_edge.ir import Graph
from rlx_edge.resources import firmware_dir

MANIFEST = "bundle.json"
SCHEMA = "rlx-edge bundle 1"


Check = Callable[[Mapping[str, Plan]], None]
"""Of plans by model name; raises EdgeError when they will not do."""


@dataclass(frozen=True, eq=False)
class BundledModel:
    """A model of a bundle: its C name, the bundle's folder, its hash (32 hexadecimal digits) and its plan."""

    name: str
    bundle: Path
    hash: str
    plan: Plan

    @property
    def sources(self) -> tuple[Path, ...]:
        """The C files that the model needs, kernels first."""
        return (*sorted((self.bundle / "rlx").glob("*.c")), *sorted((self.bundle / self.name).glob("*.c")))


def generate(
    models: Mapping[str, Graph],
    out: Path,
    target: TargetConfig = TARGETS["portable"],
    with_link: bool = False,
    options: Options = DEFAULT,
    check: Check | None = None,
) -> tuple[BundledModel, ...]:
    """Write a bundle with these models (C name -> int8 graph) to the folder `out`; a bundle there is replaced.

    Only files that rlx-edge wrote are replaced or removed; everything is written whole before any of them. `check` sees
    the plans before anything is written, and may raise. Raises UnsupportedError when the target cannot run a model, and
    EdgeError when a budget cannot be met or a file of somebody else is in the way.
    """
    out = out.resolve()
    plans = {name: make_plan(graph, target, options) for name, graph in models.items()}
    if check is not None:
        check(plans)
    files, hashes = _contents(plans, target, with_link)
    before = _manifest(out) if is_bundle(out) else {}
    _check_free(out, files, before)
    new = not out.exists()
    try:
        _replace(out, files, before)
    except OSError as error:
        if new:
            shutil.rmtree(out, ignore_errors=True)
        raise EdgeError(f"{out}: the bundle cannot be written: {error.strerror or error}") from error
    return tuple(BundledModel(name, out, hashes[name], plan) for name, plan in plans.items())


def _replace(out: Path, files: Mapping[str, bytes], before: Mapping[str, str]) -> None:
    """Write all files beside their places, then move them there; files of the bundle before are removed."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rlx-edge-", dir=out) as scratch:
        for name, content in files.items():
            _write(Path(scratch) / name, content)
        (out / MANIFEST).unlink(missing_ok=True)
        for name in before:
            (out / name).unlink(missing_ok=True)
        for name in files:
            (out / name).parent.mkdir(exist_ok=True)
            (Path(scratch) / name).replace(out / name)
    _remove_empty_folders(out, before)
    seal(out, files)


def _check_free(out: Path, files: Mapping[str, bytes], before: Mapping[str, str]) -> None:
    if out.exists() and not out.is_dir():
        raise EdgeError(f"{out} is a file; choose a folder (-o)")
    for name in files:
        foreign = name not in before and (out / name).exists()
        if foreign or ((out / name).parent.exists() and not (out / name).parent.is_dir()):
            raise EdgeError(f"{out / name} is in the way and was not made by rlx-edge: choose another folder (-o)")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def _remove_empty_folders(out: Path, before: Mapping[str, str]) -> None:
    for folder in {(out / name).parent for name in before}:
        if folder != out and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _contents(
    plans: Mapping[str, Plan], target: TargetConfig, with_link: bool
) -> tuple[dict[str, bytes], dict[str, str]]:
    """All files of a bundle by their path in it, and the models' hashes by name."""
    files = {f"rlx/{file.name}": file.read_bytes() for file in _needed_sources(plans)}
    files |= {f"rlx/{name}": text.encode() for name, text in _files_of_users(plans).items()}
    guard = f"/* Made by rlx-edge: which kernels these are. */\n#define RLX_BUNDLE_KERNELS {kernels_id()}\n"
    files["rlx/rlx_bundle.h"] = guard.encode()
    if with_link:
        files |= {f"link/{file.name}": file.read_bytes() for file in _sources("link")}
    hashes = {}
    for name, plan in plans.items():
        emitted = emit(plan, name, target, kernels_id())
        files |= {f"{name}/{file}": content.encode() for file, content in emitted.files.items()}
        files[f"{name}/{name}.rlx"] = rlx_bytes(_stored(plan, emitted.hash))
        hashes[name] = emitted.hash
    return files, hashes


def _stored(plan: Plan, digest: str) -> Graph:
    """The planned graph with all that its plan can be made from again."""
    stored = replace(plan.graph, metadata=plan.options.stored_in(plan.graph.metadata))
    return stored.with_metadata(target=plan.target, hash=digest, plan=plan.digest)


def _needed_sources(plans: Mapping[str, Plan]) -> list[Path]:
    """The C files of the kernels that the plans call, and all headers that these and the models include."""
    folder = firmware_dir() / "kernels"
    texts = _files_of_users(plans).values()
    included = {name for text in texts for name in _INCLUDE.findall(text) if (folder / name).is_file()}
    ours = (kernel.source for plan in plans.values() for kernel in plan.kernels if not kernel.files)
    names = {"rlx_crc32.c", *_MODEL_HEADERS, *included, *ours}
    found: set[str] = set()
    while names - found:
        name = min(names - found)
        found.add(name)
        names |= set(_INCLUDE.findall((folder / name).read_text()))
    return [folder / name for name in sorted(found)]


def _files_of_users(plans: Mapping[str, Plan]) -> dict[str, str]:
    """The files of custom kernels. Raises EdgeError where two kernels have files of one name."""
    found: dict[str, str] = {}
    for name, text in (file for plan in plans.values() for kernel in plan.kernels for file in kernel.files):
        if found.setdefault(name, text) != text:
            raise EdgeError(f"two custom kernels have a file {name}: give one of the functions another name")
    return found


_MODEL_HEADERS = ("rlx.h", "rlx_crc32.h", "rlx_float.h", "rlx_kernels.h", "rlx_real.h", "rlx_requant.h")
_INCLUDE = re.compile(r'^#include "(\w+\.h)"', re.M)


def _sources(folder: str) -> list[Path]:
    return sorted(file for file in (firmware_dir() / folder).iterdir() if file.suffix in (".c", ".h"))


@cache
def kernels_id() -> str:
    """Eight hexadecimal digits that tell this version of the kernels from any other."""
    digest = hashlib.sha256()
    for file in _sources("kernels"):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"0x{digest.hexdigest()[:8]}u"


def seal(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the list of the files that make up the bundle, with their hashes; done last, it makes the bundle whole."""
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    (folder / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "files": listed}, indent=1) + "\n")


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _manifest(folder: Path) -> dict[str, str]:
    """The bundle's files and their hashes. Raises EdgeError for a list that is damaged, or that leaves the folder."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in listed["files"].items()}
        if listed["schema"] != SCHEMA or any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
            raise ValueError("not a list that this version makes")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EdgeError(
            f"{folder / MANIFEST} cannot be read ({error}): generate the bundle into an empty folder"
        ) from error
    return files


def bundle_files(folder: Path) -> tuple[str, ...]:
    """The files of a bundle by their path in it, its list among them. Raises EdgeError for a damaged list."""
    return (MANIFEST, *_manifest(folder))


def open_bundle(folder: Path) -> tuple[BundledModel, ...]:
    """The models of a bundle on disk. Raises EdgeError when the folder is none, or a file was changed since."""
    if not is_bundle(folder):
        raise EdgeError(f"{folder} is not a bundle: there is no {MANIFEST} in it (run rlx-edge generate)")
    files = _manifest(folder)
    changed = [name for name, digest in files.items() if _digest(folder / name) != digest]
    if changed:
        raise EdgeError(f"{folder}: changed since it was generated: {', '.join(changed)}; generate it again")
    models = []
    for name in files:
        if Path(name).suffix == ".rlx":
            graph = load_rlx(folder / name)
            target = get_target(graph.metadata.get("target", "portable"))
            plan = make_plan(graph, target, Options.of_metadata(graph.metadata))
            if graph.metadata.get("plan") != plan.digest:
                raise EdgeError(f"{folder}: was generated by another version of rlx-edge; generate it again")
            models.append(BundledModel(Path(name).stem, folder.resolve(), graph.metadata.get("hash", ""), plan))
    return tuple(models)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
