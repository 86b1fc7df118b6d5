"""Instructions, RAM and flash of models on emulated cores, beside TensorFlow Lite Micro's.

`make bench` measures everything, writes docs/benchmarks.md and keeps the figures in benchmarks/results.json.
`make bench-check` measures again and fails when any figure is worse than the kept one by more than 1%.
The MLPerf Tiny models come from ../shared; without them only the project's own example is measured.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import few_bits
from bench_page import page
from measure import KEYS, measure, measure_growth, modes_of
from subjects import CORES, PUBLIC, ROOT, names

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results.json"
BASELINE = ROOT / "benchmarks" / "baseline.toml"
TOLERANCE = 0.01
GROWTH_KINDS, GROWTH_CORES = ("conv", "depthwise"), ("M0", "M4", "M55")

Results = dict[str, Any]
"""{"models": {model: {core: {mode: row}}}, "widths": few_bits.Rows,
"growth": {kind: {core: {label: instructions per MAC}}}}"""


def measure_all() -> Results:
    """`balanced` on every core; the other modes on the M4."""
    models: Results = {}
    for name in names():
        models[name] = {core: {"balanced": measure(name, core)} for core in CORES}
        for mode in modes_of(name):
            models[name]["M4"].setdefault(mode, None)
            models[name]["M4"][mode] = models[name]["M4"][mode] or measure(name, "M4", mode)
    growth = {kind: {core: measure_growth(kind, core) for core in GROWTH_CORES} for kind in GROWTH_KINDS}
    return {"models": models, "widths": few_bits.measure_widths(), "growth": growth}


def worse(kept: Results, now: Results) -> list[str]:
    """A line for each figure that is more than 1% above the kept one. Predictions are no figures of merit."""
    found = []
    for name, cores in now["models"].items():
        for core, modes in cores.items():
            for mode, row in modes.items():
                before = kept["models"].get(name, {}).get(core, {}).get(mode)
                found += [f"{name} on {core}, {mode}: {line}" for line in risen(before, row)]
    for name, cores in now["widths"].items():
        for core, widths in cores.items():
            for width, row in widths.items():
                before = kept.get("widths", {}).get(name, {}).get(core, {}).get(width)
                found += [f"{name} on {core}, {width}: {line}" for line in risen(before, row)]
    for kind, cores in now["growth"].items():
        for core, labels in cores.items():
            for label, value in labels.items():
                before = kept["growth"].get(kind, {}).get(core, {}).get(label)
                if before is not None and value > before * (1 + TOLERANCE):
                    found.append(f"{kind}, {label}, on {core}: {before} -> {value} instructions per MAC")
    return found


def risen(before: dict[str, Any] | None, row: dict[str, Any]) -> list[str]:
    """The figures of a row that are more than 1% above the kept ones."""
    keys = [key for key in KEYS if key != "predicted_instructions"]
    return [
        f"{key} {before[key]:,} -> {row[key]:,}" for key in keys if before and row[key] > before[key] * (1 + TOLERANCE)
    ]


def check(kept_file: Path = RESULTS) -> int:
    if not kept_file.is_file():
        print(f"{kept_file} is not there: make bench writes it", file=sys.stderr)
        return 2
    found = worse(json.loads(kept_file.read_text()), measure_all())
    print("\n".join(found) if found else "no figure is worse than the kept one by more than 1%")
    return 1 if found else 0


def main() -> int:
    if "--check" in sys.argv[1:]:
        return check()
    missing = [name for name in PUBLIC if name not in names()]
    if missing:
        print(f"../shared is not here: {', '.join(missing)} are not measured, and no file is written", file=sys.stderr)
    results = measure_all()
    text = page(results, tomllib.loads(BASELINE.read_text()), few_bits.section(results["widths"]))
    if not missing:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
