"""What the benchmarks measure: models, cores and layers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from layer import conv_graph

from rlx_edge import api
from rlx_edge.ir import Graph
from rlx_edge.resources import digits_dir

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "models"

CORES: Mapping[str, str] = {
    "M0": "mps2-an385-m0",
    "M3": "mps2-an385",
    "M4": "mps2-an386",
    "M7": "mps2-an500",
    "M33": "mps2-an505",
    "M55": "mps3-an547",
}
"""Core -> emulated board."""

PUBLIC = ("kws", "ic", "vww", "ad")
"""The int8 models of MLPerf Tiny, in ../shared."""


def names() -> tuple[str, ...]:
    """The project's own example, and the public models where ../shared is there."""
    return ("digits", *(PUBLIC if SHARED.is_dir() else ()))


@cache
def model(name: str) -> Graph:
    if name in PUBLIC:
        return api.load(SHARED / f"{name}_int8.tflite")
    graph = api.load(digits_dir() / "digits.onnx")
    data = api.load_data(digits_dir() / "digits_calibration.npz", graph)
    return api.quantize(graph, api.calibrate(graph, data))


GROWTH = (1, 2, 4, 8)


def growth(kind: str) -> dict[str, Graph]:
    """A small layer, and the same with more channels and with more positions."""
    depthwise = kind == "depthwise"
    kernel = (3, 3) if depthwise else (1, 1)
    grown = {}
    for factor in GROWTH:
        channels = 16 * factor
        grown[f"{factor}x channels"] = conv_graph((8, 8, channels), channels, kernel, 1, depthwise)
    for factor in GROWTH:
        grown[f"{factor}x positions"] = conv_graph((8, 8 * factor, 16), 16, kernel, 1, depthwise)
    return grown
