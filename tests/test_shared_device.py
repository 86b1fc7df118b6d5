"""The models of ../shared on emulated boards, over the pty: device = host C = reference, every byte."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import api
from rlx_edge.cgen.options import DEFAULT, Optimize, Options
from rlx_edge.data import Data, load_data
from rlx_edge.device.boards import load_board
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph

SHARED = Path(__file__).resolve().parents[2] / "shared"
COUNT = 8 if os.environ.get("RLX_EDGE_TESTS") == "long" else 3
PIXELS = {"ic": "scale=1", "mnist_valid": "scale=1/255", "mnist_dw": "scale=1/255", "mnist_resnet": "scale=1/255"}
SMALL = ("kws", "hello_world", "mnist_valid", "mnist_dw", "mnist_resnet")

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")


@dataclass(frozen=True)
class Image:
    """Models that go into one firmware image together."""

    board: str
    models: tuple[str, ...]
    options: Options = DEFAULT

    def __str__(self) -> str:
        budget = "" if self.options.ram_budget is None else "-smallest"
        return f"{self.board}-{self.options.optimize.value}{budget}-{len(self.models)}"


PUBLIC = ("kws", "ic", "vww", "ad")
SPEED, SIZE, SMALLEST = Options(optimize=Optimize.SPEED), Options(optimize=Optimize.SIZE), Options(ram_budget=0)
BIG_BOARDS = ("mps2-an385-m0", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505")

IMAGES = (
    Image("mps2-an386", (*SMALL, "ic", "vww", "ad")),
    Image("mps2-an385", SMALL),
    Image("netduinoplus2", SMALL),
    Image("mps3-an547", (*SMALL, "vww")),
    Image("mps3-an547", ("ic", "ad")),
    Image("microbit", ("hello_world",)),
    Image("microbit", ("kws",)),  # 16 KB of RAM, link and stack included
    Image("mps2-an385-m0", ("kws", "ad")),
    Image("mps2-an386", ("kws",), SPEED),
    Image("mps2-an386", ("kws",), SIZE),
    Image("mps2-an386", ("kws",), SMALLEST),
)
ONLY_LONG = ("netduinoplus2",)
"""A second board with a Cortex-M4."""
ALL_MODES = (
    *(Image(board, (name,), options) for board in BIG_BOARDS for options in (SPEED, SIZE, SMALLEST) for name in PUBLIC),
    *(replace(image, options=options) for image in IMAGES if image.options == DEFAULT for options in (SPEED, SIZE)),
)


def shared_model(name: str) -> Graph:
    return load(SHARED / "models" / f"{name}_int8.tflite")


def shared_data(name: str, graph: Graph) -> Data:
    """Real samples where there are some, else random ones."""
    file = SHARED / "data" / f"{name.split('_')[0]}.npz"
    if file.exists():
        return load_data(file, graph, samples=f"0:{COUNT}", preprocess=PIXELS.get(name))
    rng = np.random.default_rng(8)
    (x,) = graph.inputs
    return Data({x.name: rng.integers(-128, 128, (COUNT, *x.type.shape)).astype(np.int8)})


@pytest.mark.parametrize(
    "image", [pytest.param(i, marks=pytest.mark.long if i.board in ONLY_LONG else ()) for i in IMAGES], ids=str
)
def test_device_equals_host_and_reference(image: Image, tmp_path: Path) -> None:
    check_parity(image, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("image", ALL_MODES, ids=lambda image: f"{image}-{image.models[0]}")
def test_all_modes_on_all_cores(image: Image, tmp_path: Path) -> None:
    check_parity(image, tmp_path)


def check_parity(image: Image, tmp_path: Path) -> None:
    graphs = {name: shared_model(name) for name in image.models}
    api.build(graphs, load_board(image.board), tmp_path, options=image.options)
    for name, graph in graphs.items():
        result = api.parity(tmp_path, shared_data(name, graph), model=name, emulate=True)
        output_bytes = sum(node.type.bytes for node in graph.output_nodes)
        assert (result.inputs, result.differing_bytes) == (COUNT, 0), f"{name}: {result.first_parted}"
        assert result.compared_bytes == 2 * COUNT * output_bytes


def test_every_tensor_of_kws(tmp_path: Path) -> None:
    graph = shared_model("kws")
    api.build({"kws": graph}, load_board("mps2-an386"), tmp_path)
    result = api.parity(tmp_path, shared_data("kws", graph), layers=True)
    computed = sum(node.type.bytes for node in graph.nodes if node.inputs)
    assert result.exact
    assert result.compared_bytes >= 2 * COUNT * computed
