"""Exported files go through Ethos-U's compiler. Its output runs on hardware only, so nothing is compared here.

`vela` beside this Python or on the PATH, or the one that RLX_EDGE_VELA names (`pip install ethos-u-vela`); without
it these are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models import float_edges_model, random_model, tiny_model

import rlx_edge as rlx
from rlx_edge.formats.export_tflite import save_tflite
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import Graph

BESIDE = Path(sys.executable).with_name("vela")
VELA = os.environ.get("RLX_EDGE_VELA") or (str(BESIDE) if BESIDE.exists() else shutil.which("vela"))
SHARED = Path(__file__).resolve().parents[2] / "shared"
DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"

pytestmark = pytest.mark.skipif(VELA is None, reason="no vela: pip install ethos-u-vela, or set RLX_EDGE_VELA")


def operators(graph: Graph, folder: Path) -> dict[str, int]:
    """How many operators vela places on the NPU and on the CPU for an Ethos-U55 with 128 MACs a cycle."""
    assert VELA is not None
    save_tflite(graph, folder / "model.tflite")
    command = [VELA, "--accelerator-config", "ethos-u55-128", "--output-dir", str(folder), str(folder / "model.tflite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "model_vela.tflite").exists()
    return {unit: int(count) for unit, count in re.findall(r"(CPU|NPU) operators = (\d+)", done.stdout)}


@pytest.mark.parametrize("seed", range(6))
def test_random_models_are_accepted(seed: int, tmp_path: Path) -> None:
    assert operators(random_model(seed), tmp_path)["NPU"] > 0


def test_a_whole_network_is_placed_on_the_npu(tmp_path: Path) -> None:
    assert operators(tiny_model(), tmp_path)["CPU"] == 0


def test_the_digits_example_is_placed_on_the_npu(tmp_path: Path) -> None:
    graph = rlx.load(DIGITS / "digits.onnx")
    data = rlx.load_data(DIGITS / "digits_calibration.npz", graph)
    assert operators(rlx.quantize(graph, rlx.calibrate(graph, data)), tmp_path)["CPU"] == 0


def test_float_edges_stay_on_the_cpu(tmp_path: Path) -> None:
    assert operators(float_edges_model(), tmp_path) == {"CPU": 2, "NPU": 1}


@pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="no ../shared/models beside the repository")
@pytest.mark.parametrize("name", ["ad", "ic", "kws", "mnist_dw", "mnist_resnet", "mnist_valid", "vww"])
def test_the_public_models_are_placed_on_the_npu(name: str, tmp_path: Path) -> None:
    assert operators(load_tflite(SHARED / "models" / f"{name}_int8.tflite"), tmp_path)["CPU"] == 0
