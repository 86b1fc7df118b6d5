"""The figures of `make bench` as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from measure import LESS_RAM

HEAD = """# Benchmarks

Written by `make bench`; do not edit. One inference of int8 models on boards emulated by QEMU, which counts
instructions, never cycles or time. Flash and RAM are those of model, kernels and start-up, without the link; the stack
is apart, as measured. `digits` is the project's own example (`make demo`), the others are the models of MLPerf Tiny.

Ratios are to TensorFlow Lite Micro with CMSIS-NN, counted on the same emulator (`benchmarks/baseline.toml`): below 1 is
better. Predicted: what the cost model said before anything ran ([speed](speed.md)).

TFLM: TensorFlow Lite Micro 90b983c2 with CMSIS-NN 4ab83cc3, gcc -O3. `M0` is Armv6-M code, counted on the board
`mps2-an385-m0`. vww gains most because half of its MACs are for channels on which no output depends, which are removed;
a model without such channels gains as kws and ic do.
"""

Results = Mapping[str, Any]


def page(results: Results, baseline: Mapping[str, Any], widths: Sequence[str]) -> str:
    """The whole page. results: as benchmarks/bench.py says; baseline: benchmarks/baseline.toml; widths: a section."""
    models = results["models"]
    parts = [HEAD, *instructions(models, baseline), *sizes(models, baseline), *modes(models, baseline)]
    parts += [*widths, *growth(results["growth"])]
    for name, cores in models.items():
        parts += layers(name, cores)
    return "\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def ratio(value: int, base: int | None) -> str:
    return f"{value / base:.2f}" if base else ""


def instructions(models: Results, baseline: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, cores in models.items():
        for core, found in cores.items():
            row = found["balanced"]
            counted, predicted = row["instructions"], row["predicted_instructions"]
            error = f"{100 * (predicted / counted - 1):+.1f}%"
            base = baseline["instructions"].get(core, {}).get(name)
            rows.append([name, core, f"{counted:,}", ratio(counted, base), f"{predicted:,}", error])
    head = ["model", "core", "instructions", "to TFLM + CMSIS-NN", "predicted", "error"]
    return ["## Instructions, `--optimize balanced`", "", *table(head, rows)]


def sizes(models: Results, baseline: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, cores in models.items():
        for core, found in cores.items():
            row = found["balanced"]
            flash, ram = (baseline[key].get(core, {}).get(name) for key in ("flash", "ram"))
            cells = [f"{row['flash_bytes']:,}", ratio(row["flash_bytes"], flash)]
            cells += [f"{row['ram_bytes']:,}", ratio(row["ram_bytes"], ram), f"{row['stack_bytes']:,}"]
            rows.append([name, core, *cells])
    head = ["model", "core", "flash", "to TFLM", "RAM", "to TFLM", "stack"]
    return ["## Bytes, the same images", "", *table(head, rows)]


def modes(models: Results, baseline: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, cores in models.items():
        for mode, row in cores["M4"].items():
            base = baseline["instructions"]["M4"].get(name)
            cells = [f"{row['instructions']:,}", ratio(row["instructions"], base)]
            rows.append([name, mode, *cells, f"{row['flash_bytes']:,}", f"{row['ram_bytes']:,}"])
    head = ["model", "mode", "instructions", "to TFLM + CMSIS-NN", "flash", "RAM"]
    title = "## What else the generator makes of them, on the M4"
    budgets = ", ".join(f"{budget:,} ({name})" for name, budget in LESS_RAM.items())
    text = (
        "`speed` and `size` are `--optimize`. With a `--ram-budget` layers run row by row: smallest RAM is that of 0,\n"
        f"where scratch memory of fast kernels has no room; less RAM that of {budgets}."
    )
    return [title, "", text, "", *table(head, rows)]


def growth(kinds: Results) -> list[str]:
    lines = ["## As layers grow", "", "Instructions per MAC, everything included; 1x is 8x8 pixels of 16 channels.", ""]
    for kind, cores in kinds.items():
        title = {"conv": "1x1 convolution", "depthwise": "3x3 depthwise convolution"}[kind]
        labels = list(next(iter(cores.values())))
        rows = [[label, *(f"{found[label]:.2f}" for found in cores.values())] for label in labels]
        lines += [f"### {title}", "", *table(["", *cores], rows)]
    return lines


def layers(name: str, cores: Results) -> list[str]:
    """A row a layer: its MACs, and its instructions on each core."""
    first = next(iter(cores.values()))["balanced"]["layers"]
    rows = []
    for index, layer in enumerate(first):
        counts = []
        for found in cores.values():
            own = found["balanced"]["layers"]
            counts.append(f"{own[index]['instructions']:,}" if len(own) == len(first) else "")
        rows.append(
            [layer["name"].replace("|", "/"), layer["op"], f"{layer['macs']:,}" if layer["macs"] else "", *counts]
        )
    return [f"## Layers of {name}", "", *table(["layer", "op", "MACs", *cores], rows)]
