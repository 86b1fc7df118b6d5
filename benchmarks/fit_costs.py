"""Fits the cost model to the kernels as they are: `make fit-costs`, or for some of them

python benchmarks/fit_costs.py --core cortex-m4 --kernel rlx_conv_s8 --kernel rlx_dense_s8

Each core's kernels are run on many shapes on an emulated board; code and stack bytes are those of the compiler. The
figures go to rlx_edge/cgen/costs.json, which is read when a plan is made; those that were not asked for stay.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from cost_measure import Measured, build_plans, measure
from cost_static import StaticCost, static_costs
from elftools.elf.elffile import ELFFile
from nnls import nnls

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.costs import FILE, SCHEMA
from rlx_edge.cgen.plan import Plan
from rlx_edge.cgen.target import get_target
from rlx_edge.cgen.variants.table import ALL_KERNELS
from rlx_edge.cgen.work import work_of
from rlx_edge.device.boards import Board, load_board
from rlx_edge.device.buffers import buffer_bytes
from rlx_edge.device.build import build_firmware
from rlx_edge.device.toolchain import COMMON_FLAGS, find_compiler

PLACE = Path(__file__).resolve().parents[1] / "rlx_edge" / "cgen" / FILE
BOARDS = {
    "cortex-m0": "mps2-an385",
    "cortex-m3": "mps2-an385",
    "cortex-m4": "mps2-an386",
    "cortex-m7": "mps2-an500",
    "cortex-m33": "mps2-an505",
    "cortex-m55": "mps3-an547",
}
"""Where each core is measured. Code for an M0 runs on an M3, instruction by instruction."""

CODE_MODELS = ("dense_0", "add_0")
"""Families by whose steps, with two views and with three, the size of a model's own code is fitted."""

SMALL = 300
"""Instructions below which an error counts for less."""


def board_of(core: str) -> Board:
    board = load_board(BOARDS[core])
    return replace(board, chip=replace(board.chip, cpu=core))


def fit(measured: Sequence[Measured], empty: int) -> dict[str, Any]:
    """Base and coefficients of one kernel, and the largest relative error of the calls that they were fitted to."""
    works = [work_of(one.call) or {} for one in measured]
    names = sorted({name for work in works for name in work})
    counts = np.array([[1.0, *(float(work.get(name, 0)) for name in names)] for work in works])
    wanted = np.array([one.instructions - empty for one in measured], float)
    weight = 1.0 / (wanted + SMALL)
    found = nnls(counts * weight[:, None], wanted * weight)
    error = np.abs((counts @ found - wanted) * weight).max()
    per = {name: round(float(value), 3) for name, value in zip(names, found[1:], strict=True)}
    return {"base": round(float(found[0]), 2), "per": per, "error": round(float(error), 4)}


def model_code(plans: Mapping[str, Plan], elf: Path) -> dict[str, int]:
    """Bytes of a model's own code: of run, and by regression of a step and of each view that it passes on."""
    sizes = _function_sizes(elf)
    runs = [sizes[f"{name}.c", f"{name}_run"] for name in plans]
    views, bytes_ = [], []
    for name, plan in plans.items():
        for index, step in enumerate(plan.steps):
            if step.calls:
                views.append(len(step.calls[0].inputs) + 1)
                bytes_.append(sizes[f"{name}.c", f"step_{index:02}"])
    table = np.stack([np.ones(len(views)), np.array(views, float)], axis=1)
    (base, per_view), *_ = np.linalg.lstsq(table, np.array(bytes_, float), rcond=None)
    entry = 4  # of the table of steps
    return {
        "model_bytes": round(float(np.mean(runs))),
        "step_bytes": entry,
        "call_bytes": round(float(base)),
        "view_bytes": round(float(per_view)),
    }


def _function_sizes(elf: Path) -> dict[tuple[str, str], int]:
    """Bytes of functions by (C file, name). Local symbols follow their file's symbol; global ones have none."""
    found, file = {}, ""
    with elf.open("rb") as stream:
        for symbol in ELFFile(stream).get_section_by_name(".symtab").iter_symbols():
            if symbol["st_info"]["type"] == "STT_FILE":
                file = symbol.name
            elif symbol["st_info"]["bind"] == "STB_GLOBAL" and symbol.name.endswith("_run"):
                found[f"{symbol.name.removesuffix('_run')}.c", symbol.name] = int(symbol["st_size"])
            else:
                found[file, symbol.name] = int(symbol["st_size"])
    return found


def firmware_bytes(board: Board, plans: Mapping[str, Plan], core: str) -> tuple[dict[str, int], dict[str, int]]:
    """What a model's own code takes, and what start-up and link add to it."""
    with tempfile.TemporaryDirectory(prefix="rlx-edge-costs-") as folder:
        made = build_plans(plans, get_target(core), board, Path(folder) / "models")
        code = model_code(plans, made.elf.with_name("bare.elf"))
        firmware = added_bytes(board, made.elf.parent / "bundle", Path(folder) / "none")
    return code, firmware


