"""One figure after another: a model on a core, built and profiled in the emulator."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layer import measure as measure_layer
from subjects import CORES, growth, model

from rlx_edge import api
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.ir import Graph

Row = dict[str, Any]
"""Figures of a model on a core: instructions, predicted_instructions, flash_bytes, ram_bytes, stack_bytes, layers."""

KEYS = ("instructions", "predicted_instructions", "flash_bytes", "ram_bytes", "stack_bytes")

MODES: Mapping[str, Options] = {
    "balanced": Options(),
    "speed": Options(optimize="speed"),
    "size": Options(optimize="size"),
    "smallest RAM": Options(ram_budget=0),
}
LESS_RAM: Mapping[str, int] = {"digits": 2_400, "kws": 6_900, "ic": 18_400, "vww": 29_970}
"""Arenas that stages of fast kernels can keep to, for the mode `less RAM`; ad has nothing to run row by row."""


def modes_of(name: str) -> Mapping[str, Options]:
    """What is measured of a model on the M4."""
    return MODES | ({"less RAM": Options(ram_budget=LESS_RAM[name])} if name in LESS_RAM else {})


def measure(name: str, core: str, mode: str = "balanced") -> Row:
    """Build and profile one of the models."""
    return measure_graph(model(name), name, core, mode, modes_of(name)[mode])


def measure_graph(graph: Graph, name: str, core: str, label: str, options: Options = DEFAULT) -> Row:
    """Build and profile a graph in a folder that is thrown away."""
    print(f"measuring {name} on {core}, {label} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="rlx-edge-bench-") as folder:
        api.build({name: graph}, api.load_board(CORES[core]), Path(folder), options=options)
        made = dataclasses.asdict(api.profile(Path(folder)))
    layers = [{key: layer[key] for key in ("name", "op", "macs", "instructions")} for layer in made["layers"]]
    return {key: made[key] for key in KEYS} | {"layers": layers}


def measure_growth(kind: str, core: str) -> dict[str, float]:
    """Instructions per MAC of a layer as it grows."""
    found = {}
    for label, graph in growth(kind).items():
        print(f"measuring {kind}, {label}, on {core} ...", file=sys.stderr, flush=True)
        macs, instructions = measure_layer(graph, CORES[core])
        found[label] = round(instructions / macs, 3)
    return found
