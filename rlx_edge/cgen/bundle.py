"""The C bundle: one shared folder of kernels, and a folder for each model."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlx_edge.cgen.emit import emit
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TARGETS, TargetConfig
from rlx_edge.errors import EdgeError
from rlx_edge.formats.rlx import load_rlx, save_rlx
from rlx_edge.ir import Graph
from rlx_edge.resources import firmware_dir

KERNELS_HEADER = "rlx_bundle.h"


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
    models: Mapping[str, Graph], out: Path, target: TargetConfig = TARGETS["portable"], with_link: bool = False
) -> tuple[BundledModel, ...]:
    """Write a bundle with these models (C name -> int8 graph) to `out`, replacing a bundle that is there.

    Everything is written beside `out` first and then moved, so that a failure leaves `out` as it was. Raises
    UnsupportedError when the target cannot run a model, and EdgeError when `out` holds anything but a bundle.
    """
    out = out.resolve()
    _check_replaceable(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rlx-edge-", dir=out.parent) as scratch:
        written = Path(scratch) / "bundle"
        plans = {name: make_plan(graph, target) for name, graph in models.items()}
        hashes = _write(plans, written, target, with_link)
        if out.exists():
            out.rename(Path(scratch) / "replaced")
        written.rename(out)
    return tuple(BundledModel(name, out, hashes[name], plan) for name, plan in plans.items())


def _check_replaceable(out: Path) -> None:
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not is_bundle(out)):
        raise EdgeError(f"{out} exists and is not a bundle made by rlx-edge: choose another folder (-o)")


def _write(plans: Mapping[str, Plan], out: Path, target: TargetConfig, with_link: bool) -> dict[str, str]:
    kernels = firmware_dir() / "kernels"
    shutil.copytree(kernels, out / "rlx")
    guard = f"#define RLX_BUNDLE_KERNELS {kernels_id()}"
    (out / "rlx" / KERNELS_HEADER).write_text(f"/* Made by rlx-edge: which kernels these are. */\n{guard}\n")
    if with_link:
        shutil.copytree(firmware_dir() / "link", out / "link")
    hashes = {}
    for name, plan in plans.items():
        emitted = emit(plan, name, target, kernels_id())
        folder = out / name
        folder.mkdir()
        for file, content in emitted.files.items():
            (folder / file).write_text(content)
        save_rlx(plan.graph.with_metadata(target=target.name, hash=emitted.hash), folder / f"{name}.rlx")
        hashes[name] = emitted.hash
    return hashes


@cache
def kernels_id() -> str:
    """Eight hexadecimal digits that tell this version of the kernels from any other."""
    digest = hashlib.sha256()
    for file in sorted((firmware_dir() / "kernels").iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"0x{digest.hexdigest()[:8]}u"


def is_bundle(folder: Path) -> bool:
    return (folder / "rlx" / KERNELS_HEADER).is_file()


def open_bundle(folder: Path) -> tuple[BundledModel, ...]:
    """The models of a bundle on disk. Raises EdgeError when the folder is none, ModelError when a file is damaged."""
    if not is_bundle(folder):
        raise EdgeError(f"{folder} is not a bundle: there is no rlx/{KERNELS_HEADER} in it (run rlx-edge generate)")
    names: Sequence[Path] = sorted(path for path in folder.glob("*/*.rlx") if path.stem == path.parent.name)
    models = []
    for path in names:
        graph = load_rlx(path)
        plan = make_plan(graph, TARGETS[graph.metadata.get("target", "portable")])
        models.append(BundledModel(path.stem, folder.resolve(), graph.metadata.get("hash", ""), plan))
    return tuple(models)