def added_bytes(board: Board, bundle: Path, out: Path) -> dict[str, int]:
    """What start-up and link take: firmware without any model."""
    sizes = build_firmware(bundle, [], board, out).sizes
    return {
        "start_up_flash": sizes.flash_bytes,
        "start_up_ram": sizes.ram_bytes,
        "link_flash": sizes.link_flash_bytes,
        "link_ram": sizes.link_ram_bytes - buffer_bytes(board),
    }


def fit_core(core: str, kernels: Sequence[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of a core, with the kernels asked for (or all) fitted anew."""
    board, target, start = board_of(core), get_target(core), time.monotonic()
    measured, empty, plans = measure(board, target, kernels)
    by_kernel: dict[str, list[Measured]] = {}
    for one in measured:
        by_kernel.setdefault(one.call.kernel.name, []).append(one)
    with tempfile.TemporaryDirectory(prefix="rlx-edge-costs-") as folder:
        wanted = [kernel for kernel in ALL_KERNELS if kernel.name in by_kernel]
        static = static_costs(board.chip, wanted, Path(folder))
    fitted = {name: fit(calls, empty) | _static_facts(static[name]) for name, calls in sorted(by_kernel.items())}
    for name, facts in fitted.items():
        print(f"  {name}: {len(by_kernel[name])} calls, error {facts['error']:.1%}, {facts['code_bytes']} bytes")
    known = {kernel.name for kernel in ALL_KERNELS}
    kept = {name: facts for name, facts in before.get("kernels", {}).items() if name in known and kernels}
    library = before.get("library", {}) | {
        name: size for cost in static.values() for name, size in cost.library.items()
    }
    model = dict(before.get("model", {}))
    firmware = before.get("firmware", {})
    if not kernels:
        code, firmware = firmware_bytes(
            board, {name: plans[name] for name in plans if name.startswith(CODE_MODELS)}, core
        )
        pushed = max(one.stack_bytes - static[one.call.kernel.name].stack_bytes for one in measured)
        model = {"step_instructions": empty, **code, "run_stack": -(-pushed // 8) * 8}
    print(f"{core}: {len(measured)} calls of {len(fitted)} kernels in {time.monotonic() - start:.0f} s", flush=True)
    return {
        "model": model,
        "firmware": firmware,
        "library": dict(sorted(library.items())),
        "kernels": dict(sorted((kept | fitted).items())),
    }


def _static_facts(cost: StaticCost) -> dict[str, Any]:
    return {"code_bytes": cost.code_bytes, "library": sorted(cost.library), "stack_bytes": cost.stack_bytes}


def as_text(table: Mapping[str, Any]) -> str:
    """JSON with a line a kernel, so that a change of one shows as such."""
    text = json.dumps({key: value for key, value in table.items() if key != "cores"}, indent=1)[:-2] + ',\n "cores": {'
    cores = []
    for core, facts in sorted(table["cores"].items()):
        lines = [f'   "{name}": {json.dumps(kernel)}' for name, kernel in facts["kernels"].items()]
        parts = [f'  "{name}": {json.dumps(facts[name])}' for name in ("model", "firmware", "library")]
        kernels = ",\n".join(lines)
        cores.append(f'\n "{core}": {{\n' + ",\n".join([*parts, f'  "kernels": {{\n{kernels}\n  }}']) + "\n }")
    return text + ",".join(cores) + "\n }\n}\n"


def main(
    core: Annotated[list[str] | None, typer.Option(help="cortex-m4, ...; all by default; repeatable")] = None,
    kernel: Annotated[list[str] | None, typer.Option(help="only these kernels; repeatable")] = None,
    firmware: Annotated[bool, typer.Option(help="only what start-up and link take")] = False,
) -> None:
    """Fit the cost model and write it to rlx_edge/cgen/costs.json."""
    table = json.loads(PLACE.read_text()) if PLACE.exists() else {"cores": {}}
    table |= {"schema": SCHEMA, "compiler": find_compiler().version, "flags": _optimization()}
    for name in core or BOARDS:
        print(f"fitting {name} ...", flush=True)
        if firmware:
            with tempfile.TemporaryDirectory(prefix="rlx-edge-costs-") as folder:
                generate({}, Path(folder) / "bundle", get_target(name))
                added = added_bytes(board_of(name), Path(folder) / "bundle", Path(folder) / "none")
                table["cores"][name]["firmware"] = added
        else:
            table["cores"][name] = fit_core(name, kernel or (), table["cores"].get(name, {}))
        PLACE.write_text(as_text(table))
    json.loads(PLACE.read_text())
    print(f"wrote {PLACE}", file=sys.stderr)


def _optimization() -> str:
    return " ".join(flag for flag in COMMON_FLAGS if flag.startswith("-O"))


if __name__ == "__main__":
    typer.run(main)
