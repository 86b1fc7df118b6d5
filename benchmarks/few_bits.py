"""Models with weights of fewer bits beside the same models with 8: instructions, flash and RAM on emulated cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from bench_page import ratio, table
from measure import KEYS, measure_graph
from subjects import SHARED

from rlx_edge import api
from rlx_edge.data import Data
from rlx_edge.ir import Graph
from rlx_edge.quant.recipe import effort
from rlx_edge.quant.widths import PER_CHANNEL, PER_TENSOR, LayerRule, everywhere
from rlx_edge.resources import digits_dir

MIXED = (*everywhere(2), *(LayerRule(kind, 4) for kind in (":first", ":last", ":depthwise")))
WIDTHS: Mapping[str, Sequence[LayerRule]] = {"8": everywhere(8), "4": everywhere(4), "ternary": MIXED}
CORES = ("M0", "M3", "M4", "M55")
WITH_DATA = ("kws", "ic", "mnist_valid")
WITHOUT_DATA = ("ad",)
SAMPLES = 128

HEAD = """Float models quantized with `--weights 8`, `4`, and ternary with the first, the last and the depthwise layers
at 4 bits; `--optimize balanced`. What is saved is in the weights: kernels and start-up stay. Accuracy:
[accuracy](accuracy.md). ad has no data here: its ranges and codes come from noise within the range of its int8 file's
input; as there, each of its layers has one scale (`scales = "tensor"`)."""

Rows = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""model -> core -> width -> figures"""


def names() -> tuple[str, ...]:
    return ("digits", *((*WITH_DATA, *WITHOUT_DATA) if SHARED.is_dir() else ()))


@cache
def calibration(name: str) -> tuple[Graph, Data]:
    """A float model and the first 128 samples with an even index, or random ones."""
    if name == "digits":
        graph = api.load(digits_dir() / "digits.onnx")
        return graph, api.load_data(digits_dir() / "digits_calibration.npz", graph, samples=f"0:{SAMPLES}")
    graph = api.load(SHARED / f"{name}_float.tflite")
    (first,) = graph.inputs
    if name in WITHOUT_DATA:
        quant = api.load(SHARED / f"{name}_int8.tflite").inputs[0].type.quant
        assert quant is not None
        low, high = ((code - quant.zero_point) * quant.scale for code in (-128, 127))
        noise = np.random.default_rng(2026).normal(size=(SAMPLES, *first.type.shape[1:])) / 8 + 0.5
        return graph, Data({first.name: (low + (high - low) * noise.clip(0, 1)).astype(np.float32)})
    with np.load(SHARED.parent / "data" / f"{name.split('_')[0]}.npz") as file:
        values = file["x"][::2][:SAMPLES].astype(np.float32)
    return graph, Data({first.name: values / np.float32(255) if name.startswith("mnist") else values})


@cache
def model(name: str, width: str, method: str | None = None) -> Graph:
    """The float model with weights of that width, rounded by that method; None: as the command does."""
    graph, data = calibration(name)
    scales = PER_TENSOR if name in WITHOUT_DATA else PER_CHANNEL
    rules = tuple(replace(rule, scales=scales, method=method) for rule in WIDTHS[width])
    return api.apply_recipe(graph, data, replace(effort("balanced"), weights=rules)).graph


def measure_widths() -> Rows:
    found: Rows = {}
    for name in names():
        for core in CORES:
            for width in WIDTHS:
                row = measure_graph(model(name, width), name, core, f"{width} bits" if width != "ternary" else width)
                found.setdefault(name, {}).setdefault(core, {})[width] = {key: row[key] for key in KEYS}
    return found


def section(rows: Rows) -> list[str]:
    """The part of the page: a row a model and core, the figures of each width, and ratios to 8 bits."""
    lines = []
    for name, cores in rows.items():
        for core, widths in cores.items():
            base = widths["8"]
            cells = [f"{base['instructions']:,}"]
            for width in list(WIDTHS)[1:]:
                count = widths[width]["instructions"]
                cells.append(f"{count:,} ({ratio(count, base['instructions'])})")
            cells.append(f"{base['flash_bytes']:,}")
            for width in list(WIDTHS)[1:]:
                size = widths[width]["flash_bytes"]
                cells.append(f"{size:,} ({ratio(size, base['flash_bytes'])})")
            cells += [f"{widths[width]['ram_bytes']:,}" for width in WIDTHS]
            lines.append([name, core, *cells])
    head = ["model", "core"]
    head += [f"{what}, {width}" for what in ("instructions", "flash", "RAM") for width in WIDTHS]
    return ["## Weights of fewer bits", "", HEAD, "", *table(head, lines)]
