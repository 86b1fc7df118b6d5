"""Models of ../shared with weights of 4 bits and fewer on emulated boards: device = host C = reference, every byte."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import api
from rlx_edge.data import Data
from rlx_edge.device.boards import load_board
from rlx_edge.ir import DType, Graph
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.quant.widths import NEAREST
from rlx_edge.reference.fixedpoint import quantize_f32

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import few_bits  # noqa: E402

pytestmark = pytest.mark.skipif(not few_bits.SHARED.is_dir(), reason="../shared with the public models is not here")

IMAGES = {
    "mps2-an386": (("kws", "4"), ("ic", "4")),
    "mps3-an547": (("kws", "4"), ("ic", "4")),
    "microbit": (("kws", "4"),),
    "mps2-an385-m0": (("kws", "ternary"), ("mnist_valid", "4"), ("mnist_valid", "ternary")),
    "mps2-an385": (("kws", "4"), ("kws", "ternary"), ("mnist_valid", "4"), ("mnist_valid", "ternary")),
}
"""Board -> models and widths, which go into one image."""

ONLY_LONG = ("microbit",)
BOARDS = [pytest.param(name, marks=pytest.mark.long) if name in ONLY_LONG else name for name in IMAGES]

FLASH = {("kws", "4"): 30_000, ("ic", "4"): 58_000, ("ad", "4"): 150_000}
"""Most bytes on the Cortex-M4: model, kernels and start-up."""

LONG = os.environ.get("RLX_EDGE_TESTS") == "long"
SAMPLES = 4 if LONG else 2


def few_bits_model(name: str, width: str) -> Graph:
    """To nearest but in long tests: which codes weights get changes no kernel, and better ones take a while."""
    return few_bits.model(name, width, None if LONG else NEAREST)


def held_out(name: str, width: str, count: int) -> Data:
    """Samples that the calibration did not see, as codes of the int8 model's input."""
    with np.load(few_bits.SHARED.parent / "data" / f"{name.split('_')[0]}.npz") as file:
        values = file["x"][1 : 2 * count : 2].astype(np.float32)
    values = values / np.float32(255) if name.startswith("mnist") else values
    (first,) = few_bits_model(name, width).inputs
    assert first.type.quant is not None
    return Data({first.name: quantize_f32(values, first.type.quant)})


@pytest.mark.parametrize("board", BOARDS)
def test_device_equals_host_and_reference(board: str, tmp_path: Path) -> None:
    graphs = {f"{name}_{width}": few_bits_model(name, width) for name, width in IMAGES[board]}
    api.build(graphs, load_board(board), tmp_path)
    for label, graph in graphs.items():
        samples = held_out(*label.rsplit("_", 1), SAMPLES)
        result = api.parity(tmp_path, samples, model=label, emulate=True, layers=True)
        computed = sum(node.type.bytes for node in graph.nodes if node.inputs and node.type.dtype is DType.I8)
        assert (result.inputs, result.differing_bytes) == (SAMPLES, 0), f"{label}: {result.first_parted}"
        assert result.compared_bytes >= 2 * SAMPLES * computed // 2


@pytest.mark.parametrize(("name", "width"), FLASH)
def test_flash(name: str, width: str, tmp_path: Path) -> None:
    graph = few_bits_model(name, width)
    for node in graph.nodes:
        if isinstance(node.op, QConv2d | QMatMul):
            assert graph.operand_types(node)[1].dtype is DType.I4
    api.build({name: graph}, load_board("mps2-an386"), tmp_path)
    assert api.profile(tmp_path).flash_bytes <= FLASH[name, width]
