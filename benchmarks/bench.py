"""Instructions, flash and RAM of the MLPerf Tiny models on an emulated Cortex-M4, beside TensorFlow Lite Micro's.

Run by `make bench`. Needs the models of ../shared. Prints the table and writes it to docs/benchmarks.md.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from rlx_edge import api
from rlx_edge.device.profile import Profile

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"
PAGE = ROOT / "docs" / "benchmarks.md"
BOARD = "mps2-an386"
NAMES = ("kws", "ic", "vww", "ad")

HEAD = f"""# Benchmarks

Written by `make bench`; do not edit. The int8 models of MLPerf Tiny, one inference on {BOARD} (Cortex-M4) in QEMU,
which counts instructions: not cycles and not time. Flash and RAM are those of model, kernels and start-up, without
the link and without the stack. The kernels are the portable C ones, the same on every core.

TFLM: TensorFlow Lite Micro on the same emulator (`benchmarks/baseline.toml`), with CMSIS-NN, and with its reference
kernels. Below 1 is better than TFLM.
"""


def measure(name: str) -> Profile:
    """Build and profile one model in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="rlx-edge-bench-") as folder:
        graph = api.load(MODELS / f"{name}_int8.tflite")
        api.build({name: graph}, api.load_board(BOARD), Path(folder))
        return api.profile(Path(folder))


def summary(profiles: dict[str, Profile], baseline: dict[str, Any]) -> list[str]:
    """The table of whole models, as Markdown lines."""
    cmsis, reference = baseline["tflm_cmsis_nn"], baseline["tflm_reference"]
    lines = [
        "| model | instructions | to TFLM reference | to TFLM + CMSIS-NN | flash | to TFLM | RAM | to TFLM | stack |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, made in profiles.items():
        cells = [
            f"{made.instructions:,}",
            f"{made.instructions / reference[name]['instructions']:.2f}",
            f"{made.instructions / cmsis[name]['instructions']:.2f}",
            f"{made.flash_bytes:,}",
            f"{made.flash_bytes / cmsis[name]['flash']:.2f}",
            f"{made.ram_bytes:,}",
            f"{made.ram_bytes / cmsis[name]['ram']:.2f}",
            f"{made.stack_bytes:,}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def kinds(profiles: dict[str, Profile]) -> list[str]:
    """Instructions per MAC by kind of op, as Markdown lines."""
    lines = ["| model | op | MACs | instructions | per MAC |", "|---|---|---|---|---|"]
    for name, made in profiles.items():
        for op in dict.fromkeys(layer.op for layer in made.layers):
            layers = [layer for layer in made.layers if layer.op == op]
            macs, count = sum(layer.macs for layer in layers), sum(layer.instructions for layer in layers)
            lines.append(f"| {name} | {op} | {macs:,} | {count:,} | {f'{count / macs:.2f}' if macs else ''} |")
    return lines


def main() -> int:
    if not MODELS.is_dir():
        print("make bench needs the public models in ../shared/models", file=sys.stderr)
        return 2
    baseline = tomllib.loads((ROOT / "benchmarks" / "baseline.toml").read_text())
    profiles = {}
    for name in NAMES:
        print(f"measuring {name} ...", file=sys.stderr)
        profiles[name] = measure(name)
    text = "\n".join([HEAD, *summary(profiles, baseline), "", "## By kind of op", "", *kinds(profiles), ""])
    PAGE.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
